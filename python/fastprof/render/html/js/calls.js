// Who calls a function, and what it calls.

const CALL_ROWS = 50;

/** Numbers of the edges per function, from the column of their callers or callees. */
class EdgeIndex {
  constructor(column, functionCount) {
    this.start = new Uint32Array(functionCount + 1);
    for (const i of column) this.start[i + 1] += 1;
    for (let i = 0; i < functionCount; i += 1) this.start[i + 1] += this.start[i];
    const next = this.start.slice();
    this.edges = new Uint32Array(column.length);
    column.forEach((i, edge) => {
      this.edges[next[i]] = edge;
      next[i] += 1;
    });
  }

  of(i) {
    return Array.from(this.edges.subarray(this.start[i], this.start[i + 1]));
  }
}

/** The panel below the function table; `choose(i)` is called for a function in it. */
class CallsPanel {
  constructor(functions, strings, choose) {
    this.functions = functions;
    this.strings = strings;
    this.choose = choose;
    const { count, caller } = functions.edges;
    this.callee = count.flatMap((n, i) => new Array(n).fill(i));
    this.callers = new EdgeIndex(this.callee, count.length);
    this.callees = new EdgeIndex(caller, count.length);
    this.node = el("div", { class: "calls", "aria-live": "polite" },
      el("p", { class: "minor" }, "Choose a function to see its callers and callees."));
    this.leftOut = functions.edges.left_out
      ? `${formatCount(functions.edges.left_out)} pairs of caller and callee with little time are left out.`
      : "";
  }

  show(i) {
    const { functions: f, strings } = this;
    const place = f.line[i] ? `${strings[f.file[i]]}:${f.line[i]}` : strings[f.kind[i]];
    const facts = [
      ["self", `${formatMs(f.self[i])} ms`],
      ["cumulative", `${formatMs(f.cum[i])} ms`],
      ["calls", formatCount(f.calls[i])],
    ];
    if (f.primitive.has(i)) facts.push(["not recursive", formatCount(f.primitive.get(i))]);
    if (f.raw_self) {
      facts.push(["raw self", `${formatMs(f.raw_self[i])} ms`]);
      facts.push(["raw cumulative", `${formatMs(f.raw_cum[i])} ms`]);
    }
    const facts_ = facts.map(([name, value]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, value)));
    const parts = [
      el("h3", {}, strings[f.name[i]] || '""'),
      el("p", { class: "minor place" }, place),
      el("dl", { class: "facts" }, facts_),
      el("div", { class: "pair" },
        this.list("Called by", this.callers.of(i), f.edges.caller, this.top(i)),
        this.list("Calls", this.callees.of(i), this.callee)),
      this.leftOut ? el("p", { class: "minor" }, this.leftOut) : null,
      this.source(i),
    ];
    this.node.replaceChildren(...parts.filter((part) => part !== null));
  }

  /** The row of calls that no function of the table made, where there are any. */
  top(i) {
    const { functions: f } = this;
    const calls = f.top.get(i);
    const begun = !this.callers.of(i).length;
    if (calls === undefined && !begun) return null;
    const name = f.edges.left_out ? "(start of the thread, or left out)" : "(start of the thread)";
    return el("tr", {}, el("th", { scope: "row", class: "text" }, name),
      el("td", { class: "number" }, formatCount(calls || 0)),
      el("td", { class: "number na" }, begun ? formatMs(f.cum[i]) : NA));
  }

  source(i) {
    const block = this.functions.lines.get(i);
    if (!block) return null;
    const [first, text, samples, shares] = block;
    const lines = text.split("\n");
    const digits = String(first + lines.length).length;
    const share = new Map(shares);
    const part = (n) => (samples ? (share.has(n) ? `${share.get(n)} %` : "").padStart(5) : "");
    const numbered = lines.map((line, n) =>
      `${part(first + n)}${samples ? "  " : ""}${String(first + n).padStart(digits)}  ${line}`);
    const code = el("pre", {}, el("code", {}, numbered.join("\n")));
    const title = samples
      ? `Source, with the part of the function's ${formatCount(samples)} samples that found it there`
      : "Source";
    return el("div", { class: "source" }, el("h4", {}, title), scrollable("Source", code));
  }

  list(title, edges, other, more) {
    const e = this.functions.edges;
    edges.sort((a, b) => e.cum[b] - e.cum[a]);
    const rows = edges.slice(0, CALL_ROWS).map((edge) => {
      const name = this.strings[this.functions.name[other[edge]]] || '""';
      const click = () => this.choose(other[edge]);
      return el("tr", {},
        el("th", { scope: "row", class: "text" },
          el("button", { type: "button", class: "name", title: name, on: { click } }, name)),
        el("td", { class: "number" }, formatCount(e.calls[edge])),
        el("td", { class: "number" }, formatMs(e.cum[edge])));
    });
    if (more) rows.push(more);
    const count = edges.length > CALL_ROWS ? `${CALL_ROWS} of ${edges.length}` : rows.length;
    const headers = ["function", "calls", "cum ms"].map((text, i) =>
      el("th", { scope: "col", class: i ? "number" : "text" }, text));
    const table = el("table", { "aria-label": title },
      el("thead", {}, el("tr", {}, headers)),
      el("tbody", {}, rows));
    return el("div", {}, el("h4", {}, `${title} (${count})`), scrollable(title, table));
  }
}
