// A flame graph's contexts: where each is drawn, its time, and which ones a search finds.

class FlameTree {
  /** `graph` has the columns `up`, `frame`, `weight`, `calls` (or null); see flames.py. */
  constructor(graph) {
    const n = graph.up.length;
    this.graph = graph;
    this.size = n;
    this.parent = new Int32Array(n);
    this.level = new Int32Array(n);
    this.total = new Float64Array(n);
    this.start = new Float64Array(n);
    this.end = new Int32Array(n); // the row behind the last one inside
    this.measure();
    this.place();
  }

  measure() {
    const { up, weight } = this.graph;
    this.parent[0] = -1;
    for (let i = 1; i < this.size; i += 1) {
      this.parent[i] = i - up[i];
      this.level[i] = this.level[this.parent[i]] + 1;
    }
    for (let i = this.size - 1; i >= 0; i -= 1) {
      this.total[i] += weight[i];
      if (this.end[i] === 0) this.end[i] = i + 1;
      if (i > 0) {
        this.total[this.parent[i]] += this.total[i];
        this.end[this.parent[i]] = Math.max(this.end[this.parent[i]], this.end[i]);
      }
    }
  }

  /** Children stand side by side from the left; what is left over is the context's own. */
  place() {
    const next = new Float64Array(this.size);
    const counts = [];
    for (let i = 0; i < this.size; i += 1) {
      const above = this.parent[i];
      if (above >= 0) {
        this.start[i] = next[above];
        next[above] += this.total[i];
      }
      next[i] = this.start[i];
      counts[this.level[i]] = (counts[this.level[i]] || 0) + 1;
    }
    // Per level its rows; they come from left to right.
    this.levels = counts.map((count) => new Int32Array(count));
    const filled = counts.map(() => 0);
    for (let i = 0; i < this.size; i += 1) {
      this.levels[this.level[i]][filled[this.level[i]]] = i;
      filled[this.level[i]] += 1;
    }
  }

  /** The number of the first row of a level that ends behind `at`. */
  firstBehind(level, at) {
    const rows = this.levels[level];
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start[rows[middle]] + this.total[rows[middle]] > at) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The row at a level and a place, -1 if there is none. */
  at(level, where) {
    const rows = this.levels[level];
    if (!rows) return -1;
    const n = this.firstBehind(level, where);
    return n < rows.length && this.start[rows[n]] <= where ? rows[n] : -1;
  }

  /** The deepest level whose contexts inside `row` are at least `least` wide. */
  depthOf(row, least) {
    let depth = this.level[row];
    for (let i = row; i < this.end[row]; i += 1) {
      if (this.total[i] >= least && this.level[i] > depth) depth = this.level[i];
    }
    return depth;
  }

  firstChild(row) {
    return row + 1 < this.end[row] ? row + 1 : -1;
  }

  sibling(row, step) {
    const above = this.parent[row];
    if (above < 0) return -1;
    if (step > 0) return this.end[row] < this.end[above] ? this.end[row] : -1;
    let before = -1;
    for (let i = above + 1; i < row; i = this.end[i]) before = i;
    return before;
  }

  /** Mark rows whose frame is in `frames`; their time is counted once where they nest. */
  search(frames) {
    const found = new Uint8Array(this.size);
    let count = 0;
    let time = 0;
    let behind = 0;
    for (let i = 0; i < this.size; i += 1) {
      if (!frames.has(this.graph.frame[i])) continue;
      found[i] = 1;
      count += 1;
      if (i >= behind) {
        time += this.total[i];
        behind = this.end[i];
      }
    }
    return { found, count, share: this.total[0] ? time / this.total[0] : 0 };
  }
}
