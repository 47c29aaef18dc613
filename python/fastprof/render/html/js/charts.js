// What a chart says of the place that is pointed at, and zoom: the picture itself is there.

const TICKS = 6;
const CHART_HELP = " Drag to zoom, double-click to reset.";

/** Round numbers from `low` to `high`, `least` or more apart, as texts, and where they stand in
 * parts of the axis. */
function ticks(low, high, least) {
  const rough = (high - low) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(least, [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999));
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  const found = [];
  for (let n = Math.ceil(low / step); n <= Math.floor(high / step); n += 1) {
    found.push([(n * step).toLocaleString("en-US", digits), (n * step - low) / (high - low)]);
  }
  return found;
}

class Chart {
  /** A figure in the page: its picture, and {places, readings, low, high} as JSON. */
  constructor(figure) {
    Object.assign(this, JSON.parse(figure.querySelector("script").textContent));
    this.plot = figure.querySelector(".plot");
    this.box = figure.querySelector(".shapes");
    this.picture = figure.querySelector("svg");
    this.readout = figure.querySelector(".detail");
    this.axis = figure.querySelector(".axis-x");
    this.marks = [...figure.querySelectorAll(".mark-label")];
    this.zoomable = this.places.length > 2;
    // Steps are whole numbers; the bars of a histogram are as wide as it takes.
    const bars = figure.classList.contains("bars");
    this.unit = bars ? this.places[1] - this.places[0] : 1;
    this.least = bars ? 0 : 1;
    this.view = [this.low, this.high];
    this.at = -1;
    this.cursor = el("span", { class: "cursor", hidden: true });
    this.brush = el("span", { class: "brush", hidden: true });
    this.box.append(this.cursor, this.brush);
    this.listen();
  }

  listen() {
    const { box, plot } = this;
    plot.tabIndex = 0;
    plot.setAttribute("role", "application");
    this.readout.setAttribute("aria-live", "polite");
    if (this.zoomable && !matchMedia("(pointer: coarse)").matches) this.readout.append(CHART_HELP);
    box.addEventListener("pointermove", (event) => this.move(event));
    box.addEventListener("pointerdown", (event) => this.press(event));
    box.addEventListener("pointerup", (event) => this.release(event));
    box.addEventListener("pointercancel", () => this.drop());
    box.addEventListener("dblclick", () => this.zoom(this.low, this.high));
    plot.addEventListener("keydown", (event) => this.key(event));
  }

  /** The place under a pointer, as a number of the axis. */
  placeOf(event) {
    const { left, width } = this.box.getBoundingClientRect();
    const [low, high] = this.view;
    return low + (high - low) * Math.min(1, Math.max(0, (event.clientX - left) / width));
  }

  percent(place) {
    const [low, high] = this.view;
    return `${100 * (place - low) / (high - low)}%`;
  }

  /** Say what is at the place with number `i`. */
  point(i) {
    this.at = i;
    this.readout.textContent = this.readings[i];
    this.cursor.hidden = false;
    this.cursor.style.left = this.percent(this.places[i]);
  }

  move(event) {
    const place = this.placeOf(event);
    let [low, high] = [0, this.places.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.places[middle] <= place) low = middle; else high = middle;
    }
    this.point(place - this.places[low] <= this.places[high] - place ? low : high);
    if (this.from === undefined) return;
    this.brush.hidden = false;
    this.brush.style.left = this.percent(Math.min(place, this.from));
    this.brush.style.right = `${100 - parseFloat(this.percent(Math.max(place, this.from)))}%`;
  }

  press(event) {
    if (!this.zoomable || event.pointerType === "touch" || event.button) return;
    this.from = this.placeOf(event);
    this.box.setPointerCapture(event.pointerId);
  }

  release(event) {
    if (this.from === undefined) return;
    const [low, high] = [this.from, this.placeOf(event)].sort((a, b) => a - b);
    const wide = 100 * (high - low) > this.view[1] - this.view[0];
    this.drop();
    if (wide) this.zoom(low, high);
  }

  drop() {
    this.from = undefined;
    this.brush.hidden = true;
  }

  /** Show the places from `low` to `high`, two of them at least. */
  zoom(low, high) {
    const middle = (low + high) / 2;
    this.view = high - low < 2 * this.unit
      ? [Math.max(this.low, middle - this.unit), Math.min(this.high, middle + this.unit)]
      : [low, high];
    const [from, to] = this.view;
    const [, , , height] = this.picture.getAttribute("viewBox").split(" ");
    this.picture.setAttribute("viewBox", `${from - this.low} 0 ${to - from} ${height}`);
    this.axis.replaceChildren(...ticks(from, to, this.least).map(([text, at]) => {
      const tick = el("span", { class: "tick" }, text);
      tick.style.left = `${100 * at}%`;
      return tick;
    }));
    if (this.at >= 0) this.cursor.style.left = this.percent(this.places[this.at]);
    for (const mark of this.marks) {
      const share = (Number(mark.dataset.place) - from) / (to - from);
      mark.hidden = share < 0 || share > 1;
      mark.style.left = share > 0.5 ? "auto" : `${100 * share}%`;
      mark.style.right = share > 0.5 ? `${100 - 100 * share}%` : "auto";
    }
  }

  key(event) {
    const [low, high] = this.view;
    const go = (by) => this.point(Math.min(this.places.length - 1, Math.max(0, this.at + by)));
    const around = () => {
      const at = this.places[Math.max(0, this.at)];
      const half = (high - low) / 8;
      this.zoom(Math.max(this.low, at - half), Math.min(this.high, at + half));
    };
    const actions = {
      ArrowRight: () => go(1),
      ArrowLeft: () => go(-1),
      Enter: () => this.zoomable && around(),
      Escape: () => this.zoom(this.low, this.high),
    };
    if (!actions[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
  }
}
