// The function table: of any length, for only the rows in view are in the page.

const ROW_HEIGHT = 30;
const ROWS_BEYOND = 8;
const PRINTED_ROWS = 60;
const BAR_HEIGHT = 24;

/** Columns: header, where the value is, how it is written, whether it is text. */
function functionColumns(f) {
  const columns = [
    { title: "function", column: "name", isText: true },
    { title: "self ms", column: "self", format: formatMs },
    { title: "share %", column: "share", format: formatShare },
    { title: "cum ms", column: "cum", format: formatMs },
    { title: "calls", column: "calls", format: formatCount },
    { title: "resumes", column: "resumes", format: formatCount },
    { title: "gpu ms", column: "gpu", format: formatMs },
    { title: "kernels", column: "kernels", format: formatCount },
    { title: "blocked ms", column: "blocked", format: formatMs },
    { title: "defined at", column: "file", isText: true },
  ];
  return columns.filter(({ column }) => f[column] !== undefined);
}

class FunctionTable {
  /**
   * A functions part: {phases, sources}, the columns per phase and the blocks of source lines.
   * `names` are those of the phases; `phaseChosen(i)` is called.
   */
  constructor({ phases: tables, sources }, names, strings, phaseChosen) {
    this.tables = tables;
    this.strings = strings;
    this.lower = strings.map((text) => text.toLowerCase());
    for (const f of tables) {
      f.primitive = new Map(f.recursive);
      f.share = f.self.map((ms) => (f.self_total ? ms / f.self_total : null));
      f.lines = new Map(f.source.map(([i, n]) => [i, sources[n]]));
      f.top = new Map(f.edges.top);
    }
    this.phase = phaseChoice("function-phase", names, phaseChosen);
    this.place = el("div");
    this.build();
    this.usePhase(0);
  }

  /** Show the functions of another phase of the run. */
  usePhase(i) {
    const functions = this.tables[i];
    this.f = functions;
    this.phase.select.value = String(i);
    this.columns = functionColumns(functions);
    this.order = functions.name.map((_, n) => n);
    this.sorted = { i: 1, ascending: false };
    this.chosen = -1;
    this.calls = new CallsPanel(functions, this.strings, (n) => this.choose(n));
    this.place.replaceChildren(this.calls.node);
    this.headers = this.columns.map((c, n) =>
      headerCell(c.title, n, c.isText, (column) => this.sortBy(column)));
    this.columns.forEach(({ column }, n) => this.headers[n].classList.add(`of-${column}`));
    markSorted(this.headers, this.sorted.i, this.sorted.ascending);
    this.head.replaceChildren(...this.headers);
    this.refresh();
  }

  build() {
    const input = { input: debounced(() => this.refresh(), 80) };
    this.filter = el("input", {
      type: "search", id: "function-filter", autocomplete: "off", spellcheck: "false",
      placeholder: "name or file", on: input,
    });
    this.count = el("output", { class: "minor", for: "function-filter" });
    this.body = el("tbody");
    this.head = el("tr", { "aria-rowindex": "1" });
    this.table = el("table", { class: "virtual", "aria-label": "Functions" },
      el("thead", {}, this.head),
      this.body);
    this.box = scrollable("Functions", this.table);
    this.box.classList.add("tall");
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    addEventListener("resize", () => this.draw());
    addEventListener("beforeprint", () => this.draw(PRINTED_ROWS));
    addEventListener("afterprint", () => this.draw());
    const label = el("label", { for: "function-filter" }, "Filter");
    this.node = el("div", { class: "part" },
      el("div", { class: "controls" }, this.phase.nodes, label, this.filter, this.count),
      this.box, this.place);
  }

  sortBy(i) {
    const ascending = this.sorted.i === i ? !this.sorted.ascending : Boolean(this.columns[i].isText);
    this.sorted = { i, ascending };
    markSorted(this.headers, i, ascending);
    this.refresh();
  }

