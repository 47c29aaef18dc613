// The flame graph with its controls: which graph, search, zoom, details, keys.

const GRAPH_KINDS = { time: "Time", gpu: "GPU time", workers: "Worker processes" };
const FLAME_HELP = "Click to zoom. Keys: arrows move, Enter zooms, Backspace zooms out, "
  + "Escape resets, F shows the function in the table.";

/** What frames are called; see flames.py: a function's number is below 0. */
class FrameNames {
  constructor(own, functions, strings) {
    Object.assign(this, { own, functions, strings });
  }

  /** Whether it is a function that is not the program's own. */
  isLibrary(frame) {
    const [table, i] = this.find(frame);
    if (!table.isUsers) table.isUsers = new Set(table.users);
    return ["python", "c", "type"].includes(this.kind(frame)) && !table.isUsers.has(i);
  }

  /** The table that has a frame, and its row there. */
  find(frame) {
    return frame < 0 ? [this.functions, -1 - frame] : [this.own, frame];
  }

  kind(frame) {
    const [table, i] = this.find(frame);
    return this.strings[table.kind[i]];
  }

  name(frame) {
    const [table, i] = this.find(frame);
    const name = this.strings[table.name[i]] || '""';
    return this.kind(frame) === "section" ? `[${name}]` : name;
  }

  /** Where it is defined, empty where that is not known. */
  place(frame) {
    const [table, i] = this.find(frame);
    return table.line[i] ? `${this.strings[table.file[i]]}:${table.line[i]}` : "";
  }

  /** The frames whose name contains a text in lower case. */
  containing(wanted) {
    const found = new Set();
    const look = (frame) => {
      if (this.name(frame).toLowerCase().includes(wanted)) found.add(frame);
    };
    for (let i = 0; i < this.own.name.length; i += 1) look(i);
    for (let i = 0; i < this.functions.name.length; i += 1) look(-1 - i);
    return found;
  }
}

class Flame {
  /** `tables` are the functions of each phase, `names` its name; `phaseChosen(i)` is called. */
  constructor(part, tables, names, strings, showFunction, phaseChosen) {
    this.part = part;
    this.frames = tables.map((functions) => new FrameNames(part.frames, functions, strings));
    this.showFunction = showFunction;
    this.trees = new Map();
    this.phase = phaseChoice("flame-phase", names, phaseChosen);
    this.build();
    this.fillChoice(0);
  }

  /** Offer the graphs of a phase of the run. */
  fillChoice(phase) {
    const title = (graph) => this.frames[phase].name(graph.title);
    const graphs = [...this.part.graphs.entries()].filter(([, graph]) => graph.phase === phase);
    this.choice.replaceChildren(...graphs.map(([i, graph]) =>
      el("option", { value: i }, `${GRAPH_KINDS[graph.kind]}: ${title(graph)}`)));
    this.phase.select.value = String(phase);
    return graphs.length > 0;
  }

  usePhase(phase) {
    if (this.fillChoice(phase)) this.chosen();
  }

  build() {
    this.choice = el("select", { id: "flame-graph", on: { change: () => this.chosen() } });
    this.fold = el("input", { type: "checkbox", id: "flame-fold", on: { change: () => this.chosen() } });
    this.query = el("input", {
      type: "search", id: "flame-search", autocomplete: "off", spellcheck: "false",
      placeholder: "part of a name", on: { input: debounced(() => this.search(), 80) },
    });
    this.matches = el("output", { for: "flame-search", class: "minor" });
    this.resetButton = el("button", { type: "button", on: { click: () => this.zoom(0) } }, "Reset zoom");
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.inside = el("div", { class: "flame-inside" }, this.canvas);
    this.box = el("div", {
      class: "flame", tabindex: "0", role: "application", "aria-label": "Flame graph",
      "aria-roledescription": "flame graph", "aria-describedby": "flame-help flame-detail",
    }, this.inside);
    this.leftOut = el("p", { class: "minor", hidden: true });
    this.detail = el("p", { class: "detail", id: "flame-detail", "aria-live": "polite" });
    this.tableButton = el("button", {
      type: "button", on: { click: () => this.toFunction() },
    }, "Show in the function table");
    this.node = el("div", { class: "part" },
      el("div", { class: "controls" },
        this.phase.nodes, el("label", { for: "flame-graph" }, "Graph"), this.choice,
        el("label", { for: "flame-fold", class: "check" }, this.fold, "Fold library frames"),
        el("label", { for: "flame-search" }, "Search"), this.query, this.matches,
        this.resetButton),
      this.box,
      el("div", { class: "details" }, this.detail, this.tableButton),
      this.leftOut, el("p", { class: "minor", id: "flame-help" }, FLAME_HELP));
    this.listen();
  }

