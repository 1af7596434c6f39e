// Completions by iteration: sorted, searched and paged, out of the page itself or, live, its server.
page.completions = (() => {
  const { get, make, number } = page;
  if (!get("browser")) return { refresh: () => {} };
  const live = page.data.live;
  const byStep = new Map(page.data.steps.map((s) => [s.step, s]));
  const [head, body] = [get("rows").tHead, get("rows").tBodies[0]];
  const place = { step: null, sort: null, down: true, find: "", from: 0 };
  let [steps, asked] = [[], 0];

  // What a server would answer, out of the page's own data.
  function look({ step, sort, down, find, from, size }) {
    const { columns, head: before, tail: after } = page.data;
    const { rows, total, limit, pull } = byStep.get(step);
    const wanted = find.toLowerCase();
    const found = rows.filter((row) => !wanted || row.cells.some((x) => typeof x === "string" && x.toLowerCase().includes(wanted)));
    const i = columns.indexOf(sort);
    if (i >= 0) {
      found.sort((a, b) => {
        const [x, y] = down ? [b.cells[i], a.cells[i]] : [a.cells[i], b.cells[i]];
        const [p, q] = [a.cells[i] ?? null, b.cells[i] ?? null];
        if (p === null || q === null) return (p === null) - (q === null) || a.index - b.index;
        const order = typeof x === "string" ? (x < y ? -1 : x > y ? 1 : 0) : x - y;
        return order || a.index - b.index;
      });
    }
    return { columns, head: before, tail: after, total, limit, pull, kept: rows.length, found: found.length, rows: found.slice(from, from + size) };
  }

  async function ask(path, parameters) {
    const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`);
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  // A text whose tokens are coloured by their gradient: `[unit, lengths or texts, steps]`.
  function coloured(parent, text, [unit, marks, sizes], { limit, pull }) {
    const letters = Array.from(text);
    let used = 0;
    marks.forEach((token, i) => {
      const said = typeof token === "number" ? letters.slice(used, used += token).join("") : token;
      const [size, span] = [sizes[i] * unit, make("span", "token", said || "\u220e")];
      if (!said) span.classList.add("end");
      if (size && limit) span.classList.add((size > 0 ? "up" : "down") + Math.min(4, Math.max(1, Math.ceil((4 * Math.abs(size)) / limit - 1e-3))));
      const share = pull ? `, ${number((100 * Math.abs(size)) / pull)} % of this iteration\u2019s` : "";
      span.title = `gradient ${size > 0 ? "+" : ""}${number(size)}${share}${said ? "" : " (a token without text, such as the end)"}`;
      parent.append(span);
    });
    const spelled = marks.some((token) => typeof token === "string");
    if (spelled ? text.endsWith("\u2026") : used < letters.length) parent.append(spelled ? "\u2026" : letters.slice(used).join(""));
  }

  function fill(box, text, row, name, scale) {
    if (name === "completion" && row.colours) coloured(box, text, row.colours, scale);
    else box.append(text);
  }

  // What a cut text lacks: to be had from a server, else said.
  function rest(box, row, name, step, scale) {
    const all = row.cut?.[name];
    if (!all) return;
    if (!live) {
      box.append(make("p", "rest", `${number(all)} characters in all; anypo watch shows them`));
      return;
    }
    let from = null;
    const button = make("button", "more", `on (${number(all)} characters in all)`);
    button.type = "button";
    button.addEventListener("click", async () => {
      button.disabled = true;
      const part = await ask("text", { step, index: row.index, column: name, from: from ?? 0 });
      if (from === null) box.replaceChildren();
      fill(box, part.text, part, name, scale);
      from = part.next;
      button.disabled = false;
      if (from !== null) box.append(button); else button.remove();
    });
    box.append(button);
  }

  const called = (name) => (name === "truncated" ? "cut off" : name.replace(/^rewards\//, ""));

  function cell(name, value, row, answer) {
    const td = make("td");
    td.dataset.name = called(name);
    if (typeof value === "number") {
      td.className = "number";
      td.append(Number.isInteger(value) ? number(value) : value.toFixed(Math.abs(value) < 0.1 ? 4 : 3).replace("-", "\u2212"));
      if (name === "advantage" && value !== 0) td.classList.add(value > 0 ? "up" : "down");
    } else if (typeof value === "string") {
      td.className = name === "completion" || name === "prompt" ? "text wide" : "text";
      const box = td.appendChild(make("div"));
      fill(box, value, row, name, answer);
      rest(box, row, name, place.step, answer);
    } else if (value === true) {
      td.append("yes");
    }
    return td;
  }

  function opener(tr) {
    if (![...tr.querySelectorAll("td.text > div")].some((box) => box.scrollHeight > box.clientHeight + 2)) return;
    const button = make("button", "open-row", "whole");
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => {
      const open = tr.classList.toggle("open");
      button.setAttribute("aria-expanded", String(open));
      button.textContent = open ? "less" : "whole";
    });
    (tr.querySelector('td[data-name="completion"]') ?? tr.querySelector("td.text")).prepend(button);
  }

  function titles(answer) {
    const rows = answer.rows;
    const tr = make("tr");
    answer.columns.forEach((name, i) => {
      const th = make("th", rows.length && rows.every((row) => typeof row.cells[i] !== "string" && row.cells[i] !== true) ? "number" : "");
      th.scope = "col";
      const button = th.appendChild(make("button", "", called(name)));
      button.type = "button";
      if (place.sort === name) th.setAttribute("aria-sort", place.down ? "descending" : "ascending");
      button.addEventListener("click", async () => {
        place.down = place.sort === name ? !place.down : true;
        Object.assign(place, { sort: name, from: 0 });
        await show();
        head.rows[0].cells[i]?.firstChild.focus();
      });
      tr.append(th);
    });
    head.replaceChildren(tr);
  }

  function controls(answer, size) {
    const index = steps.indexOf(place.step);
    [get("which").max, get("which").value, get("step").value] = [steps.length - 1, index, place.step];
    [get("earlier").disabled, get("later").disabled] = [index <= 0, index >= steps.length - 1];
    const last = Math.min(place.from + size, answer.found);
    const of = answer.found === answer.total ? `of ${number(answer.total)}` : `of ${number(answer.found)}${place.find ? " found" : ""}, ${number(answer.total)} in all`;
    get("count").textContent = answer.found ? `${place.from + 1} to ${last} ${of}` : `none ${of}`;
    [get("back").disabled, get("on").disabled] = [place.from === 0, last >= answer.found];
    get("unsort").hidden = place.sort === null;
    get("frame").hidden = !(answer.head || answer.tail);
    [get("head").textContent, get("tail").textContent] = [answer.head, answer.tail];
    get("colour").hidden = !answer.limit;
    get("legend").hidden = !answer.limit || !get("coloured").checked;
    if (answer.limit) get("limit").textContent = `full colour from \u00b1${number(answer.limit)} per token on; point at a token for its number`;
  }

  async function show() {
    const [size, mine] = [Number(get("size").value), ++asked];
    if (place.step === null) return;
    let answer;
    try {
      const wanted = { ...place, sort: place.sort ?? "", size };
      answer = live ? await ask("completions", { ...wanted, down: Number(place.down) }) : look(wanted);
    } catch (error) {
      if (mine === asked) get("count").textContent = String(error.message ?? error);
      return;
    }
    if (mine !== asked) return; // a later question was asked meanwhile
    titles(answer);
    const group = answer.columns.indexOf("group");
    body.replaceChildren(...answer.rows.map((row, k) => {
      const next = place.sort === null && k && group >= 0 && row.cells[group] !== answer.rows[k - 1].cells[group];
      const tr = make("tr", next ? "next" : "");
      row.cells.forEach((value, i) => tr.append(cell(answer.columns[i], value, row, answer)));
      return tr;
    }));
    controls(answer, size);
    get("rows").dataset.step = place.step;
    [...body.rows].forEach(opener);
  }

  function go(step, follow = false) {
    if (get("follow")) get("follow").checked = follow;
    if (step === place.step || !steps.length) return;
    Object.assign(place, { step, from: 0 });
    get("table").scrollTop = 0;
    show();
  }
  const closest = (step) => steps.reduce((a, b) => (Math.abs(b - step) < Math.abs(a - step) ? b : a));
  const move = (by) => go(steps[Math.min(Math.max(steps.indexOf(place.step) + by, 0), steps.length - 1)]);
  const turn = (by) => {
    place.from = Math.max(0, place.from + by * Number(get("size").value));
    get("table").scrollTop = 0;
    show();
  };
  let typing;
  get("find").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { Object.assign(place, { find: get("find").value, from: 0 }); show(); }, live ? 250 : 60);
  });
  get("which").addEventListener("input", () => go(steps[Number(get("which").value)]));
  get("step").addEventListener("change", () => {
    if (get("step").value !== "") go(closest(Number(get("step").value)));
    get("step").value = place.step;
  });
  get("earlier").addEventListener("click", () => move(-1));
  get("later").addEventListener("click", () => move(1));
  get("back").addEventListener("click", () => turn(-1));
  get("on").addEventListener("click", () => turn(1));
  get("size").addEventListener("change", () => { place.from = 0; show(); });
  get("unsort").addEventListener("click", () => { Object.assign(place, { sort: null, from: 0 }); show(); });
  get("coloured").addEventListener("change", () => {
    document.body.classList.toggle("plain", !get("coloured").checked);
    get("legend").hidden = !get("coloured").checked;
  });
  get("follow")?.addEventListener("change", () => { if (get("follow").checked) go(steps[steps.length - 1], true); });
  page.choose = (step) => { if (steps.length) go(closest(step)); };

  // Takes up the iterations that are recorded by now; the reader stays where they are.
  function refresh(recorded) {
    steps = recorded;
    get("browser").hidden = !steps.length;
    if (get("none")) get("none").hidden = steps.length > 0;
    if (!steps.length) return;
    if (place.step === null || (get("follow")?.checked && place.sort === null && !place.find && !place.from)) go(steps[steps.length - 1], true);
    get("which").max = steps.length - 1;
    get("which").value = steps.indexOf(place.step);
    get("later").disabled = steps.indexOf(place.step) >= steps.length - 1;
  }
  refresh(live ? page.data.recorded : page.data.steps.map((s) => s.step));
  return { refresh };
})();
