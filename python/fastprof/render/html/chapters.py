"""The chapters of a page; a missing chapter was not recorded.

The scripts draw the flame graph and the functions, from :mod:`.data`.
"""

from collections.abc import Container, Iterable, Iterator, Sequence

from fastprof.findings.examine import examine
from fastprof.names import printable_name
from fastprof.render.html import tables
from fastprof.render.html.charts import colours, figure, swatch
from fastprof.render.html.limits import LIMITS
from fastprof.render.html.markup import Markup, bullets, el, facts, joined, prose, table
from fastprof.render.html.steps import memory_chart, single_steps, step_charts
from fastprof.report.figures import plural
from fastprof.report.findings import Finding
from fastprof.report.functions import function_keys
from fastprof.report.model import Report
from fastprof.report.origin import is_users
from fastprof.report.source_files import is_source, missing_text
from fastprof.tables.cells import Table, duration, number, with_percent
from fastprof.tables.compilations import compile_lines, compile_tables
from fastprof.tables.findings import explained, not_judged, unchecked
from fastprof.tables.gpu import gpu_lines, has_gpu, unseen_lines
from fastprof.tables.loaders import loader_tables
from fastprof.tables.run_phases import phases_table
from fastprof.tables.steps import kind_name, row_name

#: Colour, name, ms per step, share and places of a part of a step.
_Piece = tuple[int, str, str, float | None, Sequence[tuple[str, int]]]

_SEVERITIES = {"critical": "Critical", "warning": "Warning", "note": "Note"}
#: A smaller share is written as 0.0 %.
_LEAST = 0.0005


def chapters(report: Report, data: Container[str]) -> list[tuple[str, str, Markup]]:
    """Return name, title and content of the chapters; ``data`` is the data of the scripts."""
    made = (
        ("findings", "Findings", _findings(report)),
        ("steps", "Steps", _steps(report)),
        ("phases", "Phases of the run", _tables([phases_table(report)])),
        ("compilations", "Compilations", _compilations(report)),
        ("sections", "Sections", _tables([tables.section_table(report)])),
        ("flame", "Flame graph", _drawn("flame", data)),
        ("functions", "Functions", _functions(report, data)),
        ("kernels", "Kernels", _tables(tables.kernel_tables(report))),
        ("gpu", "GPU", _gpu(report)),
        ("memory", "Memory", _memory(report)),
        ("operators", "Operators", _tables(tables.operator_tables_(report))),
        ("loaders", "Loaders", _tables(loader_tables(report))),
        ("more", "More tables", _tables(tables.other_tables(report))),
        ("about", "About this recording", _about(report)),
    )
    return [(mark, title, joined(parts)) for mark, title, parts in made if parts]


def _drawn(mark: str, data: Container[str]) -> list[Markup]:
    return [Markup()] if mark in data else []


def _functions(report: Report, data: Container[str]) -> list[Markup]:
    """Return what stands above the table: why the program's own files have no lines in it."""
    keys = function_keys(report.functions, LIMITS.functions)
    files = dict.fromkeys(key.file for key in keys if is_users(key) and is_source(key.file))
    said = missing_text(files, report.snapshot) if files else ""
    drawn = _drawn("functions", data)
    return [*drawn, *([el("p", said, class_="part minor")] if drawn and said else [])]


def _tables(made: Iterable[Table]) -> list[Markup]:
    return [table(tables.limited(each)) for each in made if each.rows]


def _compilations(report: Report) -> list[Markup]:
    unknown = [el("p", line) for line in compile_lines(report)]
    return [*unknown, *_tables(compile_tables(report))]


def _gpu(report: Report) -> list[Markup]:
    unseen = [] if report.gpu is None else unseen_lines(report.gpu)
    return [*(el("p", f"{line}.") for line in unseen), *_tables(tables.gpu_tables_(report))]


def tiles(report: Report) -> Markup:
    """Return the main figures: name, value and remark."""
    steps, gpu, memory = report.shown_steps, report.gpu, report.memory
    cost = report.overhead
    rows = [("recorded", duration(report.wall_ms), "wall time")]
    if steps.count:
        spread = f"p95 {number(steps.p95_ms)}, cv {with_percent(steps.cv)}"
        rows.append(("steps", str(steps.measured), f"measured, of {steps.count}"))
        rows.append(("step", duration(steps.mean_ms), spread))
    if gpu is not None and gpu.status == "on":
        share = None if memory is None else memory.share
        rows.append(("GPU busy", with_percent(gpu.utilization), "of the measured time"))
        rows.append(("GPU memory", with_percent(share), "reserved at the peak"))
    most = f"at most {with_percent(cost.most_share)} " if cost.share != cost.most_share else ""
    of_what = "the loop's time" if cost.of_steps else "the recorded time"
    rows.append(("profiler", with_percent(cost.share), f"{most}of {of_what}"))
    drawn = (
        el("div", el("dt", name), el("dd", value, class_="na" if value == "n/a" else None),
           el("dd", remark, class_="minor"))
        for name, value, remark in rows
    )  # fmt: skip
    return el("dl", *drawn, id="tiles", class_="tiles", aria_label="Main figures")


# ---- findings ----


def _findings(report: Report) -> list[Markup]:
    examination = examine(report)
    if not examination.checked and not examination.findings:
        return []
    parts = [_finding(finding) for finding in (*examination.findings, *examination.notes)]
    if not parts:
        checked = plural(len(examination.checked), "rule")
        parts.append(el("p", f"Nothing to change was found; {checked} checked."))
    parts += [el("p", text) for text in not_judged(examination)]
    for title, rows in (
        ("left out, because another finding explains it", explained(examination)),
        ("not checked", unchecked(report)),
    ):
        if rows:
            parts.append(el("details", el("summary", f"Rules {title}"), bullets(rows)))
    return [el("div", *parts, class_="part findings")]