  listen() {
    const at = (event) => this.view.rowAt(event.offsetX, event.offsetY);
    this.canvas.addEventListener("mousemove", (event) => this.hover(at(event)));
    this.canvas.addEventListener("mouseleave", () => this.hover(-1));
    this.canvas.addEventListener("click", (event) => this.pick(at(event)));
    this.box.addEventListener("scroll", () => this.view.draw(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.key(event));
    addEventListener("resize", debounced(() => this.view.layout(), 60));
    onTheme(() => {
      this.view.readColours();
      this.view.layout();
    });
  }

  /** Draw the first time; the element has a size from now on. */
  start() {
    this.view = new FlameView(this.box, this.canvas, this.inside, this.frames[0]);
    this.chosen();
  }

  chosen() {
    const i = Number(this.choice.value);
    const frames = this.frames[this.part.graphs[i].phase];
    const name = `${i} ${this.fold.checked}`;
    if (!this.trees.has(name)) {
      const graph = this.part.graphs[i];
      const isLibrary = (frame) => frames.isLibrary(frame);
      this.trees.set(name, new FlameTree(this.fold.checked ? foldedGraph(graph, isLibrary) : graph));
    }
    this.tree = this.trees.get(name);
    this.view.frames = frames;
    this.view.setTree(this.tree);
    const few = this.part.graphs[i].left_out;
    this.leftOut.hidden = !few;
    this.leftOut.textContent = `${formatCount(few)} small contexts are drawn together with their neighbours.`;
    this.resetButton.disabled = true;
    this.search();
    this.describe(0);
  }

  search() {
    const wanted = this.query.value.trim().toLowerCase();
    this.view.found = null;
    this.matches.textContent = "";
    if (wanted) {
      const { found, count, share } = this.tree.search(this.view.frames.containing(wanted));
      this.view.found = found;
      this.matches.textContent = `${formatShare(share)} % of the time in ${formatCount(count)} contexts`;
    }
    this.view.draw();
  }

  zoom(row) {
    this.view.zoom(row);
    this.resetButton.disabled = row === 0;
    this.describe(row);
  }

  pick(row) {
    if (row < 0) return;
    this.view.cursor = row;
    this.zoom(row);
  }

  hover(row) {
    if (row === this.view.hover) return;
    this.view.hover = row;
    this.view.draw();
    this.describe(row >= 0 ? row : Math.max(this.view.cursor, 0));
  }

  move(row) {
    if (row < 0) return;
    const { tree, view } = this;
    view.cursor = row;
    const outside = tree.start[row] < view.from || tree.start[row] >= view.from + view.span;
    if (outside || row < view.root && tree.level[row] < tree.level[view.root]) this.zoom(row);
    view.reveal(row);
    view.draw();
    this.describe(row);
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const { tree, view } = this;
    const row = Math.max(view.cursor, 0);
    const actions = {
      ArrowDown: () => this.move(view.cursor < 0 ? 0 : tree.firstChild(row)),
      ArrowUp: () => this.move(tree.parent[row]),
      ArrowRight: () => this.move(tree.sibling(row, 1)),
      ArrowLeft: () => this.move(tree.sibling(row, -1)),
      Enter: () => this.pick(row),
      Backspace: () => this.pick(Math.max(0, tree.parent[view.root])),
      Escape: () => this.pick(0),
      f: () => this.toFunction(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  describe(row) {
    const { tree } = this;
    const { frames } = this.view;
    const frame = tree.graph.frame[row];
    const ms = (ns) => formatMs(ns / 1e6);
    const share = tree.total[0] ? tree.total[row] / tree.total[0] : 0;
    const facts = [
      `${ms(tree.total[row])} ms (${formatShare(share)} %)`,
      `${ms(tree.graph.weight[row])} ms itself`,
    ];
    const calls = tree.graph.calls ? tree.graph.calls[row] : 0;
    if (calls && frame) facts.push(`${formatCount(calls)} calls`);
    if (calls && !frame) facts.push(`${formatCount(calls)} of them`);
    if (frames.place(frame)) facts.push(frames.place(frame));
    this.detail.replaceChildren(el("strong", {}, frames.name(frame)), `: ${facts.join(", ")}`);
    this.function = -1 - frame;
    this.tableButton.disabled = this.function < 0;
  }

  toFunction() {
    if (this.function >= 0) this.showFunction(this.function);
  }
}
