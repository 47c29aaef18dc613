"""Findings: a few lines for one screen, blocks for the full text."""

from collections.abc import Sequence

from fastprof.findings.examine import examine, subject
from fastprof.report.figures import plural, with_percent
from fastprof.report.findings import Examination, Finding
from fastprof.report.model import Report
from fastprof.report.rows import OWN_COST
from fastprof.report.step_table import costs_are_limit
from fastprof.tables.blocks import Block, Items, Part, Text
from fastprof.tables.cells import number, shortened
from fastprof.tables.layout import whole_sentences, wrapped

#: Findings and notes shown; the saved run has all of them.
MOST = 10
#: Lines for the fix of others than the first finding.
_OTHER_FIX = 1
_WIDEST = 400
#: A note about this share of a step is also on the screen.
_LARGE = 0.25
#: From this part of a step on, fastprof's cost makes savings look smaller than they are.
_OWN_PART = 0.2


def verdict_lines(report: Report, width: int, most: int = 3, why: int = 4) -> list[str]:
    """Return the first ``most`` findings with fix, for one screen.

    The first one has up to ``why`` lines of reasons, and fewer for its fix.  A longer first
    sentence is still shown whole.

    Without findings the lines list what was checked; empty if no rule had a result.
    """
    found = examine(report)
    if not found.checked:
        return []
    if not found.findings:
        return [*wrapped(_none(found), width), *_unusual(found, width)]
    lines: list[str] = []
    for i, finding in enumerate(found.findings[:most], 1):
        lines += wrapped(_head(finding), width, f"{i}. ")
        if i == 1 and finding.evidence:
            reasons = f"Why: {' '.join(map(_line, finding.evidence))}"
            lines += whole_sentences(reasons, width, why, "   ")
        if finding.fix:
            fix = f"Fix: {' '.join(map(_line, finding.fix))}"
            lines += whole_sentences(fix, width, why - 1 if i == 1 else _OTHER_FIX, "   ")
    more = len(found.findings) - most
    lines += [f"   {more} more with --findings."] if more > 0 else []
    for text in (*_of_what(report), *not_judged(found)):
        lines += wrapped(text, width)
    return [*lines, *_unusual(found, width)]


def _unusual(found: Examination, width: int) -> list[str]:
    """Return notes with a large part of the steps, such as other programs on the CPUs."""
    # A note on time in no section always has as much, even if it promises no saving.
    large = [
        note
        for note in found.notes
        if note.rule == "unaccounted" or (note.saving_share or 0.0) >= _LARGE
    ]
    if not large:
        return []
    said = "; ".join(_line(note.title) for note in large)
    lines = wrapped(f"Unusual: {said}.", width, rest="   ")
    if large[0].fix:
        lines += whole_sentences(f"Fix: {_line(large[0].fix[0])}", width, _OTHER_FIX, "   ")
    return lines


def closing_lines(report: Report, width: int) -> list[str]:
    """Return the verdict in a few lines: the first finding and its fix; empty without findings."""
    found = examine(report)
    if not found.findings:
        return []
    first = found.findings[0]
    more = len(found.findings) - 1
    said = f"{_head(first)} ({more} more above)" if more else _head(first)
    lines = wrapped(said, width)
    if first.fix:
        lines += whole_sentences(f"Fix: {_line(first.fix[0])}", width, 2, rest="  ")
    return lines


def findings_block(report: Report) -> list[Block]:
    """Return the block of findings, those with most time first.

    Empty if no rule had a result.
    """
    found = examine(report)
    if not found.checked:
        return []
    parts = []
    for i, finding in enumerate(found.findings[:MOST], 1):
        parts.append(Text(_head(finding), f"{i}. "))
        if finding.evidence:
            parts.append(Text(f"Why: {' '.join(map(_line, finding.evidence[:2]))}", "   "))
        if finding.fix:
            parts.append(Text(f"Fix: {' '.join(map(_line, finding.fix))}", "   "))
    if len(found.findings) > MOST:
        more = len(found.findings) - MOST
        parts.append(Text(f"({more} more: fastprof report F --findings)", "   "))
    if found.notes:
        notes = "; ".join(f"{_line(f.title)} ({_line(f.threshold)})" for f in found.notes[:MOST])
        parts.append(Text(f"Unusual, not necessarily a problem: {notes}.", rest="  "))
    parts += map(Text, _of_what(report))
    return [_titled(found, parts)]


