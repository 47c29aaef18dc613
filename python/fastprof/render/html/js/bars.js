// One bar that is divided: shares of a step, with a legend that is also the table.

/** A bar part: {title, rows: [key, name, ms, per cent, places], missing}. */
function barPart(part) {
  const bar = el("div", { class: "bar", "aria-hidden": "true" });
  const list = el("ul", { class: "legend" });
  const numbers = seriesNumbers(part.rows.map(([key]) => key));
  part.rows.forEach(([, name, ms, share, places], i) => {
    const piece = el("span", { class: `piece series-${numbers[i]}` });
    piece.style.flexGrow = String(Math.max(0, parseFloat(share) || 0));
    piece.title = `${name}: ${share} %`;
    bar.append(piece);
    const text = [
      el("span", { class: `swatch series-${numbers[i]}` }),
      el("span", { class: "what" }, name),
      el("span", { class: "figure" }, `${share} %`),
      el("span", { class: "figure minor" }, `${ms} ms per step`),
    ];
    list.append(el("li", {}, places.length ? placesOf(text, places) : text));
  });
  const missing = part.missing.map((text) => el("li", {}, `Not known: ${text}`));
  const known = missing.length ? el("ul", { class: "minor" }, missing) : null;
  return el("figure", { class: "part" }, el("figcaption", {}, part.title), bar, list, known);
}

/** Where most of it was spent, opened on demand. */
function placesOf(text, places) {
  const rows = places.map(([where, ms]) =>
    el("li", {}, el("span", { class: "what" }, where), el("span", { class: "figure" }, `${ms} ms`)));
  return el("details", {}, el("summary", {}, text), el("ol", { class: "places" }, rows));
}
