"""A comparison as blocks, for every format."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from fastprof.comparison.model import (
    FASTER,
    NOT_TESTED,
    SLOWER,
    Change,
    Comparison,
    Effect,
    Pair,
    Row,
    SummaryRow,
)
from fastprof.comparison.steps_chart import steps_chart
from fastprof.names import elided, printable, text_width
from fastprof.report.figures import (
    change,
    chosen_percent,
    counted,
    number,
    p_text,
    plural,
    signed,
    span,
    with_percent,
)
from fastprof.tables.blocks import Block, Code, Items
from fastprof.tables.cells import NAME_WIDTH, Table, short, table_of
from fastprof.tables.gpu import kernel_cells

#: Number of listed functions, kernels and sections without statistics.
ROWS = 25
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
#: Parts of a command line or a path.
_PARTS = re.compile(r"[^\s/=,_.-]*[\s/=,_.-]*")
#: Characters of a run's name: two of them fit a line, three of them a table.
_LINE, _COLUMN = 32, 24
#: Characters of a setting, if they are enough to show the difference.
_CELL = 36

#: The same on one screen, ...
_FEW = 8
#: ... and the least difference of a listed function, as a part of a step or of the run.
_WORTH = 0.01


def blocks(comparison: Comparison, *, full: bool = True) -> list[Block]:
    """Return the comparison in reading order.

    Args:
        full: False for one screen, if the runs have steps: the verdict, the differing settings, the
            steps, and the functions that differ most.
    """
    head = f"fastprof compare: {' -> '.join(_names(comparison, _LINE))}"
    chart = steps_chart(comparison.labels, comparison.steps)
    if len(comparison.pairs) > 1:
        return [Block(head), *chart, *_many(comparison)]
    pair = comparison.pairs[0]
    if not full and pair.step is not None:
        return [_block(head, verdict_lines(comparison, pair)), *_said(_screen(comparison, pair))]
    made = [
        _summary("Before and after", pair.summary),
        _settings(pair),
        _effects(comparison, pair),
        _summary("Variation of the steps", pair.uniformity),
        *_tops(comparison),
        _functions(comparison, pair),
        _rows("Sections", pair.sections, _SECTION_COLUMNS),
        _rows(
            "Kernels, largest difference first",
            pair.kernels,
            _KERNEL_COLUMNS,
            kernel_cells([row.name for row in pair.kernels]),
        ),
        _rows("Data loaders (times per batch)", pair.loaders, _LOADER_COLUMNS),
        _block("Notes", pair.notes),
    ]
    return [_block(head, verdict_lines(comparison, pair)), *chart, *_said(made)]


def _block(title: str, lines: Sequence[str] = (), table: Table | None = None) -> Block:
    said = Items(tuple(lines), "", "  ")
    return Block(title, (*([said] if lines else ()), *([table] if table and table.rows else ())))


def _said(made: Iterable[Block]) -> list[Block]:
    """Return the blocks with content."""
    return [block for block in made if block.parts]


def _screen(comparison: Comparison, pair: Pair) -> list[Block]:
    """Return the main blocks, with a count of the rest."""
    step = pair.step
    longest = 0.0 if step is None else max(step.before_ms or 0.0, step.after_ms or 0.0)
    changed = [
        replace(row, place=row.place.split(" (was ")[0])
        for row in pair.functions
        if abs(row.figures["self_ms"].difference or 0.0) >= _WORTH * longest
    ]
    more = (
        "More: --full has all tables and notes, and both runs' functions as pstats prints them.",
    )
    return [
        _summary("Before and after", pair.summary),
        _settings(pair),
        _effects(comparison, pair, explained=False),
        _functions(comparison, replace(pair, functions=tuple(changed)), _FEW, len(pair.functions)),
        _block("", more),
    ]


# ---- the verdict ----


def verdict_lines(comparison: Comparison, pair: Pair) -> tuple[str, ...]:
    """Return the statistics' results, in one sentence per row that has one."""
    lines = []
    step = pair.step
    if step is not None:
        text = f"Step time: {sentence(step, comparison.level)}"
        if any(step.left_out):
            here, there = (plural(count, "step") for count in step.left_out)
            text += f"; left out at the start, until times are steady: {here} before, {there} after"
        if pair.other_machine:
            text += "; the two sides ran on different machines, which alone changes times"
        lines.append(text)
    elif comparison.basis == "run":
        lines.append("Step time: not compared, because not every run has measured steps.")
    kinds = ("section",) if step is None or step.verdict != NOT_TESTED else ("section", "cpu")
    changed = [e for e in pair.effects if e.kind in kinds and e.significant]
    lines += [f"{short(e.name)}: {sentence(e, comparison.level)}" for e in changed]
    return tuple(lines)


