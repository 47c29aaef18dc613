// One bar that is divided: shares of a step, with a legend that is also the table.

/** A bar part: {title, rows: [name, ms, per cent, places]}. */
function barPart(part) {
  const bar = el("div", { class: "bar", "aria-hidden": "true" });
  const list = el("ul", { class: "legend" });
  part.rows.forEach(([name, ms, share, places], i) => {
    const number = seriesNumber(name, i);
    const piece = el("span", { class: `piece series-${number}` });
    piece.style.flexGrow = String(Math.max(0, parseFloat(share) || 0));
    piece.title = `${name}: ${share} %`;
    bar.append(piece);
    const text = [
      el("span", { class: `swatch series-${number}` }),
      el("span", { class: "what" }, name),
      el("span", { class: "figure" }, `${share} %`),
      el("span", { class: "figure minor" }, `${ms} ms per step`),
    ];
    list.append(el("li", {}, places.length ? placesOf(text, places) : text));
  });
  return el("figure", { class: "part" }, el("figcaption", {}, part.title), bar, list);
}

/** Where most of it was spent, opened on demand. */
function placesOf(text, places) {
  const rows = places.map(([where, ms]) =>
    el("li", {}, el("span", { class: "what" }, where), el("span", { class: "figure" }, `${ms} ms`)));
  return el("details", {}, el("summary", {}, text), el("ol", { class: "places" }, rows));
}
