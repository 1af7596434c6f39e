// A live page asks its server for news, and takes them in without moving what the reader looks at.
if (page.data.live) (() => {
  const every = 1000 * page.data.every;
  const news = page.get("news");
  let stamp = page.data.stamp;
  const known = new Map();

  function say(state, text) {
    if (news.dataset.state !== state) news.dataset.state = state;
    if (news.textContent !== text) news.textContent = text;
  }

  const ago = (s) => (s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`);

  function tell(state) {
    const done = `${state.step} of ${state.wanted} iterations`;
    if (state.ended) say("ended", `ended after ${state.step} iterations`);
    else if (state.quiet > state.patience) say("quiet", `no news for ${ago(state.quiet)}, ${done}`);
    else say("running", `running, ${done}`);
  }

  // Parts of the page that changed are replaced; an open part stays open, the focus where it is.
  function take(fresh) {
    const focus = document.activeElement?.closest?.("[data-chart]")?.dataset.chart;
    let before = null;
    for (const part of fresh.querySelectorAll("main > *")) {
      const mine = page.get(part.id);
      if (mine && "live" in part.dataset && known.get(part.id) !== part.innerHTML) {
        const open = [...mine.querySelectorAll("details")].map((d) => d.open);
        const copy = document.importNode(part, true);
        known.set(part.id, part.innerHTML);
        copy.querySelectorAll("details").forEach((d, i) => { d.open = Boolean(open[i]); });
        mine.replaceWith(copy);
      } else if (!mine && before) {
        before.after(document.importNode(part, true));
      }
      before = page.get(part.id) ?? before;
    }
    const data = JSON.parse(fresh.getElementById("data").textContent);
    document.title = fresh.title;
    stamp = data.stamp;
    page.charts.start(data.charts);
    if (focus !== undefined) document.querySelector(`[data-chart="${focus}"] .plot`)?.focus({ preventScroll: true });
    page.completions.refresh(data.recorded);
  }

  async function look() {
    try {
      const state = await (await fetch("state")).json();
      tell(state);
      if (state.stamp !== stamp) {
        const text = await (await fetch("page")).text();
        take(new DOMParser().parseFromString(text, "text/html"));
      }
      setTimeout(look, every);
    } catch {
      say("lost", "the server is gone");
      setTimeout(look, 3 * every);
    }
  }
  look();
})();
