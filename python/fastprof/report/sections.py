"""The rows of sections, with fastprof's cost subtracted."""

from collections.abc import Mapping, Sequence

from fastprof.report.correct import Correction
from fastprof.report.flat import TRANSPARENT, Row, flatten_few, merged, node_groups
from fastprof.report.gpu import use_of
from fastprof.report.gpu_tree import Use
from fastprof.report.in_run import own_costs
from fastprof.report.model_gpu import GpuUse
from fastprof.report.rows import SectionRow
from fastprof.report.stats import QUANTILES, histogram_quantiles, merge_histograms
from fastprof.report.step_costs import costs_by_node
from fastprof.report.threads import training_thread
from fastprof.report.tree import top_sections
from fastprof.snapshot import SectionStats, Snapshot


def row_groups(snapshot: Snapshot) -> list[int]:
    """Return the number of each key's row in the sections table: the first key with the name."""
    first = _first_keys(snapshot)
    return [
        first.get(key.name, TRANSPARENT) if key.kind == "section" else TRANSPARENT
        for key in snapshot.keys
    ]


def _first_keys(snapshot: Snapshot) -> dict[str, int]:
    first: dict[str, int] = {}
    for stats in sorted(snapshot.sections, key=lambda s: s.key):  # order of first use
        first.setdefault(snapshot.keys[stats.key].name, stats.key)
    return first


def section_rows(
    whole: Snapshot,
    snapshot: Snapshot,
    correction: Correction,
    groups: Sequence[int],
    gpu: Mapping[int, Use] | None,
    *,
    span_ns: int,
    in_steps: Mapping[str, int] | None = None,
) -> tuple[SectionRow, ...]:
    """Return the sections of ``snapshot``, the shown part of ``whole``; it took ``span_ns``.

    ``in_steps``: the times in ns of the parts of steps, if ``snapshot`` has little else.
    """
    first = _first_keys(snapshot)
    if not first:
        return ()
    parts: dict[str, list[SectionStats]] = {name: [] for name in first}
    for stats in snapshot.sections:
        parts[snapshot.keys[stats.key].name].append(stats)
    columns = _columns(whole, snapshot, correction)
    tree = merged(
        flatten_few(thread.nodes, node_groups(thread.nodes, groups), column)
        for thread, column in zip(snapshot.threads, columns, strict=True)
    )
    nested = _nested(snapshot) if in_steps else frozenset()
    return tuple(
        _section_row(
            name,
            stats,
            tree.rows.get(first[name]),
            span_ns,
            use_of(gpu, first[name]),
            None if name in nested else (in_steps or {}).get(name),
        )
        for name, stats in parts.items()
    )


def _nested(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of sections that ran inside another one, or in other threads."""
    keys, training = snapshot.keys, training_thread(snapshot)
    names: set[str] = set()
    for number, thread in enumerate(snapshot.threads):
        nodes = thread.nodes
        tops = top_sections(nodes, keys)
        names.update(
            keys[key].name
            for key, parent in zip(nodes.key, nodes.parent, strict=True)
            if keys[key].kind == "section" and (number != training or tops[parent] >= 0)
        )
    return frozenset(names)


def _columns(whole: Snapshot, snapshot: Snapshot, correction: Correction) -> list[tuple[int, ...]]:
    """Return the times of each thread's nodes without fastprof's cost, as in the table of steps."""
    columns = [*correction.self_ns]
    if correction.applied and columns:
        own = own_costs(whole)
        own_ns = own.timed or 0.0
        if snapshot is not whole:
            own_ns = own.timed_in_step * whole.steps.measured
        number = training_thread(snapshot)
        nodes = snapshot.threads[number].nodes
        costs, _ = costs_by_node(snapshot, own_ns)
        columns[number] = tuple(
            [round(ns - cost) for ns, cost in zip(nodes.self_ns, costs, strict=True)]
        )
    return columns


def _section_row(
    name: str,
    parts: Sequence[SectionStats],
    in_tree: Row | None,
    wall_ns: int,
    gpu: GpuUse | None,
    in_steps: int | None,
) -> SectionRow:
    count = sum(p.count for p in parts)
    errors = sum(p.errors for p in parts)
    still_open = sum(p.open for p in parts)
    used = [p for p in parts if p.count]
    if not used:
        nothing = (None,) * 9
        return SectionRow(
            name, 0, *nothing, errors=errors, open=still_open, raw_total_ms=None, gpu=gpu
        )
    # Of all parts: the time of an entry that found no batch counts, the entry does not.
    outer_ns = sum(p.outer_ns for p in parts)
    hook_ns = 0.0
    if in_tree and in_tree.raw_cum_ns:
        hook_ns = in_tree.raw_cum_ns - in_tree.cum_ns
        # The tree also has the time of entries that are still open; leave out their part of the
        # hook's cost.
        hook_ns *= min(1.0, outer_ns / in_tree.raw_cum_ns)
    total_ns = max(0, round(outer_ns - hook_ns))
    # Correct single entries in proportion: which entry paid how much is unknown.
    ratio = total_ns / outer_ns if outer_ns else 1.0
    # The rest is in no completed step.
    total_ns = total_ns if in_steps is None else in_steps
    low, high = min(p.min_ns for p in used), max(p.max_ns for p in used)
    quantiles = histogram_quantiles(
        merge_histograms(p.hist for p in used), QUANTILES, low=low, high=high
    )
    p50, p95, p99 = (None if q is None else q * ratio / 1e6 for q in quantiles)
    return SectionRow(
        name=name,
        count=count,
        total_ms=total_ns / 1e6,
        self_ms=min(in_tree.self_ns, total_ns) / 1e6 if in_tree else None,
        mean_ms=sum(p.sum_ns for p in used) / count * ratio / 1e6,
        min_ms=low * ratio / 1e6,
        max_ms=high * ratio / 1e6,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        share=total_ns / wall_ns if wall_ns > 0 else None,
        errors=errors,
        open=still_open,
        raw_total_ms=outer_ns / 1e6,
        gpu=gpu,
    )