def sentence(effect: Effect, level: float) -> str:
    """Return the result of one row."""
    moved = f"{number(effect.before_ms)} -> {number(effect.after_ms)} ms"
    if effect.verdict == NOT_TESTED:
        return f"{moved} ({change(effect.change)}); not tested: {effect.reason}"
    ends = [change(end) for end in (effect.change_low, effect.change_high)]
    if effect.change_low is None:
        ends = [f"{signed(end)} ms" for end in (effect.low_ms, effect.high_ms)]
    within = f"{change(effect.change)}, {chosen_percent(level)} interval {' to '.join(ends)}"
    if effect.verdict in (SLOWER, FASTER):
        return f"{effect.verdict}, {moved} ({within}; p {p_text(effect.p_adjusted)})"
    small = "" if effect.detectable is None else (
        f"; a change of {with_percent(effect.detectable)} would be seen in 4 of 5 comparisons"
    )  # fmt: skip
    why = f": {effect.reason}" if effect.reason else ""
    return f"{effect.verdict}{why} ({moved}, {within}{small})"


# ---- one pair ----


def _summary(title: str, rows: Sequence[SummaryRow]) -> Block:
    columns: list[tuple[str, Callable[..., str]]] = [
        ("", lambda r: r.name),
        ("before", lambda r: r.before_text or "n/a"),
        ("after", lambda r: r.after_text or "n/a"),
        ("change", lambda r: change(r.change.relative)),
    ]
    return _block(title, table=table_of("", columns, rows))


def _settings(pair: Pair) -> Block:
    columns: list[tuple[str, Callable[..., str]]] = [
        ("setting", lambda s: short(s.name)),
        ("before", lambda s: _apart((s.before, s.after), _CELL, NAME_WIDTH)[0]),
        ("after", lambda s: _apart((s.before, s.after), _CELL, NAME_WIDTH)[1]),
        ("effect on the comparison", lambda s: s.matters),
    ]
    if not any(setting.matters for setting in pair.settings):
        columns.pop()
    table = table_of("", columns, pair.settings, frozenset(range(len(columns))))
    return _block("Settings that differ", table=table)


def _names(comparison: Comparison, width: int) -> list[str]:
    """Return the names of the sides, shortened to what differs."""
    more = [f" and {count - 1} more" if count > 1 else "" for count in comparison.runs]
    first = [label.removesuffix(m) for label, m in zip(comparison.labels, more, strict=True)]
    return [name + m for name, m in zip(_apart(first, width), more, strict=True)]


def _apart(texts: Sequence[str], width: int, most: int = 0) -> list[str]:
    """Return the texts; if one is longer than ``width``, without what all share at their ends.

    At the beginning that is cut entirely, at the end as far as needed.  A text still longer than
    ``most`` (or ``width``) loses its middle.
    """
    parts = [[*filter(None, _PARTS.findall(printable(text)))] for text in texts]
    left = max(sum(map(text_width, each)) for each in parts)
    cut = ["", ""]
    for end in (0, 1) if left > width else ():
        n = 0
        for same in zip(*(each[::-1] if end else each for each in parts), strict=False):
            if len(set(same)) > 1 or (end and left <= width):
                break
            left -= text_width(same[0]) - (0 if n else 3)
            n += 1
        if n:
            parts = [each[:-n] if end else each[n:] for each in parts]
            cut[end] = "..."
    return [elided("".join(each).join(cut), most or width) for each in parts]


