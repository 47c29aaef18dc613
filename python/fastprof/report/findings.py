"""The model of a finding of :mod:`fastprof.findings`; here so that outputs can read it."""

from __future__ import annotations

from dataclasses import dataclass

#: From the worst; ``note`` is outside of the usual without a reason to act.
SEVERITIES = ("critical", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to change, why, and an estimate of what it saves.

    ``rule`` is the rule's id, ``severity`` one of :data:`SEVERITIES`.  ``value`` in ``unit``
    was held against ``threshold`` (a text, whose origin is ``source``).  ``evidence`` and
    ``fix`` are sentences; evidence names a section, function, call site, kernel, loader or
    rank.  ``saving_ms`` is an estimate per step, less what findings of more specific
    rules already save; ``saving_share`` is the same as a fraction of the step, or of the
    recording where there were no steps.  Both are None where no time can be
    given, or how much of it the fix saves is not known.
    """

    rule: str
    severity: str
    title: str
    value: float
    unit: str
    threshold: str
    source: str
    evidence: tuple[str, ...]
    fix: tuple[str, ...]
    saving_ms: float | None = None
    saving_share: float | None = None


@dataclass(frozen=True, slots=True)
class Examination:
    """All rules on one report.

    ``findings`` are critical ones and warnings, largest first; ``notes`` have the
    severity ``note``.  ``abstained`` are rules that lacked a signal, with what was missing;
    ``explained`` are rules whose time others account for, with the ids of these.
    ``checked`` are all rules that came to an answer.  ``uncertain`` are those of ``abstained``
    that saw something, which may be the wait for a CPU.
    """

    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    abstained: tuple[tuple[str, str], ...] = ()
    explained: tuple[tuple[str, tuple[str, ...]], ...] = ()
    checked: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
