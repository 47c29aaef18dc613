"""The model of a finding of :mod:`fastprof.findings`; here because outputs read it."""

from dataclasses import dataclass

from fastprof.report.figures import duration, with_percent

#: From the worst; ``note``: unusual, but no reason to act.
SEVERITIES = ("critical", "warning", "note")

#: Before a rule's id: the field of ``meta`` with the measured saving of its finding.
TRIED = "tried_"


@dataclass(frozen=True, slots=True)
class Finding:
    """One suggested change, its reason, and an estimate of the time that it saves.

    ``rule`` is the rule's id, ``severity`` one of :data:`SEVERITIES`.  The rule compared ``value``
    in ``unit`` with ``threshold`` (a text, whose origin is ``source``).  ``evidence`` and ``fix``
    are sentences; evidence names a section, function, call site, kernel, loader or rank.
    ``saving_ms`` is an estimate per step, less the savings of findings of more specific rules;
    ``saving_share`` is the same as a fraction of the step, or of the recording without steps.  Both
    are None if the rule has no time, or cannot tell how much the fix saves.  ``saving_total_ms`` is
    the saving in the whole recording if the time lies outside the steps, else None.  ``measured``
    is the saving that ``fastprof try`` has measured, as text; empty if it was not tried.
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
    saving_total_ms: float | None = None
    measured: str = ""

    @property
    def saving(self) -> str:
        """The estimated saving as text: ``12.3 ms per step, 30.1 %``; empty if unknown."""
        if self.saving_total_ms is not None:
            return f"{duration(self.saving_total_ms)} in total"
        ms = "" if self.saving_ms is None else f"{duration(self.saving_ms)} per step"
        share = "" if self.saving_share is None else with_percent(self.saving_share)
        return ", ".join(filter(None, (ms, share)))


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of all rules on one report.

    ``findings`` are critical ones and warnings, largest first; ``notes`` have the severity
    ``note``.  ``abstained`` are rules that lacked a signal, with the missing signal; ``explained``
    are rules whose time belongs to other rules, with the ids of these.  ``checked`` are all rules
    that reached a result.  ``uncertain`` are rules of ``abstained`` that saw something, which may
    be the wait for a CPU.  ``without_waits``: a saving is of a step without its wait for a CPU.
    """

    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    abstained: tuple[tuple[str, str], ...] = ()
    explained: tuple[tuple[str, tuple[str, ...]], ...] = ()
    checked: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    without_waits: bool = False