#: The columns of effects that a narrow terminal leaves out; the verdict's lines have most of them.
_SPARE, _LAST = ("median", "seen from"), ("p", "before", "after", "difference")


def _effects(comparison: Comparison, pair: Pair, *, explained: bool = True) -> Block:
    percent = f"{chosen_percent(comparison.level)} interval"
    columns: list[tuple[str, Callable[[Effect], str]]] = [
        ("ms per step", lambda e: short(e.name)),
        ("before", lambda e: number(e.before_ms)),
        ("after", lambda e: number(e.after_ms)),
        ("difference", lambda e: signed(e.difference_ms)),
        (percent, lambda e: span(e.low_ms, e.high_ms)),
        ("change", lambda e: change(e.change)),
        ("seen from", lambda e: with_percent(e.detectable)),
        ("p", lambda e: p_text(e.p_adjusted)),
        ("median", _median),
        ("verdict", lambda e: e.verdict),
    ]
    idle = {"median"} if not any(e.median for e in pair.effects) else set()
    tested = any(e.p is not None for e in pair.effects)
    idle |= set() if tested else {"seen from", "p"}
    columns = [column for column in columns if column[0] not in idle]
    left = frozenset({0, len(columns) - 1})
    holm = (
        "p is corrected for the number of rows (Holm): where two programs are equal, at most "
        f"{chosen_percent(1 - comparison.level)} of comparisons call any row slower or faster."
    )
    power = (
        "seen from (in wide tables): the smallest true change that 4 of 5 comparisons would find."
    )
    if not pair.effects:
        return Block("")
    table = table_of("", columns, pair.effects, left, _SPARE, _LAST)
    # On one screen the verdict has the reason of the step.
    told = "" if explained or pair.step is None else _alike(pair.step.reason)
    reasons = _reasons([effect for effect in pair.effects if _alike(effect.reason) != told])
    said = (holm, power) if explained and tested else ()
    return _block("What changed in a step", (*said, *reasons), table=table)


def _alike(reason: str) -> str:
    return _NUMBER.sub("", reason)


def _reasons(effects: Sequence[Effect]) -> list[str]:
    """Return the reasons of verdicts; reasons that differ in numbers are one."""
    rows: dict[tuple[str, str], list[Effect]] = {}
    for effect in effects:
        if effect.reason:
            rows.setdefault((effect.verdict, _alike(effect.reason)), []).append(effect)
    return [
        f"{verdict} ({', '.join(short(effect.name) for effect in effects)}): "
        f"{_together([effect.reason for effect in effects])}."
        for (verdict, _), effects in rows.items()
    ]


def _together(reasons: Sequence[str]) -> str:
    """Return texts that differ in numbers as one: ``the 0.200 to 1.40 ms by which ...``."""
    ranges = (sorted(set(of), key=float) for of in zip(*map(_NUMBER.findall, reasons), strict=True))
    said = (of[0] if len(of) == 1 else f"{of[0]} to {of[-1]}" for of in ranges)
    return _NUMBER.sub(lambda _: next(said), reasons[0])


def _median(effect: Effect) -> str:
    if effect.median is None:
        return "n/a"
    text = signed(effect.median.difference_ms)
    if effect.median.low_ms is None:
        return text
    return f"{text} ({span(effect.median.low_ms, effect.median.high_ms)})"


def _tops(comparison: Comparison) -> list[Block]:
    names = ("BASELINE", "OPTIMIZED")
    return [
        Block(f"=== {name} ===", (Code(tuple(text.splitlines())),))
        for name, text in zip(names, comparison.tops, strict=False)
        if text
    ]


