"""What a page shows, as plain values: chapters of parts, and columns for the large ones.

The page's scripts draw each part by its ``kind``; everything that has to be decided is
decided here, so a part that is missing was not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastprof.exporters.cells import number, percent
from fastprof.exporters.html import tables
from fastprof.exporters.html.flames import flame_columns
from fastprof.exporters.html.functions import function_columns, ms
from fastprof.exporters.html.strings import Strings
from fastprof.exporters.tables import summary
from fastprof.exporters.tables_gpu import gpu_lines
from fastprof.names import printable_name
from fastprof.report.findings import Finding
from fastprof.report.model import UNACCOUNTED, Report

Part = dict[str, Any]

#: Sections that a chart tells apart; the rest of them are one more.
CHART_SECTIONS = 9

_MIB = 1 << 20


def page_data(report: Report) -> dict[str, Any]:
    """Return everything a page shows; names in it are fit for display."""
    strings = Strings()
    chapters = [
        ("findings", "Findings", _findings(report)),
        ("steps", "Steps", _steps(report)),
        ("sections", "Sections", [tables.section_table(report)] if report.sections else []),
        ("flame", "Flame graph", _flame(report, strings)),
        ("functions", "Functions", _functions(report, strings)),
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
        "strings": strings.table(),
    }


def _tiles(report: Report) -> list[list[str]]:
    """The main figures: what, how much, and a remark."""
    steps, gpu, memory = report.steps, report.gpu, report.memory
    overhead = report.overhead.share
    tiles = [["recorded", _unit(report.wall_ms, "ms"), "wall time"]]
    if steps.count:
        spread = f"p95 {number(steps.p95_ms)}, cv {_unit(steps.cv, '%')}"
        tiles.append(["steps", str(steps.measured), f"{steps.skipped} more skipped"])
        tiles.append(["step", _unit(steps.mean_ms, "ms"), spread])
    busy = None if gpu is None or gpu.status != "on" else gpu.utilization
    share = None if memory is None else memory.share
    tiles.append(["GPU busy", _unit(busy, "%"), "of the measured time"])
    tiles.append(["GPU memory", _unit(share, "%"), "reserved at the peak"])
    tiles.append(["profiler", _unit(overhead, "%"), "estimated cost of the hook"])
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
    answered = f"{len(examination.checked)} rules were checked"
    missing = [f"{rule}: {tables.name(why)}" for rule, why in examination.abstained]
    return [{"kind": "findings", "rows": rows, "answered": answered, "missing": missing}]


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "title": tables.name(finding.title),
        "value": f"{finding.value:.4g} {tables.name(finding.unit)}",
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
            [row.name, number(row.mean_ms), percent(row.share), _places(row.places)]
            for row in steps.split
        ]
        missing = [tables.name(text) for text in steps.split_missing]
        title = "Where a step's time goes"
        parts.append(
            {"kind": "bar", "title": title, "rows": rows, "of": "split", "missing": missing}
        )
    rows = [[tables.name(r.name), number(r.mean_ms), percent(r.share), []] for r in steps.rows]
    parts.append(
        {
            "kind": "bar",
            "title": "Sections of a step",
            "rows": rows,
            "of": "sections",
            "missing": [],
        }
    )
    parts.append(_series(report))
    parts.append(tables.step_table(report))
    if steps.outliers:
        rows_ = [tables.outlier(step) for step in steps.outliers]
        parts.append({"kind": "outliers", "title": "Slowest steps", "rows": rows_})
    return parts


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
        columns.append((f"({len(rest)} other sections)", other))
    if columns:
        covered = [sum(values) for values in zip(*(column for _, column in columns), strict=True)]
        left = [max(0.0, whole - part) for whole, part in zip(wall, covered, strict=True)]
        columns.append((UNACCOUNTED, left))
    return {
        "kind": "steps",
        "first": first,
        "wall": _rounded(wall),
        "sections": [{"name": text, "ms": _rounded(column)} for text, column in columns],
        "extra": [
            [text, _rounded(column), unit]
            for text, column, unit in (
                ("garbage collection", series.gc_ms, " ms"),
                ("CPU time", series.cpu_ms, " ms"),
                ("ready without a CPU", series.cpu_wait_ms, " ms"),
                ("involuntary context switches", series.switches, ""),
                ("major page faults", series.faults, ""),
            )
            if any(column)
        ],
        "median": ms(steps.p50_ms),
        "p95": ms(steps.p95_ms),
    }


def _rounded(column: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in column]


def _flame(report: Report, strings: Strings) -> list[Part]:
    columns = flame_columns(report, strings)
    return [] if columns is None else [{"kind": "flame", **columns}]


def _functions(report: Report, strings: Strings) -> list[Part]:
    if not report.functions:
        return []
    return [{"kind": "functions", "columns": function_columns(report.functions, strings)}]


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
    ]
    return [
        {"kind": "notes", "rows": [printable_name(text) for text in notes if text]},
        {"kind": "pairs", "title": "Configuration", "rows": meta},
    ]
