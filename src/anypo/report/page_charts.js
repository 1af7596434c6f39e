// One cursor for all curves: it shows what each of them is at an iteration.
page.charts = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  let charts = [], at = null, active = null;

  const draw = (tag, attributes) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };

  // The place of the value nearest to x in sorted values.
  function nearest(values, x) {
    let [low, high] = [0, values.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (values[middle] <= x) low = middle; else high = middle;
    }
    return values[high] - x < x - values[low] ? high : low;
  }

  function chart(facts, index) {
    const figure = document.querySelector(`[data-chart="${index}"]`);
    const [plot, last] = [figure.querySelector(".plot"), figure.querySelector(".last")];
    const [left, top, right, bottom] = facts.box;
    const f = facts.log ? Math.log10 : (v) => v;
    const across = (x) => left + ((x - facts.x[0]) / (facts.x[1] - facts.x[0])) * (right - left);
    const down = (y) => bottom - ((f(y) - f(facts.y[0])) / (f(facts.y[1]) - f(facts.y[0]))) * (bottom - top);
    const made = { ...facts, figure, plot, last, across, down, usual: last.textContent };
    const steps = facts.lines[0].x;
    made.steps = steps;
    made.overlay = draw("svg", { viewBox: `0 0 ${facts.size[0]} ${facts.size[1]}`, class: "cursor", "aria-hidden": "true" });
    plot.append(made.overlay);

    plot.tabIndex = 0;
    plot.setAttribute("role", "slider");
    plot.setAttribute("aria-valuemin", steps[0]);
    plot.setAttribute("aria-valuemax", steps[steps.length - 1]);
    plot.setAttribute("aria-valuenow", steps[steps.length - 1]);
    const point = (event) => {
      const box = plot.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * facts.size[0];
      const wanted = facts.x[0] + ((x - left) / (right - left)) * (facts.x[1] - facts.x[0]);
      show(steps[nearest(steps, wanted)], made);
    };
    plot.addEventListener("pointermove", point);
    plot.addEventListener("pointerdown", point);
    plot.addEventListener("pointerleave", () => { if (document.activeElement !== plot) show(null, null); });
    plot.addEventListener("click", () => { if (at !== null) page.choose(at); });
    plot.addEventListener("blur", () => show(null, null));
    plot.addEventListener("keydown", (event) => {
      const place = at === null ? steps.length - 1 : nearest(steps, at);
      const wide = Math.max(1, Math.round(steps.length / 10));
      const moves = {
        ArrowLeft: at === null ? 0 : -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1,
        PageDown: -wide, PageUp: wide, Home: -steps.length, End: steps.length,
      };
      if (event.key in moves) {
        show(steps[Math.min(Math.max(place + moves[event.key], 0), steps.length - 1)], made);
      } else if (event.key === "Enter" && at !== null) {
        page.choose(at);
      } else if (event.key === "Escape") {
        show(null, null);
      } else return;
      event.preventDefault();
    });
    return made;
  }

  function mark(c) {
    c.overlay.replaceChildren();
    c.figure.classList.toggle("pointed", at !== null);
    if (at === null) {
      c.last.textContent = c.usual;
      return;
    }
    const found = c.lines.map((line) => {
      const k = nearest(line.x, at);
      return [line.x[k], line.y[k]];
    });
    const x = c.across(found[0][0]);
    c.overlay.append(draw("line", { x1: x, x2: x, y1: c.box[1], y2: c.box[3] }));
    found.forEach(([step, y], i) => {
      c.overlay.append(draw("circle", { cx: c.across(step), cy: c.down(y), r: 2.6, fill: `var(--${i ? "second" : "series"})` }));
    });
    const words = found.map(([, y]) => page.number(y) + c.unit).join(" / ");
    c.last.textContent = words;
    if (c !== active) return;
    const end = x > (c.box[0] + c.box[2]) / 2;
    const label = draw("text", { x: x + (end ? -4 : 4), y: c.box[1] + 8, "text-anchor": end ? "end" : "start" });
    label.textContent = `iteration ${found[0][0]}`;
    c.overlay.append(label);
    c.plot.setAttribute("aria-valuenow", found[0][0]);
    c.plot.setAttribute("aria-valuetext", `iteration ${found[0][0]}: ${words}`);
  }

  function show(step, c) {
    if (step === at && c === active) return;
    [at, active] = [step, c];
    charts.forEach(mark);
  }

  function start(list) {
    [at, active] = [null, null];
    charts = list.map(chart);
  }
  start(page.data.charts);
  return { start };
})();
