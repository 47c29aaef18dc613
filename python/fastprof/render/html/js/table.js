// Tables: sorted by a click on a header, long ones opened on demand.

// The style sheet hides those beyond in a table that is cut.
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

/** Let the headers of a table sort it, and show the first rows only until asked for all. */
function startTable(table) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const cells = rows.map((row) => [...row.cells].map((cell) => cell.textContent));
  let sorted = { i: -1, ascending: false };

  const headers = [...table.tHead.rows[0].cells].map((cell, i) =>
    headerCell(cell.textContent, i, cell.className === "text", sort));
  table.tHead.rows[0].replaceChildren(...headers);

  function sort(i) {
    const isText = headers[i].className === "text";
    sorted = { i, ascending: sorted.i === i ? !sorted.ascending : isText };
    markSorted(headers, i, sorted.ascending);
    body.append(...orderRows(cells, i, isText, sorted.ascending).map((n) => rows[n]));
  }

  if (rows.length <= FIRST_ROWS) return;
  table.classList.add("cut");
  const showAll = () => {
    table.classList.remove("cut");
    more.remove();
  };
  const more = el("button", { type: "button", class: "more", on: { click: showAll } },
    `Show all ${rows.length} rows`);
  table.parentElement.after(more);
}
