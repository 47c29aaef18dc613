"""Findings as a few plain lines, for text and for terminals alike."""

from __future__ import annotations

from fastprof.exporters.cells import number, percent
from fastprof.names import ascii_name
from fastprof.report.findings import Examination, Finding
from fastprof.report.model import Report

#: Findings and notes shown; the saved run has all of them.
MOST = 10
_WIDEST = 400


def findings_lines(report: Report) -> list[str]:
    """Return the block of findings: at most three lines each, most saving first.

    Empty where no rule could say anything.
    """
    found = report.examination
    if not found.checked:
        return []
    lines = ["Findings, most saving first:"] if found.findings else [_none(found)]
    for i, finding in enumerate(found.findings[:MOST], 1):
        lines += [f"{i}. {_head(finding)}", *_body(finding)]
    if len(found.findings) > MOST:
        lines.append(f"   ({len(found.findings) - MOST} more: fastprof report F --findings)")
    if found.notes:
        notes = "; ".join(f"{_line(f.title)} ({_line(f.threshold)})" for f in found.notes[:MOST])
        lines.append(f"Outside of the usual, no more: {notes}.")
    return lines


def all_findings(report: Report) -> list[str]:
    """Return every finding and note in full, then what was not checked and why."""
    found = report.examination
    lines = ["Findings, most saving first:"] if found.findings else [_none(found)]
    for i, finding in enumerate((*found.findings, *found.notes), 1):
        lines += [
            "",
            f"{i}. {_head(finding)}",
            (
                f"   rule: {finding.rule}; value: {finding.value:.4g} {_line(finding.unit)}; "
                f"limit: {_line(finding.threshold)}"
            ),
            f"   source of the limit: {_line(finding.source)}",
            *(f"   - {_line(text)}" for text in finding.evidence),
            *(f"   Fix: {_line(text)}" for text in finding.fix),
        ]
    if found.explained:
        lines += ["", "Explained by others:"]
        lines += [f"- {rule}: {', '.join(by)}" for rule, by in found.explained]
    if found.abstained:
        lines += ["", "Not checked:"]
        lines += [f"- {rule}: {_line(reason)}" for rule, reason in found.abstained]
    return lines


def _none(found: Examination) -> str:
    left = f", {len(found.abstained)} lacked a signal" if found.abstained else ""
    return f"Findings: none ({len(found.checked)} rules checked{left})."


def _head(finding: Finding) -> str:
    return f"{finding.severity.upper()}: {_line(finding.title)}{_saving(finding)}"


def _saving(finding: Finding) -> str:
    if finding.saving_share is None:
        return ""
    share = f"{percent(finding.saving_share)} %"
    if finding.saving_ms is None:
        return f" [saves at most {share}]"
    return f" [saves at most {number(finding.saving_ms)} ms per step, {share}]"


def _body(finding: Finding) -> list[str]:
    lines = []
    if finding.evidence:
        lines.append(f"   Why: {_line(' '.join(finding.evidence[:2]))}")
    if finding.fix:
        lines.append(f"   Fix: {_line(' '.join(finding.fix))}")
    return lines


def _line(text: str) -> str:
    return ascii_name(text, _WIDEST)
