// A flame graph without what libraries do inside: their first context keeps the time.

/**
 * Return the graph in which a library's context inside a library's context is part of it.
 * What the program's functions do below stays, inside the library's first context.
 * `isLibrary(frame)` tells which contexts are a library's.
 */
function foldedGraph(graph, isLibrary) {
  const at = new Int32Array(graph.up.length);
  const rows = [];
  const row = (frame) => {
    rows.push({ frame, weight: 0, calls: 0, total: 0, inside: new Map() });
    return rows.length - 1;
  };
  const parents = [];
  graph.up.forEach((up, i) => {
    const frame = graph.frame[i];
    const above = i ? at[i - up] : -1;
    const folded = i && isLibrary(rows[above].frame) && (frame === 0 || isLibrary(frame));
    if (folded) at[i] = above;
    else {
      const known = i ? rows[above].inside.get(frame) : undefined;
      at[i] = known === undefined ? row(frame) : known;
      if (known === undefined) parents.push(above);
      if (i) rows[above].inside.set(frame, at[i]);
      if (graph.calls) rows[at[i]].calls += graph.calls[i];
    }
    rows[at[i]].weight += graph.weight[i];
  });
  for (let i = rows.length - 1; i >= 0; i -= 1) {
    rows[i].total += rows[i].weight;
    if (i) rows[parents[i]].total += rows[i].total;
  }
  return inDrawingOrder(graph, rows);
}

/** The columns of rows, each followed by what is inside it, most time first. */
function inDrawingOrder(graph, rows) {
  const made = { ...graph, up: [], frame: [], weight: [], calls: graph.calls ? [] : null };
  const todo = [[0, -1]];
  while (todo.length) {
    const [i, above] = todo.pop();
    const { frame, weight, calls, inside } = rows[i];
    const here = made.up.length;
    made.up.push(above < 0 ? 0 : here - above);
    made.frame.push(frame);
    made.weight.push(weight);
    if (made.calls) made.calls.push(calls);
    const order = [...inside.values()].sort((a, b) => rows[a].total - rows[b].total);
    for (const child of order) todo.push([child, here]);
  }
  return made;
}