def _functions(
    comparison: Comparison, pair: Pair, rows: int = ROWS, of: int | None = None
) -> Block:
    per = "ms per step" if comparison.basis == "step" else "ms"
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("function", lambda r: short(r.name)),
        ("calls", lambda r: _arrow(r.figures["calls"], counted)),
        (f"self {per}", lambda r: _arrow(r.figures["self_ms"], number)),
        ("difference", lambda r: signed(r.figures["self_ms"].difference)),
        ("change", lambda r: _change(r, "self_ms")),
        (f"cum {per}", lambda r: _arrow(r.figures["cum_ms"], number)),
        ("cum change", lambda r: _change(r, "cum_ms")),
        ("defined at", lambda r: short(r.place)),
        ("verdict", lambda r: r.verdict),
    ]
    if not any(r.verdict for r in pair.functions):
        columns.pop()
    words = ("function", "defined at", "verdict")
    left = frozenset(i for i, (header, _) in enumerate(columns) if header in words)
    shown = pair.functions[:rows]
    title = f"Functions, largest difference of self time first ({len(shown)} of "
    spare = ("cum change", f"cum {per}", "calls")
    table = table_of("", columns, shown, left, spare, ("difference", "change"))
    return _block(f"{title}{of or len(pair.functions)})", table=table)


_Columns = Sequence[tuple[str, str, Callable[[float | None], str]]]


_SECTION_COLUMNS: _Columns = (
    ("total ms", "total_ms", number),
    ("self ms", "self_ms", number),
    ("count", "count", counted),
    ("mean ms", "mean_ms", number),
    ("p99 ms", "p99_ms", number),
    ("gpu ms", "gpu_ms", number),
    ("blocked ms", "blocked_ms", number),
)
_KERNEL_COLUMNS: _Columns = (
    ("gpu ms", "total_ms", number),
    ("count", "count", counted),
    ("mean us", "mean_us", number),
)
_LOADER_COLUMNS: _Columns = (
    ("batches", "batches", counted),
    ("data ms", "data_ms", number),
    ("batch wait ms", "batch_wait_ms", number),
    ("waited for", "blocked_share", with_percent),
    ("load ms", "load_ms", number),
)


def _rows(
    title: str, rows: Sequence[Row], columns: _Columns, names: Mapping[str, str] | None = None
) -> Block:
    """Return rows as a table; ``names`` are shorter ones than in the rows."""

    def name(row: Row) -> str:
        return short(row.name) if names is None else names[row.name]

    made: list[tuple[str, Callable[[Row], str]]] = [("name", name)]
    for header, key, text in columns:
        if any(r.figures.get(key, _NOTHING) != _NOTHING for r in rows):
            made.append(_both_sides(header, key, text))
    table = table_of("", made, rows[:ROWS])
    if names is not None:
        full = tuple(row.name for row in rows[:ROWS])
        table = replace(table, ends=frozenset({0}), full=full)
    return _block(title, table=table)


_NOTHING = Change(None, None)


def _both_sides(
    header: str, key: str, text: Callable[[float | None], str]
) -> tuple[str, Callable[[Row], str]]:
    def cell(row: Row) -> str:
        figure = row.figures.get(key, _NOTHING)
        moved = _change(row, key)
        said = f" ({moved})" if row.status != "both" or figure.relative is not None else ""
        return _arrow(figure, text) + said

    return header, cell


def _change(row: Row, key: str) -> str:
    if row.status != "both":
        return row.status
    return change(row.figures.get(key, _NOTHING).relative)


def _arrow(change: Change, text: Callable[[float | None], str]) -> str:
    before = "-" if change.before is None else text(change.before)
    after = "-" if change.after is None else text(change.after)
    return f"{before} -> {after}"


# ---- three files and more ----