def _of_what(report: Report) -> list[str]:
    """Return what savings are a part of if that is not the recorded step, or mostly fastprof's.

    Empty if no finding has a saving.
    """
    rows = report.shown_steps.rows
    busy = (
        ["Savings are of a step without waits for a CPU, other shares as measured."]
        if examine(report).without_waits
        else []
    )
    own = next((row.share or 0.0 for row in rows if row.name == OWN_COST), 0.0)
    promised = any(finding.saving_share is not None for finding in examine(report).findings)
    if not promised or not _OWN_PART <= own < 1.0:
        return busy
    limit = report.plain is None and costs_are_limit(report.snapshot)
    part = f"{'at most ' if limit else ''}{with_percent(own)}"
    larger = f"the stated percentage times {1.0 / (1.0 - own):.1f}"
    step = f"fastprof takes {part} of a step."
    return [*busy, f"{step} Of a step without it, each saving is a larger part: {larger}."]


def all_findings(report: Report) -> list[Block]:
    """Return every finding and note in full, then the unchecked rules and their reasons."""
    found = examine(report)
    blocks = [_titled(found, [*map(Text, _of_what(report))])]
    for i, finding in enumerate((*found.findings, *found.notes), 1):
        value = (
            f"rule: {finding.rule}; value: {number(finding.value)} {_line(finding.unit)}; "
            f"limit: {_line(finding.threshold)}"
        )
        source = f"source of the limit: {_line(finding.source)}"
        fixes = tuple(f"Fix: {_line(text)}" for text in finding.fix)
        parts: tuple[Part, ...] = (
            Text(_head(finding), f"{i}. "),
            *(Text(text, "   ") for text in (value, source)),
            Items(tuple(map(_line, finding.evidence)), "   - "),
            Items(fixes, "   "),
        )
        blocks.append(Block("", parts))
    if rows := explained(found):
        blocks.append(Block("Left out, because another finding explains it:", (Items(rows),)))
    if rows := unchecked(report):
        blocks.append(Block("Not checked:", (Items(rows),)))
    return blocks


def explained(found: Examination) -> tuple[str, ...]:
    """Return a line for each rule that another finding explains."""
    return tuple(
        f"{_capital(subject(rule))}: {', '.join(map(subject, by))}" for rule, by in found.explained
    )


def unchecked(report: Report) -> tuple[str, ...]:
    """Return a line for each unchecked rule, with the reason; one for all that need a GPU."""
    found = examine(report)
    no_gpu = report.gpu is not None and report.gpu.lacks_device
    of_gpu = [rule for rule, why in found.abstained if no_gpu and _about_gpu(why)]
    rows = tuple(
        f"{_capital(subject(rule))}: {_line(why)}"
        for rule, why in found.abstained
        if rule not in of_gpu
    )
    names = ", ".join(map(subject, of_gpu))
    return (*rows, f"{_capital(names)}: no GPU was found") if of_gpu else rows


def _titled(found: Examination, parts: Sequence[Part]) -> Block:
    if found.findings:
        return Block("Findings, largest first:", (*parts, *map(Text, not_judged(found))))
    return Block("", (Text(_none(found)), *parts))


def _none(found: Examination) -> str:
    lacking = [why for rule, why in found.abstained if rule not in found.uncertain]
    missing = "no GPU data" if all(map(_about_gpu, lacking)) else "no data for them"
    left = f", {len(lacking)} skipped: {missing}" if lacking else ""
    said = f"No finding: {plural(len(found.checked), 'rule')} checked{left}."
    return " ".join([said, *not_judged(found)])


def _about_gpu(why: str) -> bool:
    return "GPU" in why or "device" in why


def not_judged(found: Examination) -> list[str]:
    """Return a sentence about the rules that saw what may be a wait for a CPU."""
    if not found.uncertain:
        return []
    subjects = ", ".join(map(subject, found.uncertain))
    return [f"Not judged, because the time may be a wait for a CPU: {subjects}."]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _head(finding: Finding) -> str:
    parts = [f"estimated saving: {finding.saving}"] if finding.saving else []
    parts += [f"measured: {_line(finding.measured)}"] if finding.measured else []
    saving = f" [{'; '.join(parts)}]" if parts else ""
    return f"{finding.severity.upper()}: {_line(finding.title)}{saving}"


def _line(text: str) -> str:
    return shortened(text, _WIDEST)
