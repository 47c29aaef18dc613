"""Builds a :class:`~fastprof.report.model.Report` from a recording."""

from fastprof.report.compilations import compile_report
from fastprof.report.correct import correct
from fastprof.report.flat import node_groups
from fastprof.report.functions import functions, worker_tables
from fastprof.report.gpu import GpuTables, gpu_report, measured
from fastprof.report.kernels import kernel_rows
from fastprof.report.loaders import loader_notes, loader_rows
from fastprof.report.loaders_compared import compared
from fastprof.report.memory import memory_report
from fastprof.report.model import Report
from fastprof.report.notes import beyond_notes, make_notes
from fastprof.report.operators import operator_report
from fastprof.report.overhead import overhead_of
from fastprof.report.plain_steps import plain_table, sections_shown
from fastprof.report.rows import StepTable
from fastprof.report.run_phases import (
    ALL,
    beyond_steps_ns,
    chosen_phase,
    phase_rows,
    steps_in,
    view_of,
)
from fastprof.report.sections import row_groups, section_rows
from fastprof.report.stages import stage_rows
from fastprof.report.step_table import step_table
from fastprof.report.threads import training_thread
from fastprof.snapshot import Snapshot
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS


def in_phase(report: Report, phase: str) -> Report:
    """Return the report on another phase of the run.

    Args:
        report: a report on any phase of the same run.
        phase: a name from ``report.phases``, or ``"all"`` for the whole run.

    Raises:
        ValueError: there is no such phase, or it is empty.
    """
    if report.phase == phase:
        return report
    if not report.has_tree:
        raise ValueError(f"no phase {phase!r:.80}: a .stats file has no phases of the run")
    return build_report(report.snapshot, correct_times=report.correct_times, phase=phase)


def _in_steps(view: Snapshot, steps: StepTable, phase: str) -> dict[str, int]:
    """Return the times in ns of the parts of steps; empty: ``view`` has much that is in none."""
    if phase != RUN_PHASES[STEPS] or beyond_steps_ns(view, phase, training_thread(view)):
        return {}
    return {row.name: row.total_ns for row in steps.rows}


def build_report(
    snapshot: Snapshot, *, correct_times: bool = True, phase: str | None = None
) -> Report:
    """Compute every table of a recording.

    Args:
        snapshot: the recording.
        phase: the phase of the run that sections, functions and kernels describe, one of
            ``snapshot.run_phases.RUN_PHASES``; ``"all"``: the whole run; None: measured steps if
            there are any, else the whole run.
        correct_times: subtract the hook's calibrated cost; False keeps the recorded times, as a
            recording without calibration or with an external timer does.

    Raises:
        ValueError: there is no such phase, or it is empty.
    """
    whole = snapshot
    of_run = correct(whole, enabled=correct_times)
    phase = chosen_phase(whole, phase)
    snapshot = view_of(whole, phase)
    correction = correct(snapshot, enabled=correct_times)
    gpu_tables = GpuTables(snapshot)
    threads, rows = functions(snapshot, correction, gpu_tables)
    groups = row_groups(snapshot)
    by_section = [node_groups(t.nodes, groups) for t in snapshot.threads]
    gpu = measured(snapshot)
    kernels = () if gpu is None else kernel_rows(gpu)
    steps = step_table(snapshot, whole, correct_times=correct_times)
    span_ns = steps.wall_ns if phase == RUN_PHASES[STEPS] else None
    span_ns = span_ns or snapshot.duration_ns
    # Waits in other phases are outside of steps.
    counted = steps_in(phase, steps.count, steps.measured) if phase in ("steps", ALL) else 0
    gpu_part = gpu_report(snapshot, gpu_tables, by_section, kernels, counted)
    plain = plain_table(whole, steps)
    loaders, stages = loader_rows(snapshot, plain), stage_rows(whole)
    sections = section_rows(
        whole,
        snapshot,
        correction,
        groups,
        gpu_tables.by_group(by_section),
        span_ns=span_ns,
        in_steps=_in_steps(snapshot, steps, phase),
    )
    if plain is not None and phase == RUN_PHASES[STEPS]:
        sections = sections_shown(whole, plain, sections)
    return Report(
        meta=dict(snapshot.meta),
        wall_ms=whole.duration_ns / 1e6,
        sections=sections,
        steps=steps,
        plain=plain,
        functions=rows,
        threads=threads,
        loaders=loaders,
        overhead=overhead_of(whole, correct_times=correct_times),
        notes=(
            *beyond_notes(snapshot, phase),
            *loader_notes(snapshot, loaders),
            *compared(loaders, {stage.loader for stage in stages}),
            *make_notes(snapshot, gpu_part),
        ),
        snapshot=whole,
        view=snapshot,
        phase=phase,
        phases=phase_rows(whole, of_run.self_ns),
        gpu=gpu_part,
        kernels=kernels,
        memory=memory_report(snapshot),
        correct_times=correct_times,
        worker_functions=worker_tables(snapshot, enabled=correct_times),
        operators=operator_report(snapshot.operators),
        stages=stages,
        compilations=compile_report(whole),
    )