def _many(comparison: Comparison) -> list[Block]:
    """Return a table with a column per run, each against the first."""
    pairs = comparison.pairs
    labels = _names(comparison, _COLUMN)[1:]
    per = "ms per step" if comparison.basis == "step" else "ms"
    out = [
        _block(
            "",
            tuple(
                f"{label}: {line}"
                for label, pair in zip(labels, pairs, strict=True)
                for line in verdict_lines(comparison, pair)
            ),
        ),
        _columns("Before and after", comparison, _summary_cells(pairs)),
        _columns("What changed in a step (ms)", comparison, _effect_cells(pairs)),
        _columns(f"Functions, self {per}", comparison, _row_cells(pairs, "functions", "self_ms")),
        _columns(f"Kernels, {per}", comparison, _kernel_cells(pairs)),
        _columns("Data loaders, data ms per batch", comparison,
                 _row_cells(pairs, "loaders", "data_ms")),
    ]  # fmt: skip
    for label, pair in zip(labels, pairs, strict=True):
        settings = _settings(pair)
        out.append(replace(settings, title=f"{settings.title}: {label}"))
    notes = dict.fromkeys(note for pair in pairs for note in pair.notes)
    out.append(_block("Notes", tuple(notes)))
    return _said(out)


def _columns(title: str, comparison: Comparison, cells: Iterable[tuple[str, ...]]) -> Block:
    headers = ("", *_names(comparison, _COLUMN))
    return _block(title, table=Table("", headers, tuple(cells)))


def _summary_cells(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    # Pairs may have other units: samples per second need a batch size on both sides.
    names = dict.fromkeys((row.name, row.unit) for pair in pairs for row in pair.summary)
    places = {name: i for i, (name, _) in reversed(list(enumerate(names)))}
    out = []
    for name, unit in sorted(names, key=lambda of: places[of[0]]):
        rows = [
            next((r for r in pair.summary if (r.name, r.unit) == (name, unit)), None)
            for pair in pairs
        ]
        first = next((row.before_text for row in rows if row and row.before_text), "n/a")
        out.append((name, first, *(
            "n/a" if row is None else f"{row.after_text or 'n/a'} "
            f"({change(row.change.relative)})" for row in rows)))  # fmt: skip
    return out


def _effect_cells(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    names = dict.fromkeys(effect.name for pair in pairs for effect in pair.effects)
    out = []
    for name in names:
        rows = [pair.effect(name) for pair in pairs]
        first = next((row.before_ms for row in rows if row is not None), None)
        out.append((short(name), number(first), *map(_effect_cell, rows)))
    return out


def _effect_cell(effect: Effect | None) -> str:
    if effect is None:
        return "n/a"
    verdict = {NOT_TESTED: "?", SLOWER: SLOWER, FASTER: FASTER}.get(effect.verdict, "=")
    return f"{number(effect.after_ms)} ({change(effect.change)} {verdict})"


def _row_cell(value: Change | None) -> str:
    if value is None or value.after is None:
        return "-"
    return f"{number(value.after)} ({'new' if value.before is None else change(value.relative)})"


def _kernel_cells(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    names = kernel_cells([row.name for pair in pairs for row in pair.kernels])
    return _row_cells(pairs, "kernels", "total_ms", names)


def _row_cells(
    pairs: Sequence[Pair], table: str, key: str, names: Mapping[str, str] | None = None
) -> list[tuple[str, ...]]:
    by_name: dict[tuple[str, str], list[Row | None]] = {}
    for i, pair in enumerate(pairs):
        for row in getattr(pair, table):
            # The name of a row of the first run must not depend on the other run.
            place = row.place.split(" (was ")[-1].rstrip(")") if row.place else ""
            by_name.setdefault((row.name, place), [None] * len(pairs))[i] = row

    def largest(rows: Iterable[Row | None]) -> float:
        changes = [r.figures[key].difference for r in rows if r is not None and key in r.figures]
        return max((abs(value or 0.0) for value in changes), default=0.0)

    ordered = sorted(by_name.items(), key=lambda item: -largest(item[1]))[:ROWS]
    out = []
    for (name, _), rows in ordered:
        changes = [None if r is None else r.figures.get(key, _NOTHING) for r in rows]
        first = next((c.before for c in changes if c is not None and c.before is not None), None)
        before = "-" if first is None else number(first)
        shown = short(name) if names is None else names[name]
        out.append((shown, before, *map(_row_cell, changes)))
    return out
