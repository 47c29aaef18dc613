// The parts of a report that are drawn here: flame graph and functions.

class Page {
  constructor({ phases, strings, flame, functions }) {
    const usePhase = (i) => this.usePhase(i);
    const none = { name: [], kind: [], file: [], line: [], users: [] };
    if (functions) {
      this.functions = new FunctionTable(functions, phases, strings, usePhase);
      document.getElementById("functions").append(this.functions.node);
    }
    if (flame) {
      const tables = functions ? functions.phases : phases.map(() => none);
      const show = (i) => this.functions.choose(i, true);
      this.flame = new Flame(flame, tables, phases, strings, show, usePhase);
      document.getElementById("flame").append(this.flame.node);
    }
    // Elements have a size from now on.
    if (this.flame) this.flame.start();
    if (this.functions) this.functions.draw();
  }

  /** Show the graphs and the functions of another phase of the run. */
  usePhase(i) {
    if (this.flame) this.flame.usePhase(i);
    if (this.functions) this.functions.usePhase(i);
  }
}

function startPage() {
  return new Page(JSON.parse(document.getElementById("data").textContent));
}
