"""Make a :class:`Report` from a :class:`Snapshot`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fastprof.report.correct import Correction, correct
from fastprof.report.figures import duration, percent_between, plural
from fastprof.report.flat import TRANSPARENT, Row, flatten_few, merged, node_groups
from fastprof.report.functions import (
    function_groups,
    function_rows,
    section_groups,
    section_table,
    thread_tables,
)
from fastprof.report.gpu import GpuTables, gpu_report, measured, use_of
from fastprof.report.gpu_tree import Use
from fastprof.report.in_run import hook_cost, is_uneven, own_costs, unprofiled_step
from fastprof.report.kernels import kernel_rows, launched_below
from fastprof.report.loaders import loader_notes, loader_rows
from fastprof.report.loaders_compared import compared
from fastprof.report.memory import memory_report
from fastprof.report.model import (
    UNACCOUNTED,
    FunctionRow,
    Overhead,
    Report,
    SectionRow,
    StepSection,
    StepTable,
    ThreadTable,
)
from fastprof.report.model_gpu import GpuUse, KernelUse
from fastprof.report.notes import has_functions, make_notes
from fastprof.report.operators import operator_report
from fastprof.report.outliers import find_outliers
from fastprof.report.run_phases import (
    ALL,
    beyond_steps_ns,
    chosen_phase,
    phase_rows,
    steps_in,
    view_of,
)
from fastprof.report.stats import (
    coefficient_of_variation,
    exact_quantiles,
    histogram_quantiles,
    merge_histograms,
)
from fastprof.report.steps import series_view, split_rows
from fastprof.report.user_tree import training_thread
from fastprof.snapshot import SectionStats, Snapshot, Steps
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS

_QUANTILES = (0.50, 0.95, 0.99)

#: From this part of a section's entries on it is said that they were after the last step.
_MANY_BEYOND = 0.05


def build_report(
    snapshot: Snapshot, *, correct_times: bool = True, phase: str | None = None
) -> Report:
    """Compute every table of a recording.

    Args:
        snapshot: what was recorded.
        phase: the phase of the run that sections, functions and kernels are of, one of
            ``snapshot.run_phases.RUN_PHASES``; ``"all"``: the whole run; None: measured steps
            if there are any, else the whole run.
        correct_times: subtract the hook's calibrated cost; False leaves times as
            recorded.  Without calibration, or with an external timer, they always are.

    Raises:
        ValueError: there is no such phase, or nothing was recorded in it.
    """
    whole = snapshot
    of_run = correct(whole, enabled=correct_times)
    phase = chosen_phase(whole, phase)
    snapshot = view_of(whole, phase)
    correction = correct(snapshot, enabled=correct_times)
    gpu_tables = GpuTables(snapshot)
    threads, functions = _functions(snapshot, correction, gpu_tables)
    groups = _section_groups(snapshot)
    section_use = gpu_tables.by_group([node_groups(t.nodes, groups) for t in snapshot.threads])
    gpu = measured(snapshot)
    kernels = () if gpu is None else kernel_rows(gpu)
    steps = _step_table(snapshot)
    # Waits in another phase were in no step.
    counted = steps_in(phase, steps.count, steps.measured) if phase in ("steps", ALL) else 0
    gpu_part = gpu_report(snapshot, gpu_tables, section_use, kernels, counted)
    loaders = loader_rows(snapshot)
    return Report(
        meta=dict(snapshot.meta),
        wall_ms=whole.duration_ns / 1e6,
        sections=_section_rows(snapshot, correction, groups, section_use),
        steps=steps,
        functions=functions,
        threads=threads,
        loaders=loaders,
        overhead=_with_steps(_overhead(whole, of_run), whole, correct_times=correct_times),
        notes=(
            *_beyond_note(snapshot, phase),
            *_sections_beyond_note(snapshot, phase),
            *loader_notes(snapshot, loaders),
            *compared(loaders),
            *make_notes(snapshot, gpu_part),
        ),
        snapshot=whole,
        view=snapshot,
        phase=phase,
        phases=phase_rows(whole, of_run.self_ns),
        gpu=gpu_part,
        kernels=kernels,
        memory=memory_report(snapshot),
        worker_functions=_worker_tables(snapshot, enabled=correct_times),
        operators=operator_report(snapshot.operators),
    )


def _beyond_note(view: Snapshot, phase: str) -> Iterator[str]:
    beyond_ns = beyond_steps_ns(view, phase, training_thread(view))
    if beyond_ns:
        yield (
            f"{duration(beyond_ns / 1e6)} belong to no completed step, such as the time after the "
            f"loop. Functions and sections of measured steps include that time."
        )


def _sections_beyond_note(view: Snapshot, phase: str) -> Iterator[str]:
    """Sections that ran in steps and after the last one have one record for both."""
    number = training_thread(view)
    if phase != RUN_PHASES[STEPS] or number < 0:
        return
    nodes = view.threads[number].nodes
    entered: dict[int, int] = {}
    for key, calls in zip(nodes.key, nodes.calls, strict=True):
        entered[key] = entered.get(key, 0) + calls
    for stats in view.sections:
        beyond = stats.count + stats.open - entered.get(stats.key, 0)
        if stats.thread == number and beyond > max(1.0, _MANY_BEYOND * stats.count):
            yield (
                f"{beyond} of {plural(stats.count, 'entry')} of section "
                f"{view.keys[stats.key].name} were after the last step; its count and its "
                f"percentiles include them."
            )


def functions_of(snapshot: Snapshot, *, correct_times: bool) -> tuple[FunctionRow, ...]:
    """Return the functions of all threads of a snapshot, most self time first."""
    return _functions(snapshot, correct(snapshot, enabled=correct_times), GpuTables(snapshot))[1]


def functions_in(report: Report, section: str) -> tuple[FunctionRow, ...]:
    """Return the functions inside the section recorded as ``section``."""
    snapshot = report.view
    columns = correct(snapshot, enabled=report.overhead.corrected).self_ns
    table = section_table(snapshot, columns, section)
    # Work that another thread did for this section counts for the thread that waited for it.
    gpu = GpuTables(snapshot).by_group(section_groups(snapshot, section), own_path=False)
    return function_rows(snapshot, table, gpu)


def kernels_in(report: Report, section: str) -> tuple[KernelUse, ...]:
    """Return the kernels launched inside the section recorded as ``section``."""
    keys = report.view.keys
    own = {i for i, key in enumerate(keys) if key.kind == "section" and key.name == section}
    return launched_below(report.view, own)


def kernels_of(report: Report, function: FunctionRow) -> tuple[KernelUse, ...]:
    """Return the kernels launched by the functions that read as ``function`` does."""
    wanted = (function.kind, function.file, function.line, function.name, function.qualname)
    own = {
        i
        for i, k in enumerate(report.view.keys)
        if (k.kind, k.file, k.line, k.name, k.qualname) == wanted
    }
    return launched_below(report.view, own)


# ---- functions and threads ----


def _functions(
    snapshot: Snapshot, correction: Correction, gpu: GpuTables
) -> tuple[tuple[ThreadTable, ...], tuple[FunctionRow, ...]]:
    tables = thread_tables(snapshot, correction.self_ns)
    groups = [node_groups(t.nodes, function_groups(snapshot)) for t in snapshot.threads]
    n = len(snapshot.keys)
    # Functions of different threads are different groups here.
    apart = [[g if g < 0 else g + i * n for g in of_thread] for i, of_thread in enumerate(groups)]
    by_thread = gpu.by_group(apart)
    threads = []
    for i, (tree, column, table) in enumerate(
        zip(snapshot.threads, correction.self_ns, tables, strict=True)
    ):
        use = (
            None
            if by_thread is None
            else {g - i * n: u for g, u in by_thread.items() if i * n <= g < (i + 1) * n}
        )
        threads.append(
            ThreadTable(
                ident=tree.ident,
                name=tree.name,
                ended=tree.ended,
                total_ms=sum(column) / 1e6,
                raw_total_ms=sum(tree.nodes.self_ns) / 1e6,
                functions=function_rows(snapshot, table, use),
            )
        )
    if len(threads) == 1:
        return tuple(threads), threads[0].functions
    return tuple(threads), function_rows(snapshot, merged(tables), gpu.by_group(groups))


def _worker_tables(snapshot: Snapshot, *, enabled: bool) -> tuple[ThreadTable, ...]:
    if not snapshot.worker_threads:
        return ()
    apart = replace(snapshot, threads=snapshot.worker_threads, sections=(), gpu=None)
    return _functions(apart, correct(apart, enabled=enabled), GpuTables(apart))[0]


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


# ---- sections ----


def _section_groups(snapshot: Snapshot) -> list[int]:
    """Per key the number of its row in the sections table: the first key of the name."""
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


def _section_rows(
    snapshot: Snapshot,
    correction: Correction,
    groups: Sequence[int],
    gpu: Mapping[int, Use] | None,
) -> tuple[SectionRow, ...]:
    first = _first_keys(snapshot)
    parts: dict[str, list[SectionStats]] = {name: [] for name in first}
    for stats in snapshot.sections:
        parts[snapshot.keys[stats.key].name].append(stats)
    threads = snapshot.threads if parts else ()
    tree = merged(
        flatten_few(thread.nodes, node_groups(thread.nodes, groups), column)
        for thread, column in zip(threads, correction.self_ns, strict=False)
    )
    wall_ns = _corrected_wall_ns(snapshot, correction)
    return tuple(
        _section_row(name, stats, tree.rows.get(first[name]), wall_ns, use_of(gpu, first[name]))
        for name, stats in parts.items()
    )


def _corrected_wall_ns(snapshot: Snapshot, correction: Correction) -> int:
    """Wall time without the hook: threads overlap, so take what the busiest one lost."""
    removed = [
        sum(tree.nodes.self_ns) - sum(column)
        for tree, column in zip(snapshot.threads, correction.self_ns, strict=True)
    ]
    return max(0, snapshot.duration_ns - max(removed, default=0))


def _section_row(
    name: str,
    parts: Sequence[SectionStats],
    in_tree: Row | None,
    wall_ns: int,
    gpu: GpuUse | None,
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
    outer_ns = sum(p.outer_ns for p in used)
    hook_ns = 0.0
    if in_tree and in_tree.raw_cum_ns:
        hook_ns = in_tree.raw_cum_ns - in_tree.cum_ns
        # The tree has the time of entries that are still open, too; their part of the
        # hook's cost is not these entries'.
        hook_ns *= min(1.0, outer_ns / in_tree.raw_cum_ns)
    total_ns = max(0, round(outer_ns - hook_ns))
    # Single entries are corrected in proportion: which entry paid how much is not known.
    ratio = total_ns / outer_ns if outer_ns else 1.0
    low, high = min(p.min_ns for p in used), max(p.max_ns for p in used)
    quantiles = histogram_quantiles(
        merge_histograms(p.hist for p in used), _QUANTILES, low=low, high=high
    )
    p50, p95, p99 = (None if q is None else q * ratio / 1e6 for q in quantiles)
    return SectionRow(
        name=name,
        count=count,
        total_ms=total_ns / 1e6,
        self_ms=_ms(min(in_tree.self_ns, total_ns) if in_tree else None),
        mean_ms=sum(p.sum_ns for p in used) / count * ratio / 1e6,
        min_ms=low * ratio / 1e6,
        max_ms=high * ratio / 1e6,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        share=total_ns / wall_ns if wall_ns else None,
        errors=errors,
        open=still_open,
        raw_total_ms=outer_ns / 1e6,
        gpu=gpu,
    )


# ---- steps ----


def _step_table(snapshot: Snapshot) -> StepTable:
    steps = snapshot.steps
    n = steps.measured
    if n == 0:
        return StepTable(steps.count, steps.skipped, *(None,) * 8, rows=(), apart=steps.apart)
    if len(steps.recent_ns) == n:  # all of them were kept
        quantiles = exact_quantiles(steps.recent_ns, _QUANTILES)
    else:
        quantiles = histogram_quantiles(steps.hist, _QUANTILES, low=steps.min_ns, high=steps.max_ns)
    p50, p95, p99 = (_ms(q) for q in quantiles)
    return StepTable(
        count=steps.count,
        skipped=steps.skipped,
        wall_ns=steps.sum_ns,
        mean_ms=steps.sum_ns / n / 1e6,
        min_ms=steps.min_ns / 1e6,
        max_ms=steps.max_ns / 1e6,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        cv=coefficient_of_variation(n, steps.sum_ns, steps.sum_sq),
        rows=_step_rows(snapshot, steps, n),
        outliers=find_outliers(snapshot, p50),
        series=series_view(snapshot),
        split=split_rows(snapshot),
        split_missing=steps.split_missing,
        gc_runs=steps.gc_runs,
        apart=steps.apart,
        unprofiled=unprofiled_step(snapshot),
    )


def _step_rows(snapshot: Snapshot, steps: Steps, n: int) -> tuple[StepSection, ...]:
    totals: dict[str, tuple[int, int]] = {}
    for row in sorted(steps.rows, key=lambda r: r.key):
        name = snapshot.keys[row.key].name
        count, sum_ns = totals.get(name, (0, 0))
        totals[name] = (count + row.steps, sum_ns + row.sum_ns)

    def make(name: str, count: int | None, ns: int) -> StepSection:
        share = ns / steps.sum_ns if steps.sum_ns else None
        return StepSection(name, count, ns, ns / n / 1e6, share)

    rows = [make(name, count, ns) for name, (count, ns) in totals.items()]
    rest = steps.sum_ns - sum(ns for _, ns in totals.values())
    return (*rows, make(UNACCOUNTED, None, rest))


# ---- overhead ----

#: A part of the run for which the report says that nothing confirms it.
_LARGE_COST = 0.1


def _overhead(snapshot: Snapshot, correction: Correction) -> Overhead:
    functions_ms = None if correction.overhead_ns is None else correction.overhead_ns / 1e6
    if not has_functions(snapshot):
        functions_ms = None
    applied = correction.applied and functions_ms is not None
    clamped_ms = correction.clamped_ns / 1e6 if functions_ms is not None else 0.0
    bytecode_ms = correction.bytecode_ns / 1e6 if functions_ms is not None else 0.0
    own_ns, _ = own_costs(snapshot)
    sections_ms = None if own_ns is None else own_ns / 1e6
    windows_ms = 0.0 if snapshot.operators is None else snapshot.operators.cost_ns / 1e6
    total_ms = (functions_ms or 0.0) + bytecode_ms + (sections_ms or 0.0) + windows_ms
    least_ms = (sections_ms or 0.0) + windows_ms
    if functions_ms is not None:
        least_ms += (correction.least_ns or 0) / 1e6
    known = functions_ms is not None or sections_ms is not None
    share = least = None
    if snapshot.duration_ns and known:
        share, least = (ms * 1e6 / snapshot.duration_ns for ms in (total_ms, least_ms))
    of_wall = "" if share is None else f" ({percent_between(least, share)} of wall time)"
    parts = {
        "functions": functions_ms,
        f"slower bytecode under the hook{'' if _is_known(correction) else ' up to'}": (
            bytecode_ms or None
        ),
        "sections, steps and loaders": sections_ms,
        "operator windows": windows_ms or None,
    }
    if sections_ms is None:  # functions are all there is
        text = f"The function hook cost an estimated {duration(functions_ms or 0.0)}{of_wall}"
    else:
        listed = ", ".join(f"{k} {duration(v)}" for k, v in parts.items() if v is not None)
        text = f"fastprof cost {_estimated(least_ms, total_ms)}{of_wall}: {listed}"
    if not has_functions(snapshot):
        text = f"{text}. Functions were not recorded." if known else "Functions were not recorded."
    elif functions_ms is None:
        as_recorded = f"Times are as recorded, profiler overhead included: {correction.reason}."
        text = as_recorded if sections_ms is None else f"{text}. {as_recorded}"
    else:
        text += _subtracted(correction, clamped_ms, alone=sections_ms is None)
        if bytecode_ms and sections_ms is None:
            took = "an estimated" if _is_known(correction) else "up to"
            text += f" Bytecode took {took} {duration(bytecode_ms)} longer under it."
        if bytecode_ms and not _is_known(correction):
            text += (
                ' "Up to" counts all own time of Python functions as bytecode; operators on '
                "arrays in them are code in C, which the hook does not slow."
            )
        text += _measured_in_run(snapshot, correction)
        unchecked = (
            correction.factors is None
            and unprofiled_step(snapshot) is None
            and snapshot.steps.measured > 0
        )
        if unchecked and share is not None and share > _LARGE_COST:
            doubt = (
                "the steps without the function hook are too few or too uneven to confirm it"
                if snapshot.steps.unprofiled
                else "no step could be used that ran without the function hook to confirm it"
            )
            text += (
                " The cost of functions is the number of calls times what a call cost in a test "
                f"at the start; {doubt}."
            )
    return Overhead(
        total_ms if known else None, share, applied, clamped_ms, text,
        functions_ms, bytecode_ms, sections_ms, windows_ms, least_share=least,
    )  # fmt: skip


def _is_known(correction: Correction) -> bool:
    """Whether the run itself says how much slower bytecode was."""
    return correction.factors is not None


def _estimated(least_ms: float, most_ms: float) -> str:
    least, most = duration(least_ms), duration(most_ms)
    return f"an estimated {most if least == most else f'{least} to {most}'}"


def _measured_in_run(snapshot: Snapshot, correction: Correction) -> str:
    step = unprofiled_step(snapshot)
    bounded = ""
    if correction.factors is not None and correction.factors.bound:
        bounded = (
            " The cost of functions is the most that steps without the function hook allow; "
            "the cost of single calls suggests more."
        )
    if step is None:
        hook = hook_cost(snapshot)
        if hook is None or hook.high <= 0 or not is_uneven(snapshot):
            return bounded
        low, high = duration(max(0.0, hook.low) / 1e6), duration(hook.high / 1e6)
        return (
            f"{bounded} Steps without the function hook vary too much to tell what a step takes "
            f"without fastprof: they allow {low} to {high} per step for the hook."
        )
    adds = duration(step.hook_ms)
    if step.hook_ms <= step.error_ms:
        adds = f"at most {duration(step.hook_ms + step.error_ms)}"
    found = (
        " Steps without the function hook were compared with those around them in "
        f"{plural(step.blocks, 'place')} of the run: the hook adds {adds} to a step. "
        "Without fastprof "
        f"the median step takes {duration(step.ms)} (+- {duration(step.error_ms)})."
    )
    if correction.factors is not None and not bounded:
        found += (
            " The cost of functions is what was measured there"
            f"{', slower bytecode included' if correction.factors.bytecode else ''}."
        )
    return found + bounded


def _with_steps(overhead: Overhead, whole: Snapshot, *, correct_times: bool) -> Overhead:
    """Add the part of the measured steps' time that fastprof took meanwhile, in all threads."""
    steps = whole.steps
    if not steps.sum_ns or not whole.phases:
        return overhead
    view = view_of(whole, RUN_PHASES[STEPS])
    correction = correct(view, enabled=correct_times)
    own, unhooking_ns = own_costs(whole)
    if own is not None:
        own = max(0.0, own - unhooking_ns)  # that is in no measured step
    hook = has_functions(whole) and correction.overhead_ns is not None
    if own is None and not hook:
        return overhead
    cost = float((correction.overhead_ns or 0) + correction.bytecode_ns) if hook else 0.0
    least = float(correction.least_ns or 0) if hook else 0.0
    if own is not None:
        # The cost of sections, steps and loaders goes by the entries of sections.
        entries = sum(row.count for row in whole.sections)
        own *= sum(row.count for row in view.sections) / entries if entries else 1.0
        cost, least = cost + own, least + own
    return replace(
        overhead,
        own_step_ms=(own or 0.0) / 1e6 / max(1, steps.measured),
        steps_share=min(1.0, cost / steps.sum_ns),
        least_steps_share=min(1.0, least / steps.sum_ns),
    )


def _subtracted(correction: Correction, clamped_ms: float, *, alone: bool) -> str:
    """Say what was done with the hook's cost; ``alone``: no other cost was named before."""
    it = "; it" if alone else ". The cost of functions"
    if not correction.applied:
        return f"{it} is included in all times: {correction.reason}."
    text = f"{it} was subtracted from all function and section times (steps stay as measured)"
    if correction.clamped_ns:
        text += f", except {duration(clamped_ms)} where a time would have become negative"
    return f"{text}."
