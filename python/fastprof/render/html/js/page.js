// Reads the data and builds the page.

const PARTS = {
  bar: barPart,
  findings: findingsPart,
  notes: notesPart,
  outliers: outliersPart,
  pairs: pairsPart,
  table: tablePart,
};

class Page {
  constructor(data) {
    this.data = data;
    this.charts = [];
    this.functions = null;
    this.flame = null;
  }

  build() {
    const { summary, tiles, chapters } = this.data;
    document.getElementById("summary").textContent = summary.join(" ");
    document.getElementById("tiles").append(...tiles.map(([name, value, remark]) =>
      el("div", {}, el("dt", {}, name),
        el("dd", { class: value === NA ? "na" : null }, value), el("dd", { class: "minor" }, remark))));
    document.getElementById("chapters").append(...chapters.map(({ id, title }) =>
      el("a", { href: `#${id}` }, title)));
    document.getElementById("content").append(...chapters.map((chapter) => this.chapter(chapter)));
    if (this.flame) this.flame.start();
    if (this.functions) this.functions.draw();
  }

  chapter({ id, title, parts }) {
    return el("section", { id, "aria-labelledby": `${id}-title` },
      el("h2", { id: `${id}-title` }, title), parts.map((part) => this.part(part)));
  }

  part(part) {
    const { strings } = this.data;
    if (part.kind === "steps") return stepsPart(part, this.charts);
    if (part.kind === "memory") return memoryPart(part, this.charts);
    if (part.kind === "functions") {
      this.functions = new FunctionTable(part, this.data.phases, strings, (i) => this.usePhase(i));
      return this.functions.node;
    }
    if (part.kind === "flame") {
      const show = (i) => this.functions.choose(i, true);
      this.flame = new Flame(part, this.functionTables(), this.data.phases, strings, show, (i) => this.usePhase(i));
      return this.flame.node;
    }
    return PARTS[part.kind](part);
  }

  /** Show the graphs and the functions of another phase of the run. */
  usePhase(i) {
    if (this.flame) this.flame.usePhase(i);
    if (this.functions) this.functions.usePhase(i);
  }

  /** The functions per phase, which may come later in the page, or not at all. */
  functionTables() {
    const parts = this.data.chapters.flatMap((chapter) => chapter.parts);
    const found = parts.find((part) => part.kind === "functions");
    const none = { name: [], kind: [], file: [], line: [], users: [] };
    return found ? found.phases : this.data.phases.map(() => none);
  }
}

/** Note on the page when it could be used, and when its charts stood (ms since navigation). */
function mark(name) {
  document.documentElement.setAttribute(`data-${name}`, performance.now().toFixed(0));
}

function start() {
  startTheme();
  const page = new Page(JSON.parse(document.getElementById("data").textContent));
  page.build();
  // Two frames later the first one is on the screen.
  requestAnimationFrame(() => requestAnimationFrame(async () => {
    mark("ready");
    await startCharts(page.charts);
    mark("complete");
  }));
}

start();
