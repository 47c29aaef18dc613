"""What a page shows, as plain values: chapters of parts, and columns for the large ones.

The page's scripts draw each part by its ``kind``; everything that has to be decided is
decided here, so a part that is missing was not recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from fastprof.names import printable_name
from fastprof.render.html import tables
from fastprof.render.html.flames import flame_columns
from fastprof.render.html.functions import function_columns, ms
from fastprof.render.html.run_phases import PhaseView, phase_views
from fastprof.render.html.sources import Sources
from fastprof.render.html.strings import Strings
from fastprof.report.figures import plural
from fastprof.report.findings import Finding
from fastprof.report.model import UNACCOUNTED, Report
from fastprof.tables.cells import number, percent
from fastprof.tables.gpu import gpu_lines, has_gpu
from fastprof.tables.report import summary
from fastprof.tables.steps import kind_name

Part = dict[str, Any]

#: Sections that a chart tells apart; the rest of them are one more.
CHART_SECTIONS = 9

_MIB = 1 << 20


def page_data(report: Report) -> dict[str, Any]:
    """Return everything a page shows; names in it are fit for display."""
    strings = Strings()
    views = phase_views(report)
    chapters = [
        ("findings", "Findings", _findings(report)),
        ("steps", "Steps", _steps(report)),
        ("phases", "Phases of the run", tables.phase_parts(report)),
        ("sections", "Sections", [tables.section_table(report)] if report.sections else []),
        ("flame", "Flame graph", _flame(views, strings)),
        ("functions", "Functions", _functions(views, strings)),
        ("kernels", "Kernels", tables.kernel_table(report)),
        ("gpu", "GPU", tables.gpu_parts(report)),
        ("memory", "Memory", _memory(report)),
        ("operators", "Operators", tables.operator_parts(report)),
        ("loaders", "Loaders", tables.loader_parts(report)),
        ("more", "More tables", tables.other_parts(report)),
        ("about", "About this recording", _about(report)),
    ]
    return {
        "summary": summary(report)[1:],
        "tiles": _tiles(report),
        "chapters": [
            {"id": mark, "title": title, "parts": parts} for mark, title, parts in chapters if parts
        ],
        "phases": [view.name for view in views],
        "strings": strings.table(),
    }


def _tiles(report: Report) -> list[list[str]]:
    """The main figures: what, how much, and a remark."""
    steps, gpu, memory = report.steps, report.gpu, report.memory
    overhead, of_what = report.overhead.steps_share, "of a step, estimated"
    if overhead is None:
        overhead, of_what = report.overhead.share, "of the recorded time, estimated"
    tiles = [["recorded", _unit(report.wall_ms, "ms"), "wall time"]]
    if steps.count:
        spread = f"p95 {number(steps.p95_ms)}, cv {_unit(steps.cv, '%')}"
        tiles.append(["steps", str(steps.measured), f"{steps.count - steps.measured} more skipped"])
        tiles.append(["step", _unit(steps.mean_ms, "ms"), spread])
    busy = None if gpu is None or gpu.status != "on" else gpu.utilization
    share = None if memory is None else memory.share
    tiles.append(["GPU busy", _unit(busy, "%"), "of the measured time"])
    tiles.append(["GPU memory", _unit(share, "%"), "reserved at the peak"])
    tiles.append(["profiler", _unit(overhead, "%"), of_what])
    return tiles


def _unit(value: float | None, unit: str) -> str:
    if value is None:
        return "n/a"
    return f"{percent(value)} %" if unit == "%" else f"{value:,.1f} {unit}"


def _findings(report: Report) -> list[Part]:
    examination = report.examination
    if not examination.checked and not examination.findings:
        return []
    rows = [_finding(finding) for finding in (*examination.findings, *examination.notes)]
    answered = f"{plural(len(examination.checked), 'rule')} checked"
    missing = [f"{rule}: {tables.name(why)}" for rule, why in examination.abstained]
    return [{"kind": "findings", "rows": rows, "answered": answered, "missing": missing}]


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "title": tables.name(finding.title),
        "value": f"{number(finding.value)} {tables.name(finding.unit)}",
        "threshold": tables.name(finding.threshold),
        "source": tables.name(finding.source),
        "evidence": [tables.name(text) for text in finding.evidence],
        "fix": [tables.name(text) for text in finding.fix],
        "saving": number(finding.saving_ms),
        "saving_share": percent(finding.saving_share),
    }


def _steps(report: Report) -> list[Part]:
    steps = report.steps
    if steps.wall_ns is None:
        return []
    parts: list[Part] = []
    if steps.split:
        rows = [
            [row.name, kind_name(row.name), number(row.mean_ms), percent(row.share), places]
            for row in steps.split
            for places in [_places(row.places)]
            if _seen(row.share)
        ]
        missing = [tables.name(text) for text in _split_missing(report)]
        title = "Where a step's time goes"
        parts.append({"kind": "bar", "title": title, "rows": rows, "missing": missing})
    rows = [
        [tables.name(r.name), tables.name(r.name), number(r.mean_ms), percent(r.share), []]
        for r in steps.rows
        if _seen(r.share)
    ]
    parts.append({"kind": "bar", "title": "Sections of a step", "rows": rows, "missing": []})
    parts.append(_series(report))
    parts.append(tables.step_table(report))
    if steps.outliers:
        rows_ = [tables.outlier(step) for step in steps.outliers]
        parts.append({"kind": "outliers", "title": "Slowest steps", "rows": rows_})
    return parts


def _split_missing(report: Report) -> Iterator[str]:
    """Say which kinds of time are not known; where there is no GPU nothing waits for it."""
    for sentence in report.steps.split_missing:
        kind, _, why = sentence.partition(": ")
        if kind != "gpu_wait" or has_gpu(report):
            yield f"{kind_name(kind)}: {why}"


def _seen(share: float | None) -> bool:
    """Whether a share is more than what is written as 0.0 %."""
    return share is None or abs(share) >= 0.0005


def _places(places: tuple[tuple[str, int], ...]) -> list[list[str]]:
    return [[tables.name(text), number(ns / 1e6)] for text, ns in places]


def _series(report: Report) -> Part:
    steps, series = report.steps, report.steps.series
    wall = series.wall_ms or tuple(ns / 1e6 for ns in report.snapshot.steps.recent_ns)
    # Without a series of their own the last steps kept are the last ones of all.
    first = series.first if series.wall_ms else max(steps.skipped, steps.count - len(wall))
    largest = sorted(series.names, key=lambda name: -sum(series.names[name]))
    shown = [
        (text, column) for text, column in series.names.items() if text in largest[:CHART_SECTIONS]
    ]
    rest = [(text, series.names[text]) for text in largest[CHART_SECTIONS:]]
    columns = [(tables.name(text), list(column)) for text, column in shown]
    if rest:
        other = [sum(values) for values in zip(*(column for _, column in rest), strict=True)]
        columns.append((f"({plural(len(rest), 'other section')})", other))
    if columns:
        covered = [sum(values) for values in zip(*(column for _, column in columns), strict=True)]
        left = [max(0.0, whole - part) for whole, part in zip(wall, covered, strict=True)]
        columns.append((UNACCOUNTED, left))
    return {
        "kind": "steps",
        "first": first,
        **({"number": list(series.number)} if steps.apart and series.wall_ms else {}),
        "wall": _rounded(wall),
        "sections": [{"name": text, "ms": _rounded(column)} for text, column in columns],
        "extra": [
            [text, _rounded(column), unit]
            for text, column, unit in (
                ("garbage collection", series.gc_ms, " ms"),
                ("CPU time", series.cpu_ms, " ms"),
                ("waiting for a CPU", series.cpu_wait_ms, " ms"),
                ("involuntary context switches", series.switches, ""),
                ("major page faults", series.faults, ""),
            )
            if any(column)
        ],
        "median": ms(steps.p50_ms),
        "p95": ms(steps.p95_ms),
        **_clip(wall),
    }


def _clip(wall: Sequence[float]) -> dict[str, float | int | None]:
    """Return what a chart of steps is cut at, so that a few long ones do not flatten it.

    That is a little above the 99th percentile (of less than 300 steps above all but three, a
    tenth of them at most), if the longest step takes twice as long; otherwise ``top`` is None.
    """
    allowed = min(len(wall) // 10, max(3, math.ceil(len(wall) / 100)))
    ordered = sorted(wall)
    if not ordered or ordered[-1] <= 2 * ordered[-1 - allowed]:
        return {"top": None, "clipped": 0, "largest": None}
    top = round(1.2 * ordered[-1 - allowed], 4)
    clipped = sum(value > top for value in wall)
    return {"top": top, "clipped": clipped, "largest": ms(ordered[-1])}


def _rounded(column: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in column]


def _flame(views: Sequence[PhaseView], strings: Strings) -> list[Part]:
    columns = flame_columns(views, strings)
    return [] if columns is None else [{"kind": "flame", **columns}]


def _functions(views: Sequence[PhaseView], strings: Strings) -> list[Part]:
    if not any(view.report.functions for view in views):
        return []
    sources = Sources(views[0].report.meta.get("recorded_until_ns"))
    tables_ = []
    for view in views:
        rows = view.report.functions[: view.limits.functions]
        columns = function_columns(view.report.functions, strings, view.limits)
        tables_.append(columns | {"source": sources.of(rows)})
    return [{"kind": "functions", "phases": tables_, "sources": sources.blocks}]


def _memory(report: Report) -> list[Part]:
    memory = report.memory
    if memory is None or not memory.samples:
        return []
    return [
        {
            "kind": "memory",
            "step": [s.step for s in memory.samples],
            "allocated": [round(s.allocated / _MIB, 3) for s in memory.samples],
            "reserved": [round(s.reserved / _MIB, 3) for s in memory.samples],
            "peak": [round(s.peak_reserved / _MIB, 3) for s in memory.samples],
        }
    ]


def _about(report: Report) -> list[Part]:
    notes = [*gpu_lines(report), report.overhead.text, *report.notes]
    meta = [
        [tables.name(key), "n/a" if value is None else tables.name(str(value))]
        for key, value in report.meta.items()
        if key != "recorded_until_ns"
    ]
    return [
        {"kind": "notes", "rows": [printable_name(text) for text in notes if text]},
        {"kind": "pairs", "title": "Configuration", "rows": meta},
    ]
