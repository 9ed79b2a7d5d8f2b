"use strict";
const byId = id => document.getElementById(id), all = (what, from = document) => [...from.querySelectorAll(what)];
const make = (name, text = "") => Object.assign(document.createElement(name), {textContent: text});

/* A cell as a number, so that sizes and numbers sort as such; text as it is. */
const units = {bytes: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, PiB: 2 ** 50};
function value(cell) {
  const found = /^(-?[\d.]+)(?: (\w+))?/.exec(cell.textContent);
  return found ? found[1] * (units[found[2]] || 1) : NaN;
}

function compare(x, y) {
  const a = value(x), b = value(y);
  if (isNaN(a) !== isNaN(b)) return isNaN(a) - isNaN(b);
  return isNaN(a) ? x.textContent.localeCompare(y.textContent) : a - b;
}

function sort(table, column) {
  const heads = [...table.tHead.rows[0].cells], head = heads[column];
  const falling = head.getAttribute("aria-sort") === "ascending";
  heads.forEach(h => h.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const body = table.tBodies[0], rows = [...body.rows];
  rows.sort((x, y) => (falling ? -1 : 1) * compare(x.cells[column], y.cells[column]));
  body.append(...rows);
}

for (const table of all("table.layouts"))
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = make("button", head.textContent);
    button.type = "button";
    button.onclick = () => sort(table, column);
    head.replaceChildren(button);
  });

/* Rows with all words of the text. */
function filter() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(word => word);
  const rows = all("table.layouts tbody tr");
  for (const row of rows) {
    const text = [...row.cells].map(cell => cell.textContent).join(" ").toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
  }
  for (const group of all("details.failures"))
    group.hidden = all("tbody tr", group).every(row => row.hidden);
  byId("shown").textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length} rows`;
}

/* ---- side by side ---- */
function options(select, names, chosen) {
  select.replaceChildren(...names.map((name, i) => Object.assign(make("option", name), {value: i})));
  select.selectedIndex = Math.min(chosen, names.length - 1);
}

/* Opens with the first, and with the other that is worth a look. */
function besides(id, names, other, show) {
  const both = all("select", byId(id));
  if (names.length < 2) return;
  both.forEach((select, i) => {
    options(select, names, i ? other : 0);
    select.onchange = () => show(...both.map(s => s.selectedIndex));
  });
  byId(id).hidden = false;
  show(0, other);
}

function masks() {
  const figures = all("#masks figure");
  besides("two-masks", figures.map(f => f.dataset.name), 1, (a, b) =>
    all("#two-masks .two > div").forEach((at, i) => at.replaceChildren(figures[i ? b : a].cloneNode(true))));
}

function drawn(row) {
  const copy = byId(row.dataset.drawn || "")?.cloneNode(true);
  copy?.removeAttribute("id");
  return copy || make("p", "This layout is not drawn.");
}

function layouts() {
  const table = byId("layouts");
  if (!table) return;
  const rows = [...table.tBodies[0].rows], heads = [...table.tHead.rows[0].cells].map(h => h.textContent);
  const settings = +table.dataset.settings;
  const names = rows.map(row => [...row.cells].slice(0, settings + 1).map(c => c.textContent).join(" ") + " ms");
  const other = Math.max(1, rows.findIndex((row, i) => i > 0 && row.dataset.drawn));
  besides("two-layouts", names, other, (a, b) => {
    const lines = heads.map((head, i) => {
      const line = make("tr"), [x, y] = [rows[a].cells[i].textContent, rows[b].cells[i].textContent];
      line.append(make("td", head), make("td", x), make("td", y));
      if (x !== y) [...line.cells].slice(1).forEach(cell => cell.className = "more");
      return line;
    });
    byId("differences").replaceChildren(...lines);
    all("#two-layouts .two > div").forEach((at, i) => at.replaceChildren(drawn(rows[i ? b : a])));
  });
}

if (byId("filter")) {
  byId("filter").oninput = filter;
  byId("filter").closest(".tools").hidden = false;
  filter();
}
masks();
layouts();
