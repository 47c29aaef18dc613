// Tables of finished cells: sorted by a click on a header, long ones opened on demand.

const FIRST_ROWS = 25;

/** The number in a cell for sorting; what is no number, as n/a, comes last. */
function cellNumber(cell) {
  const value = parseFloat(cell.replaceAll(",", ""));
  return Number.isNaN(value) ? -Infinity : value;
}

/** Order row numbers by column `i`: text from a to z, numbers from large to small. */
function orderRows(rows, i, isText, ascending) {
  const order = rows.map((_, n) => n);
  const sign = ascending ? 1 : -1;
  if (isText) order.sort((a, b) => sign * rows[a][i].localeCompare(rows[b][i]) || a - b);
  else {
    const values = rows.map((row) => cellNumber(row[i]));
    order.sort((a, b) => sign * (values[a] - values[b]) || a - b || 0);
  }
  return order;
}

/** A header cell whose button sorts; `sort(i)` is called with its column. */
function headerCell(text, i, isText, sort) {
  const button = el("button", { type: "button", on: { click: () => sort(i) } }, text);
  return el("th", { scope: "col", class: isText ? "text" : "number" }, button);
}

/** Mark in the headers which column rows are sorted by. */
function markSorted(headers, i, ascending) {
  headers.forEach((header, n) => {
    if (n === i) header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    else header.removeAttribute("aria-sort");
  });
}

function tableRow(cells, left, tag) {
  return el("tr", {}, cells.map((cell, i) => {
    const kind = left.has(i) ? "text" : "number";
    if (i === 0) return el(tag, { scope: "row", class: kind, title: cell }, cell);
    return el("td", { class: cell === NA ? `${kind} na` : kind }, cell);
  }));
}

/** A table part: {title, headers, left, rows, total}. */
function tablePart(part) {
  const left = new Set(part.left);
  const state = { column: -1, ascending: false, all: false };
  const body = el("tbody");
  const more = el("button", { type: "button", class: "more", on: { click: showAll } });
  const headers = part.headers.map((text, i) => headerCell(text, i, left.has(i), sort));

  function showAll() {
    state.all = true;
    fill();
  }

  function sort(i) {
    state.ascending = state.column === i ? !state.ascending : left.has(i);
    state.column = i;
    markSorted(headers, i, state.ascending);
    fill();
  }

  function fill() {
    const { column, ascending } = state;
    const order = column < 0
      ? part.rows.map((_, n) => n)
      : orderRows(part.rows, column, left.has(column), ascending);
    const shown = state.all ? order : order.slice(0, FIRST_ROWS);
    body.replaceChildren(...shown.map((n) => tableRow(part.rows[n], left, "th")));
    more.hidden = shown.length === part.rows.length;
    more.textContent = `Show all ${part.rows.length} rows`;
  }

  fill();
  const foot = part.total ? el("tfoot", {}, tableRow(part.total, left, "th")) : null;
  const title = el("h3", {}, part.title);
  const table = el("table", { "aria-label": part.title },
    el("thead", {}, el("tr", {}, headers)), body, foot);
  return el("div", { class: "part" }, title, scrollable(part.title, table), more);
}

/** A box that scrolls sideways, also by keyboard. */
function scrollable(label, child) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, child);
}
