"use strict";
// Completions by iteration. Whatever a model wrote is put on the page as text nodes only.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (!data.steps.length) return;
  const get = (id) => document.getElementById(id);
  const [head, body] = [get("rows").tHead, get("rows").tBodies[0]];
  const group = data.columns.indexOf("group");
  let sorted = null, descending = true;

  if (data.head || data.tail) {
    get("head").textContent = data.head;
    get("tail").textContent = data.tail;
    get("frame").hidden = false;
  }

  const number = (x) => (Number.isInteger(x) ? String(x) : x.toFixed(3)).replace("-", "−");

  function cell(name, value) {
    const td = document.createElement("td");
    if (typeof value === "number") {
      td.className = "number";
      td.textContent = number(value);
      if (name === "advantage" && value !== 0) td.classList.add(value > 0 ? "up" : "down");
    } else if (value !== null) {
      td.className = "text";
      td.appendChild(document.createElement("div")).textContent = String(value);
    }
    return td;
  }

  function compare(a, b) {
    const [x, y] = descending ? [b[sorted], a[sorted]] : [a[sorted], b[sorted]];
    if (x === null || y === null) return (a[sorted] === null) - (b[sorted] === null);
    return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
  }

  function show() {
    const index = Number(get("which").value);
    const { step, rows } = data.steps[index];
    const wanted = get("find").value.toLowerCase();
    const found = rows.filter((row) => row.some((x) => String(x).toLowerCase().includes(wanted)));
    if (sorted !== null) found.sort(compare);
    body.replaceChildren(...found.map((row, k) => {
      const tr = document.createElement("tr");
      if (sorted === null && k && row[group] !== found[k - 1][group]) tr.className = "next";
      row.forEach((value, i) => tr.appendChild(cell(data.columns[i], value)));
      tr.addEventListener("click", () => tr.classList.toggle("open"));
      return tr;
    }));
    get("step").textContent = step;
    get("earlier").disabled = index === 0;
    get("later").disabled = index === data.steps.length - 1;
    get("count").textContent = `${found.length} of ${rows.length}`;
  }

  const first = data.steps[0].rows[0] || [];
  const titles = head.insertRow();
  data.columns.forEach((name, i) => {
    const th = document.createElement("th");
    th.textContent = name;
    th.tabIndex = 0;
    if (typeof first[i] === "number") th.className = "number";
    const sort = () => {
      descending = sorted === i ? !descending : true;
      sorted = i;
      for (const other of titles.cells) other.removeAttribute("aria-sort");
      th.setAttribute("aria-sort", descending ? "descending" : "ascending");
      show();
    };
    th.addEventListener("click", sort);
    th.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
    titles.appendChild(th);
  });

  const which = get("which");
  which.max = data.steps.length - 1;
  which.value = data.steps.length - 1;
  which.addEventListener("input", show);
  get("find").addEventListener("input", show);
  const move = (by) => { which.value = Number(which.value) + by; show(); };
  get("earlier").addEventListener("click", () => move(-1));
  get("later").addEventListener("click", () => move(1));
  show();
})();
