"""Findings as lines, for text and for terminals alike."""

from __future__ import annotations

from fastprof.report.figures import plural
from fastprof.report.findings import Examination, Finding
from fastprof.report.model import Report
from fastprof.tables.cells import number, percent, shortened
from fastprof.tables.layout import PIPED, whole_sentences, wrapped

#: Findings and notes shown; the saved run has all of them.
MOST = 10
#: Findings on one screen, and lines of the reason and the fix of the first and of others; a
#: sentence that needs more lines has them.
_ON_SCREEN = 3
_WHY, _FIX, _OTHER_FIX = 2, 3, 1
_WIDEST = 400


def verdict_lines(report: Report, width: int) -> list[str]:
    """Return the first findings with reason and fix, for one screen.

    Where there are none it says what was checked; empty where no rule could say anything.
    """
    found = report.examination
    if not found.checked:
        return []
    if not found.findings:
        return wrapped(_none(found), width)
    lines: list[str] = []
    for i, finding in enumerate(found.findings[:_ON_SCREEN], 1):
        lines += wrapped(_head(finding), width, f"{i}. ")
        if i == 1 and finding.evidence:
            lines += whole_sentences(f"Why: {_line(finding.evidence[0])}", width, _WHY, "   ")
        if finding.fix:
            fix = f"Fix: {' '.join(map(_line, finding.fix))}"
            lines += whole_sentences(fix, width, _FIX if i == 1 else _OTHER_FIX, "   ")
    more = len(found.findings) - _ON_SCREEN
    return [*lines, f"   {more} more with --findings."] if more > 0 else lines


def closing_lines(report: Report, width: int) -> list[str]:
    """Return the verdict in a few lines: the first finding and its fix."""
    found = report.examination
    if not found.checked:
        return []
    if not found.findings:
        return wrapped(_none(found), width)
    first = found.findings[0]
    more = len(found.findings) - 1
    said = f"{_head(first)} ({more} more above)" if more else _head(first)
    lines = wrapped(said, width)
    if first.fix:
        lines += whole_sentences(f"Fix: {_line(first.fix[0])}", width, 2, rest="  ")
    return lines


def findings_lines(report: Report, width: int = PIPED) -> list[str]:
    """Return the block of findings, most saving first.

    Empty where no rule could say anything.
    """
    found = report.examination
    if not found.checked:
        return []
    lines = ["Findings, most saving first:"] if found.findings else wrapped(_none(found), width)
    for i, finding in enumerate(found.findings[:MOST], 1):
        lines += [*wrapped(_head(finding), width, f"{i}. "), *_body(finding, width)]
    if len(found.findings) > MOST:
        lines.append(f"   ({len(found.findings) - MOST} more: fastprof report F --findings)")
    if found.notes:
        notes = "; ".join(f"{_line(f.title)} ({_line(f.threshold)})" for f in found.notes[:MOST])
        lines += wrapped(f"Unusual, not necessarily a problem: {notes}.", width, rest="  ")
    return lines


def all_findings(report: Report, width: int = PIPED) -> list[str]:
    """Return every finding and note in full, then what was not checked and why."""
    found = report.examination
    lines = ["Findings, most saving first:"] if found.findings else wrapped(_none(found), width)
    for i, finding in enumerate((*found.findings, *found.notes), 1):
        value = (
            f"rule: {finding.rule}; value: {number(finding.value)} {_line(finding.unit)}; "
            f"limit: {_line(finding.threshold)}"
        )
        lines += ["", *wrapped(_head(finding), width, f"{i}. "), *wrapped(value, width, "   ")]
        lines += wrapped(f"source of the limit: {_line(finding.source)}", width, "   ")
        for text in finding.evidence:
            lines += wrapped(_line(text), width, "   - ")
        for text in finding.fix:
            lines += wrapped(f"Fix: {_line(text)}", width, "   ")
    if found.explained:
        lines += ["", "Explained by others:"]
        for rule, by in found.explained:
            lines += wrapped(f"{rule}: {', '.join(by)}", width, "- ")
    if found.abstained:
        lines += ["", "Not checked:"]
        for rule, reason in found.abstained:
            lines += wrapped(f"{rule}: {_line(reason)}", width, "- ")
    return lines


def _none(found: Examination) -> str:
    skipped = len(found.abstained)
    left = f", {skipped} skipped: {_missing(found)}" if skipped else ""
    return f"No finding: {plural(len(found.checked), 'rule')} checked{left}."


def _missing(found: Examination) -> str:
    about_gpu = all("GPU" in why or "device" in why for _, why in found.abstained)
    return "no GPU data" if about_gpu else "no data for them"


def _head(finding: Finding) -> str:
    return f"{finding.severity.upper()}: {_line(finding.title)}{_saving(finding)}"


def _saving(finding: Finding) -> str:
    if finding.saving_share is None:
        return ""
    share = f"{percent(finding.saving_share)} %"
    if finding.saving_ms is None:
        return f" [estimated saving: {share}]"
    return f" [estimated saving: {number(finding.saving_ms)} ms per step, {share}]"


def _body(finding: Finding, width: int) -> list[str]:
    lines = []
    if finding.evidence:
        lines += wrapped(f"Why: {' '.join(map(_line, finding.evidence[:2]))}", width, "   ")
    if finding.fix:
        lines += wrapped(f"Fix: {' '.join(map(_line, finding.fix))}", width, "   ")
    return lines


def _line(text: str) -> str:
    return shortened(text, _WIDEST)
