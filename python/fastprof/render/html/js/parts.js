// Parts that are neither table nor drawing: findings, notes, pairs.

const SEVERITIES = { critical: "Critical", warning: "Warning", note: "Note" };

function sentences(title, rows) {
  if (!rows.length) return null;
  return el("div", {}, el("h4", {}, title), el("ul", {}, rows.map((text) => el("li", {}, text))));
}

/** A findings part: {rows, answered, missing}, most saving first. */
function findingsPart(part) {
  const found = part.rows.map((row) => {
    const severity = SEVERITIES[row.severity] ? row.severity : "note";
    const share = row.saving_share === NA ? "" : ` (${row.saving_share} %)`;
    const saving = row.saving === NA ? NA : `${row.saving} ms per step${share}`;
    const facts = [["measured", row.value], ["threshold", row.threshold], ["estimated saving", saving]];
    return el("article", { class: `finding ${severity}` },
      el("h3", {}, el("span", { class: "badge" }, SEVERITIES[severity]), " ", row.title),
      el("dl", { class: "facts" }, facts.map(([name, text]) =>
        el("div", {}, el("dt", {}, name), el("dd", {}, text)))),
      sentences("Evidence", row.evidence),
      sentences("What to do", row.fix),
      el("p", { class: "minor" }, `Rule ${row.rule}. Threshold from: ${row.source}`));
  });
  const none = found.length ? null : el("p", {}, `Nothing to change was found; ${part.answered}.`);
  const missing = part.missing.map((text) => el("li", {}, text));
  const unchecked = missing.length
    ? el("details", {}, el("summary", {}, `Not checked for lack of a signal: ${missing.length}`), el("ul", {}, missing))
    : null;
  return el("div", { class: "part findings" }, none, found, unchecked);
}

/** An outliers part: {title, rows: [{title, sentences, tables}]}, opened one by one. */
function outliersPart(part) {
  const steps = part.rows.map((row) => el("details", { class: "outlier" },
    el("summary", {}, row.title, el("ul", {}, row.sentences.map((text) => el("li", {}, text)))),
    el("div", { class: "tables" }, row.tables.map(tablePart))));
  return el("div", { class: "part" }, el("h3", {}, part.title), steps);
}

/** A notes part: {rows}, sentences. */
function notesPart(part) {
  if (!part.rows.length) return null;
  return el("ul", { class: "part notes" }, part.rows.map((text) => el("li", {}, text)));
}

/** A pairs part: {title, rows: [name, value]}. */
function pairsPart(part) {
  return el("div", { class: "part" }, el("h3", {}, part.title),
    el("dl", { class: "pairs" }, part.rows.map(([name, value]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
}
