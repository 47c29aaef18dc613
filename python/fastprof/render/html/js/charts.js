// Charts by plotly.js, which is unpacked when the rest of the page stands.  It gets numbers
// and our own words only: it would read markup in names.

const NO_LIBRARY = "Charts are left out: plotly was not installed where this report was written "
  + "(pip install 'fastprof[html]', then save it again).";
const NO_UNPACKING = "Charts are left out: this browser cannot unpack them. A newer one can.";
const CHART_HEIGHT = 300;
const MARGIN = { l: 56, r: 12, t: 8, b: 44 };

/** Promise of the library, or of a sentence that says why there is none. */
async function loadLibrary() {
  const packed = document.getElementById("library").textContent;
  if (!packed) return NO_LIBRARY;
  if (typeof DecompressionStream === "undefined") return NO_UNPACKING;
  const binary = atob(packed);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  // The page's policy knows this text by its hash, so no other can be put here.
  const script = el("script", {}, await new Response(unpacked).text());
  document.head.append(script);
  return window.Plotly || NO_UNPACKING;
}

/** Whether a drag scrolls the page. */
function touches() {
  return matchMedia("(pointer: coarse)").matches;
}

function chartLayout(more) {
  const grid = { gridcolor: colour("line"), linecolor: colour("line"), zeroline: false };
  const layout = {
    height: CHART_HEIGHT,
    margin: MARGIN,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("text"), size: 12, family: getComputedStyle(document.body).fontFamily },
    showlegend: false,
    hovermode: "x",
    dragmode: touches() ? false : "zoom",
    ...more,
  };
  layout.xaxis = { ...grid, ...more.xaxis };
  layout.yaxis = { ...grid, rangemode: "tozero", ...more.yaxis };
  return layout;
}

const CHART_CONFIG = { displayModeBar: false, responsive: true };

/** A place for a chart; `draw()` gives [traces, layout], `hover(n)` a text for a point. */
class Chart {
  constructor(title, label, draw, hover) {
    this.draw = draw;
    this.hover = hover;
    this.box = el("div", { class: "chart", role: "img", "aria-label": label });
    this.readout = el("p", { class: "detail" }, label);
    this.node = el("figure", {}, el("figcaption", {}, title), this.box, this.readout);
  }

  start(library) {
    const show = () => library.react(this.box, ...this.draw(), CHART_CONFIG);
    show();
    onTheme(show);
    if (!this.hover) return;
    this.box.on("plotly_hover", (event) => {
      this.readout.textContent = this.hover(event.points[0].pointIndex);
    });
  }
}

function legend(names) {
  const numbers = seriesNumbers(names);
  return el("ul", { class: "legend" }, names.map((name, i) => el("li", {},
    el("span", { class: `swatch series-${numbers[i]}` }),
    el("span", { class: "what" }, name))));
}

/** Number of the step in row `i`; where some steps were left out, they are listed. */
function stepNumber(part, i) {
  return part.number ? part.number[i] : part.first + i;
}

/**
 * A steps part: {first, wall, sections: [{name, ms}], extra, median, p95}, in ms.  `clipped`
 * steps took longer than `top`, where the charts end; the longest took `largest`.
 */
function stepsPart(part, charts) {
  const steps = part.wall.map((_, i) => stepNumber(part, i));
  const label = `${formatCount(steps.length)} steps from ${formatCount(part.first)} on: `
    + `median ${formatMs(part.median)} ms, p95 ${formatMs(part.p95)} ms`;
  const cut = part.top === null ? null : el("p", { class: "minor clipped" }, clippedText(part));
  const zoom = touches() ? "" : ". Drag to zoom, double-click to reset";
  const timeline = new Chart("Step by step", `${label}${zoom}.`,
    () => timelineChart(part, steps), (i) => stepText(part, i));
  const histogram = new Chart("How long steps took", label, () => histogramChart(part));
  charts.push(timeline, histogram);
  const names = part.sections.map((section) => section.name);
  return el("div", { class: "part charts" },
    el("div", {}, timeline.node, names.length ? legend(names) : null),
    histogram.node,
    cut);
}

function clippedText({ clipped, top, largest }) {
  const steps = clipped === 1 ? "1 step" : `${formatCount(clipped)} steps`;
  return `${steps} above ${formatMs(top)} ms ${clipped === 1 ? "is" : "are"} clipped in these charts `
    + `(marked by a triangle); the longest took ${formatMs(largest)} ms.`;
}

