// Draws a FlameTree: the root at the top, what it calls below, as wide as its time.

const LEVEL_HEIGHT = 20;
const LEAST_WIDTH = 0.4; // pixels; narrower contexts of a level are drawn together
const LABEL_WIDTH = 28;
const KINDS = ["root", "section", "python", "c", "type", "kernel", "place", "truncated", "small"];

/** A number that only depends on the text. */
function textHash(text) {
  let hash = 0;
  for (let i = 0; i < text.length; i += 1) hash = (hash * 31 + text.charCodeAt(i)) | 0;
  return hash >>> 0;
}

class FlameView {
  constructor(box, canvas, inside, frames) {
    Object.assign(this, { box, canvas, inside, frames });
    this.context = canvas.getContext("2d");
    this.tree = null;
    this.root = 0;
    this.cursor = -1;
    this.hover = -1;
    this.found = null;
    this.readColours();
  }

  readColours() {
    this.colours = new Map(KINDS.map((kind) =>
      [kind, [0, 1, 2].map((i) => colour(`flame-${kind}-${i}`) || colour(`flame-${kind}`))]));
    this.text = colour("flame-text");
    this.faint = colour("flame-faint");
    this.match = colour("flame-match");
    this.border = colour("surface");
    this.focus = colour("text");
    this.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  }

  setTree(tree) {
    this.tree = tree;
    this.found = null;
    this.cursor = -1;
    this.hover = -1;
    this.zoom(0);
  }

  /** Make `row` as wide as the view; what is around it stays above, as wide. */
  zoom(row) {
    this.root = row;
    this.from = this.tree.start[row];
    this.span = this.tree.total[row] || 1;
    this.box.scrollTop = 0;
    this.layout();
  }

  layout() {
    // As high as the whole graph at most, so that a zoom moves nothing below.
    this.box.style.height = `${this.tree.levels.length * LEVEL_HEIGHT + 2}px`;
    this.width = this.inside.clientWidth;
    const least = (this.span * LEAST_WIDTH) / Math.max(1, this.width);
    this.depth = this.tree.depthOf(this.root, least) + 1;
    this.inside.style.height = `${this.depth * LEVEL_HEIGHT}px`;
    this.height = this.box.clientHeight;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.draw();
  }

  x(at) {
    return ((at - this.from) / this.span) * this.width;
  }

  draw() {
    const { context: c, tree } = this;
    c.clearRect(0, 0, this.width, this.height);
    c.font = this.font;
    c.textBaseline = "middle";
    const top = Math.floor(this.box.scrollTop / LEVEL_HEIGHT);
    const last = Math.min(this.depth, tree.levels.length, top + Math.ceil(this.height / LEVEL_HEIGHT) + 1);
    for (let level = top; level < last; level += 1) this.drawLevel(level);
  }

  drawLevel(level) {
    const { tree } = this;
    const rows = tree.levels[level];
    const y = level * LEVEL_HEIGHT - this.box.scrollTop;
    const until = this.from + this.span;
    let drawnTo = 0;
    for (let n = tree.firstBehind(level, this.from); n < rows.length; n += 1) {
      const row = rows[n];
      if (tree.start[row] >= until) break;
      const left = Math.max(0, this.x(tree.start[row]));
      const right = Math.min(this.width, this.x(tree.start[row] + tree.total[row]));
      if (right - drawnTo < LEAST_WIDTH) continue; // below the pixel drawn last
      this.drawRow(row, Math.max(left, drawnTo), y, right);
      drawnTo = right;
    }
  }

  drawRow(row, left, y, right) {
    const { context: c, tree } = this;
    const frame = tree.graph.frame[row];
    const width = right - left;
    const name = this.frames.name(frame);
    const shades = this.colours.get(this.frames.kind(frame)) || this.colours.get("python");
    const matches = this.found === null || this.found[row];
    c.fillStyle = this.found !== null && matches ? this.match : shades[textHash(name) % 3];
    if (!matches) c.globalAlpha = 0.35;
    c.fillRect(left, y, width > 3 ? width - 1 : Math.max(width, LEAST_WIDTH), LEVEL_HEIGHT - 1);
    c.globalAlpha = 1;
    if (row === this.cursor || row === this.hover) {
      c.strokeStyle = this.focus;
      c.lineWidth = row === this.cursor ? 2 : 1;
      c.strokeRect(left + 1, y + 1, Math.max(1, width - 3), LEVEL_HEIGHT - 3);
    }
    if (width < LABEL_WIDTH) return;
    c.fillStyle = matches ? this.text : this.faint;
    c.save();
    c.beginPath();
    c.rect(left, y, width - 5, LEVEL_HEIGHT);
    c.clip();
    c.fillText(name.length > 300 ? name.slice(0, 300) : name, left + 4, y + LEVEL_HEIGHT / 2);
    c.restore();
  }

  /** The row under a place in the view, -1 if there is none. */
  rowAt(x, y) {
    const level = Math.floor((y + this.box.scrollTop) / LEVEL_HEIGHT);
    if (level >= this.depth || x < 0 || x >= this.width) return -1;
    return this.tree.at(level, this.from + (x / this.width) * this.span);
  }

  /** Scroll so that a row can be seen. */
  reveal(row) {
    const y = this.tree.level[row] * LEVEL_HEIGHT;
    if (y < this.box.scrollTop) this.box.scrollTop = y;
    else if (y + LEVEL_HEIGHT > this.box.scrollTop + this.height) {
      this.box.scrollTop = y + LEVEL_HEIGHT - this.height;
    }
  }
}