def _finding(finding: Finding) -> Markup:
    severity = finding.severity if finding.severity in _SEVERITIES else "note"
    value = f"{number(finding.value)} {tables.name(finding.unit)}"
    limit = tables.name(finding.threshold)
    source = f"Rule {finding.rule}. Source of the limit: {tables.name(finding.source)}"
    found = [("measured", value), ("limit", limit)]
    if finding.saving:
        found.append(("estimated saving", finding.saving))
    if finding.measured:
        found.append(("measured saving", finding.measured))
    return el(
        "article",
        el(
            "h3", el("span", _SEVERITIES[severity], class_="badge"), " ", tables.name(finding.title)
        ),
        facts(found, class_="facts"),
        *_sentences("Evidence", finding.evidence),
        *_sentences("What to do", finding.fix),
        el("p", source, class_="minor"),
        class_=f"finding {severity}",
    )


def _sentences(title: str, rows: Sequence[str]) -> list[Markup | None]:
    return [el("h4", title), bullets([prose(tables.name(row)) for row in rows])] if rows else []


# ---- steps ----


def _steps(report: Report) -> list[Markup]:
    steps = report.shown_steps
    if steps.wall_ns is None:
        return []
    parts = []
    if steps.split:
        numbers = colours([row.name for row in steps.split if _seen(row.share)])
        rows = [row for row in steps.split if _seen(row.share)]
        pieces = [
            (colour, row_name(row), number(row.mean_ms), row.share, row.places)
            for colour, row in zip(numbers, rows, strict=True)
        ]
        parts.append(_bar("Where a step's time goes", pieces, [*_split_missing(report)]))
    shown = [row for row in steps.rows if _seen(row.share)]
    pieces = [
        (colour, tables.name(row.name), number(row.mean_ms), row.share, ())
        for colour, row in zip(
            colours([row.name for row in shown], [row.name for row in steps.rows]),
            shown,
            strict=True,
        )
    ]
    parts.append(_bar("Sections of a step", pieces, []))
    if single_steps(report):
        timeline, histogram, cut = step_charts(report)
        clipped = el("p", cut, class_="minor clipped") if cut else None
        parts.append(el("div", figure(timeline), figure(histogram), clipped, class_="part charts"))
    parts.append(table(tables.step_table(report)))
    if steps.outliers:
        found = (
            el(
                "details",
                el(
                    "summary",
                    f"Step {step.index}: {number(step.wall_ms)} ms, {number(step.ratio, 1)} times "
                    f"the usual {number(step.typical_ms)} ms",
                    # The first sentence repeats the title.
                    bullets([tables.name(text) for text in step.sentences[1:]]),
                ),
                el("div", *map(table, tables.outlier_tables(step)), class_="tables"),
                class_="outlier",
            )
            for step in steps.outliers
        )
        parts.append(el("div", el("h3", "Slowest steps"), *found, class_="part"))
    return parts


def _seen(share: float | None) -> bool:
    return share is None or abs(share) >= _LEAST


def _split_missing(report: Report) -> Iterator[str]:
    """Yield the unknown kinds of time; without a GPU nothing waits for it."""
    for sentence in report.shown_steps.split_missing:
        kind, _, why = sentence.partition(": ")
        if kind != "gpu_wait" or has_gpu(report):
            yield f"Not known: {kind_name(kind)}: {tables.name(why)}"


def _bar(title: str, pieces: Sequence[_Piece], missing: Sequence[str]) -> Markup:
    """Return one bar divided by shares, with a legend that is also the table."""
    bar = (
        el("span", class_=f"piece series-{colour}", title=f"{name}: {with_percent(share)}",
           style=f"flex-grow:{max(0.0, 100 * (share or 0.0)):.2f}")
        for colour, name, _, share, _ in pieces
    )  # fmt: skip
    rows = []
    for colour, name, ms, share, places in pieces:
        text = joined([
            swatch(colour), el("span", name, class_="what"),
            el("span", with_percent(share), class_="figure"),
            el("span", f"{ms} ms per step", class_="figure minor"),
        ])  # fmt: skip
        where = bullets([_place(*place) for place in places], "ol", class_="places")
        rows.append(el("details", el("summary", text), where) if places else text)
    return el(
        "figure",
        el("figcaption", title),
        el("div", *bar, class_="bar", aria_hidden="true"),
        bullets(rows, class_="legend"),
        bullets(missing, class_="minor"),
        class_="part",
    )


def _place(text: str, ns: int) -> Markup:
    spent = el("span", f"{number(ns / 1e6)} ms", class_="figure")
    return joined([el("span", tables.name(text), class_="what"), spent])


# ---- the rest ----


def _memory(report: Report) -> list[Markup]:
    memory = report.memory
    if memory is None or not memory.samples:
        return []
    return [figure(memory_chart(memory))]


#: Fields of ``meta`` whose effect the notes tell.
_IN_NOTES = frozenset({"fell_back", "imports_folded", "new_threads_lost", "ended_threads"})


def _about(report: Report) -> list[Markup]:
    notes = [*gpu_lines(report), report.overhead.text, *report.notes]
    meta = [
        (tables.name(key.replace("_", " ")), tables.name(str(value)))
        for key, value in report.meta.items()
        if value is not None and key not in _IN_NOTES and not key.endswith("_ns")
    ]
    pairs = el("div", el("h3", "Configuration"), facts(meta, class_="pairs"), class_="part")
    said = bullets([prose(printable_name(text)) for text in notes if text], class_="part notes")
    return [said, pairs] if said is not None else [pairs]