function stepText(part, i) {
  const parts = part.sections.filter(({ ms }) => ms[i] > 0)
    .map(({ name, ms }) => `${name} ${formatMs(ms[i])}`);
  const inside = parts.length ? `: ${parts.join(", ")}` : "";
  const extra = part.extra.filter(([, column]) => column[i] > 0).map(([name, column, unit]) =>
    `; ${name} ${unit ? formatMs(column[i]) : formatCount(column[i])}${unit}`);
  return `Step ${formatCount(stepNumber(part, i))}, ${formatMs(part.wall[i])} ms${inside}${extra.join("")}`;
}

function timelineChart(part, steps) {
  const line = (y, more) => ({ x: steps, y, type: "scatter", mode: "lines", hoverinfo: "none", ...more });
  const numbers = seriesNumbers(part.sections.map(({ name }) => name));
  const traces = part.sections.map(({ ms }, i) => {
    const fill = seriesColour(numbers[i]);
    return line(ms, { stackgroup: "step", line: { width: 0, color: fill }, fillcolor: fill });
  });
  if (!traces.length) traces.push(line(part.wall, { line: { width: 1.5, color: seriesColour(0) } }));
  const xaxis = { title: { text: "step" }, tickformat: "d" };
  const yaxis = { title: { text: "ms" } };
  if (part.top !== null) {
    const above = steps.filter((_, i) => part.wall[i] > part.top);
    yaxis.range = [0, 1.04 * part.top];
    traces.push({
      x: above, y: above.map(() => part.top), type: "scatter", mode: "markers", hoverinfo: "skip",
      marker: { symbol: "triangle-up", size: 9, color: colour("text") },
    });
  }
  return [traces, chartLayout({ xaxis, yaxis })];
}

function histogramChart(part) {
  const shown = part.top === null ? part.wall : part.wall.filter((ms) => ms <= part.top);
  const bars = {
    x: shown, type: "histogram", nbinsx: 50, hoverinfo: "x+y",
    marker: { color: seriesColour(0), line: { width: 1, color: colour("surface") } },
  };
  const marks = [["p50", part.median], ["p95", part.p95]].filter(([, value]) =>
    value !== null && (part.top === null || value <= part.top));
  const low = shown.reduce((a, b) => Math.min(a, b), Infinity);
  const high = shown.reduce((a, b) => Math.max(a, b), -Infinity);
  const shapes = marks.map(([, value]) => ({
    type: "line", x0: value, x1: value, yref: "paper", y0: 0, y1: 1,
    line: { color: colour("text"), width: 1, dash: "dot" },
  }));
  // Above the bars, each in a line of its own, towards the middle: none hides another.
  const annotations = marks.map(([text, value], i) => ({
    text: `${text} ${formatMs(value)}`, x: value, yref: "paper", y: 1, yanchor: "bottom",
    yshift: 15 * (1 - i), xanchor: value > (low + high) / 2 ? "right" : "left", showarrow: false,
  }));
  const xaxis = { title: { text: "ms per step" } };
  return [[bars], chartLayout({ xaxis, yaxis: { title: { text: "steps" } }, shapes, annotations, hovermode: "closest", margin: { ...MARGIN, t: 36 } })];
}

const MEMORY_LINES = [["allocated", "allocated"], ["reserved", "reserved"], ["peak", "peak reserved"]];

/** A memory part: columns step, allocated, reserved, peak, in MiB. */
function memoryPart(part, charts) {
  const n = part.step.length;
  const label = `MiB of GPU memory at the end of ${formatCount(n)} steps`;
  const draw = () => [
    MEMORY_LINES.map(([column], i) => ({
      x: part.step, y: part[column], type: "scatter", mode: n > 1 ? "lines" : "markers",
      hoverinfo: "none", line: { color: seriesColour(i), width: 1.5 },
    })),
    chartLayout({ xaxis: { title: { text: "step" } }, yaxis: { title: { text: "MiB" } } }),
  ];
  const text = (i) => `Step ${formatCount(part.step[i])}: `
    + MEMORY_LINES.map(([column, name]) => `${name} ${formatMs(part[column][i])} MiB`).join(", ");
  const chart = new Chart("GPU memory, step by step", label, draw, text);
  charts.push(chart);
  return el("div", { class: "part" }, chart.node, legend(MEMORY_LINES.map(([, name]) => name)));
}

/** Draw all charts, or say in their places why there are none. */
async function startCharts(charts) {
  if (!charts.length) return;
  const library = await loadLibrary().catch(() => NO_UNPACKING);
  if (typeof library === "string") {
    const parts = new Set(charts.map((chart) => chart.node.closest(".part")));
    for (const part of parts) part.replaceChildren(el("p", { class: "minor" }, library));
    return;
  }
  for (const chart of charts) chart.start(library);
}