  /** Filter, sort, and draw from the top. */
  refresh() {
    const { f, lower } = this;
    const wanted = this.filter.value.trim().toLowerCase();
    const all = f.name.map((_, i) => i);
    // Each string is looked at once, however many rows have it.
    const hits = lower.map((text) => text.includes(wanted));
    this.order = wanted ? all.filter((i) => hits[f.name[i]] || hits[f.file[i]]) : all;
    this.sort();
    const whole = f.total > f.name.length ? ` (the first ${f.name.length} of ${f.total})` : "";
    this.count.textContent =
      `${formatCount(this.order.length)} of ${formatCount(f.name.length)} functions${whole}`;
    this.table.setAttribute("aria-rowcount", String(this.order.length + 1));
    this.box.scrollTop = 0;
    // No higher than its rows; the style sheet has the most.  A scroll bar may stand below.
    this.box.style.height = `${(this.order.length + 1) * ROW_HEIGHT + BAR_HEIGHT}px`;
    this.draw();
  }

  sort() {
    const { column, isText } = this.columns[this.sorted.i];
    const sign = this.sorted.ascending ? 1 : -1;
    const values = this.f[column];
    if (column === "self" && sign < 0) return; // the order of the rows as they came
    if (isText) {
      const { lower } = this;
      const compare = (a, b) => (lower[a] < lower[b] ? -1 : lower[a] > lower[b] ? 1 : 0);
      this.order.sort((a, b) => sign * compare(values[a], values[b]) || a - b);
    } else {
      const number = (value) => (value === null ? -1 : value);
      this.order.sort((a, b) => sign * (number(values[a]) - number(values[b])) || a - b);
    }
  }

  /** Put the rows in view into the page, or the first `count` rows. */
  draw(count) {
    const height = this.box.clientHeight || 600;
    const first = count ? 0 : Math.max(0, Math.floor(this.box.scrollTop / ROW_HEIGHT) - ROWS_BEYOND);
    const wanted = count || Math.ceil(height / ROW_HEIGHT) + 2 * ROWS_BEYOND;
    const last = Math.min(this.order.length, first + wanted);
    const rows = [];
    for (let n = first; n < last; n += 1) rows.push(this.row(n));
    const below = count ? 0 : this.order.length - last;
    this.body.replaceChildren(this.spacer(first), ...rows, this.spacer(below));
  }

  spacer(rows) {
    const row = el("tr", { "aria-hidden": "true", class: "spacer" },
      el("td", { colspan: this.columns.length }));
    row.firstChild.style.height = `${rows * ROW_HEIGHT}px`;
    row.hidden = rows === 0;
    return row;
  }

  row(n) {
    const i = this.order[n];
    const chosen = i === this.chosen;
    const cells = this.columns.map((column) => this.cell(column, i, chosen));
    return el("tr", { "aria-rowindex": n + 2, class: chosen ? "chosen" : null }, cells);
  }

  cell({ column, format, isText }, i, chosen) {
    const { f, strings } = this;
    if (column === "name") {
      const name = strings[f.name[i]] || '""';
      const click = () => this.choose(i);
      const attributes = { type: "button", class: "name", title: name, on: { click } };
      return el("th", { scope: "row", class: "text" },
        el("button", { ...attributes, "aria-pressed": String(chosen) }, name));
    }
    if (isText) {
      const place = f.line[i] ? `${strings[f.file[i]]}:${f.line[i]}` : `(${strings[f.kind[i]]})`;
      const short = place.split(/[\\/]/).slice(-2).join("/");
      return el("td", { class: "text place", title: place }, short);
    }
    const recursive = column === "calls" && f.primitive.has(i);
    const text = format(f[column][i]) + (recursive ? `/${format(f.primitive.get(i))}` : "");
    return el("td", { class: text === NA ? "number na" : "number" }, text);
  }

  /** Show a function's callers and callees; `scroll` to it where another part asks. */
  choose(i, scroll) {
    this.chosen = i;
    if (scroll) {
      if (!this.order.includes(i)) {
        this.filter.value = "";
        this.refresh();
      }
      this.box.scrollTop = Math.max(0, this.order.indexOf(i) * ROW_HEIGHT - ROW_HEIGHT);
      this.node.scrollIntoView({ block: "start" });
    }
    this.draw();
    this.calls.show(i);
    if (scroll) this.body.querySelector("[aria-pressed=true]")?.focus({ preventScroll: true });
  }
}
