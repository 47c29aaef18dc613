"""The result of a rule; makes sure that no millisecond counts for two findings.

A rule measures a time, the *gross* saving.  Rules run from the specific to the general (the order
of ``RULES``).  Each draft names the place of its time: a group of functions, sections, or the whole
step.  The engine subtracts the part that earlier findings already save, and grades the rest by the
same limits.  A draft whose rest is within the limits is *explained*: it is not a finding, and the
examination names its explanation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fastprof.findings.cpu_waits import Share
from fastprof.findings.fixes import Fixes
from fastprof.findings.measurements import Facts
from fastprof.findings.thresholds import CRITICAL_STEPS, MIN_STEPS, Limit
from fastprof.findings.uses import Use
from fastprof.names import readable
from fastprof.report import figures
from fastprof.report.figures import duration, plural

Grade = Callable[[float], str | None]


#: Claims of a rule about time in which the GPU works: it explains nothing of its idle time.
BUSY: Mapping[str, float] = {"gpu-utilization": 0.0, "small-batch": 0.0}


class Abstain(Exception):  # noqa: N818 - it is an answer, not an error
    """A rule lacks a signal; the message says which."""


class Uncertain(Abstain):
    """The wait for a CPU leaves open whether a time is beyond its limit."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A finding before the engine considers the others.

    ``ms`` is the gross saving per span and ``grade`` returns the severity of a rest of it.
    ``group`` names the functions with this time, ``sections`` the sections; ``everywhere``: the
    time is in the whole span, outside the sections ``without``.  ``places`` splits ``ms`` by
    outermost section, ``shared`` by group, if known; ``claims`` gives directly how many ms of
    another rule's time this explains, ``thins`` which part of any other rule's time, if it is
    spread over the whole step.  Any finding of the rules in ``yields_to`` explains all of it.
    Without ``promises``, it is unknown how much of ``ms`` the fix saves.  ``seen`` is the time
    behind the value if the fix saves only ``ms`` of it.  ``beside``: the time lies before, between
    or after the steps, over which ``ms`` spreads it.  ``on_host``: the host's own work, which costs
    nothing while the GPU is busy.  ``outside``: other programs are the cause, so those in the
    program come first.
    """

    value: float
    unit: str
    title: str
    severity: str
    threshold: str
    source: str
    evidence: tuple[str, ...]
    fix: tuple[str, ...] = ()
    ms: float | None = None
    grade: Grade | None = None
    group: str | None = None
    sections: frozenset[str] = frozenset()
    everywhere: bool = False
    without: frozenset[str] = frozenset()
    places: Mapping[str, float] = field(default_factory=dict)
    shared: Mapping[str, float] = field(default_factory=dict)
    claims: Mapping[str, float] = field(default_factory=dict)
    thins: float = 0.0
    yields_to: frozenset[str] = frozenset()
    promises: bool = True
    seen: float | None = None
    beside: bool = False
    on_host: bool = False
    outside: bool = False

    def saving(self, ms: float, *, of: float) -> Draft:
        """Return the draft for a fix that saves only ``ms`` of the draft's time ``of``."""
        part = ms / of if of > 0 else 0.0
        grade = self.grade
        return replace(
            self.scaled_places(part),
            ms=ms,
            seen=of,
            grade=None if grade is None or part <= 0 else lambda rest: grade(rest / part),
        )

    def scaled(self, part: float) -> Draft:
        """Return the draft with ``part`` of its time, in each place and group."""
        return replace(
            self.scaled_places(part),
            ms=None if self.ms is None else part * self.ms,
            claims={name: part * ms for name, ms in self.claims.items()},
        )

    def scaled_places(self, part: float) -> Draft:
        """Return the draft with ``part`` of the time in each place and group."""
        return replace(
            self,
            places={name: ms * part for name, ms in self.places.items()},
            shared={name: ms * part for name, ms in self.shared.items()},
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """``check`` examines a report; ``subject`` is what it looks at, in the words of a report.

    Rules run by ``order``: from the specific to the general, so that a later one's time excludes an
    earlier one's.  ``fixes`` are its texts by trainer, where a draft has no other; ``limits`` those
    that no other rule has.
    ``knows_waits``: its kind of time is another wait, or the wait for a CPU itself.
    ``changes_training``: the fix also changes the results of the training.  ``docs/findings`` has a
    section for each rule.
    """

    id: str
    subject: str
    check: Callable[[Facts], Draft | None]
    order: int = 0
    fixes: Fixes = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()
    knows_waits: bool = False
    changes_training: bool = False


def part_of(earlier: Draft, later: Draft, rule: str) -> float:
    """Return how many ms of ``later``, a draft of ``rule``, also belong to ``earlier``."""
    if earlier.ms is None or later.ms is None:
        return 0.0
    if rule in earlier.claims:
        return min(earlier.claims[rule], later.ms)
    if later.everywhere:  # in the steps
        if earlier.beside or (earlier.sections and earlier.sections <= later.without):
            return 0.0
        beyond = sum(earlier.places.get(name, 0.0) for name in later.without)
        return min(max(0.0, earlier.ms - beyond), later.ms)
    if earlier.thins:
        return earlier.thins * later.ms
    inside = sum(earlier.places.get(name, 0.0) for name in later.sections)
    if later.group is not None:
        inside = max(inside, earlier.shared.get(later.group, 0.0))
        if later.group == earlier.group:
            inside = later.ms
    if earlier.group is not None:
        inside = max(inside, later.shared.get(earlier.group, 0.0))
    return min(inside, earlier.ms, later.ms)


# ---- helpers for rules ----


def need_steps(facts: Facts, least: int = MIN_STEPS) -> None:
    """Abstain unless enough steps were measured."""
    if not facts.steps:
        raise Abstain("no step was measured: end each step with Profiler.step()")
    if facts.steps < least:
        raise Abstain(f"{plural(facts.steps, 'step')} measured, {least} are needed")


def need_sample(facts: Facts) -> None:
    """Abstain if steps were counted, but not enough."""
    if facts.report.steps.count:
        need_steps(facts)


def need_observed(facts: Facts) -> None:
    """Abstain if there may be a GPU that was not observed: the host may only wait for it."""
    if facts.hidden_gpu:
        raise Abstain(
            "the GPU was not observed, so waiting for it cannot be distinguished from the work"
        )


def need_functions(facts: Facts) -> None:
    """Abstain unless functions were recorded."""
    if not facts.has_functions:
        raise Abstain("functions were not recorded")
    need_sample(facts)


def capped(severity: str | None, facts: Facts) -> str | None:
    """Return the severity that the number of steps allows: critical needs 20."""
    return "warning" if severity == "critical" and facts.steps < CRITICAL_STEPS else severity


def percent(share: float) -> str:
    """Format a fraction: ``40.0 %``."""
    return figures.with_percent(share)


def span_text(ms: float, facts: Facts) -> str:
    """Format a time per span: ``12.3 ms per step``."""
    return duration(ms) + (" per step" if facts.per == "step" else " in total")


def waits_text(facts: Facts, share: Share) -> str:
    """Return a sentence: which part of a step without its wait for a CPU a time is."""
    low, high = percent(share.low), percent(min(1.0, share.high))
    part = low if low == high else f"{low.removesuffix(' %')} to {high}"
    return (
        f"Without the wait for a CPU, {percent(facts.cpu_waits.share)} of the step, this is "
        f"{part} of a step."
    )


def while_idle(facts: Facts, ms: float) -> tuple[float, str]:
    """Return the part of the host's time that can be saved, and a sentence if it is not all.

    While the GPU is busy with earlier work, the host's work costs nothing: at most the time in
    which the GPU is idle can be saved.
    """
    if facts.timeline is None or facts.timeline.idle_ms >= ms:
        return ms, ""
    ms = facts.timeline.idle_ms
    return ms, f"The GPU is idle for {span_text(ms, facts)}."


#: At most this many callers or places are named; a caller with a smaller part of the time is not.
_NAMED, _LITTLE = 3, 0.01


def callers(facts: Facts, group: str) -> str:
    """Return a sentence on the callers of a group, most time first; empty if unknown."""
    return called_from(facts.use(group), facts)


def called_from(use: Use, facts: Facts) -> str:
    """Return the callers of a group's use, like :func:`callers`."""
    found = [c for i, c in enumerate(use.callers[:_NAMED]) if not i or c.ms >= _LITTLE * use.ms]
    parts = [
        f"{c.text} ({plural(c.calls, 'call') + ', ' if c.calls else ''}{span_text(c.ms, facts)})"
        for c in found
    ]
    return f"Called from {'; '.join(parts)}." if parts else ""


def split_places(facts: Facts, kind: str) -> str:
    """Return the places of one kind of time, from the split of the steps; empty if unknown."""
    for row in facts.report.shown_steps.split:
        if row.name == kind and row.places:
            count = max(1, facts.report.shown_steps.measured)
            parts = [
                f"{readable(text, 100)} {span_text(ns / 1e6 / count, facts)}"
                for text, ns in row.places[:_NAMED]
            ]
            return f"Most of it: {'; '.join(parts)}."
    return ""


def sentences(*parts: str) -> tuple[str, ...]:
    """Return the sentences that are not empty."""
    return tuple(part for part in parts if part)


def share_draft(
    facts: Facts,
    limit: Limit,
    ms: float,
    *,
    rule: str,
    title: str,
    evidence: Sequence[str],
    value: float | None = None,
    fix: Sequence[str] = (),
    group: str | None = None,
    sections: frozenset[str] = frozenset(),
    places: Mapping[str, float] | None = None,
    claims: Mapping[str, float] | None = None,
    beside: bool = False,
    on_host: bool = False,
) -> Draft | None:
    """Return the draft of a rule about its time's share of the span, None if within the limit.

    Args:
        ms: the time per span, which is also the estimated saving (Amdahl: the step
            without it).
        rule: the rule's id, which selects the texts of fixes.
        title: ``{share}`` in it becomes the share.
        evidence: sentences; empty ones are left out.
        value: the share to show, if it differs from the share of ``ms``.
        fix: the change, if it differs from the rule's text.
        places: the time by outermost section, if it is not that of the group.
        claims, beside: see :class:`Draft`.
        on_host: the host's own work, of which at most the part with an idle GPU can be saved; a
            sentence behind the first one tells which part.
    """
    if on_host:
        value = facts.share(ms) if value is None else value
        ms, stalled = while_idle(facts, ms)
        evidence = (*evidence[:1], stalled, *evidence[1:])
    beside = beside and facts.per == "step"
    ms = ms if beside else min(ms, facts.span_ms)
    share = facts.share(ms) if value is None else value
    share = share if beside else min(1.0, share)
    severity = capped(limit.grade(facts.share(ms)), facts)
    if severity is None:
        return None
    if facts.per != "step":
        title = title.replace("of the step", "of the run")
    use = facts.use(group) if group else None
    scale = ms / use.ms if use is not None and use.ms else 0.0
    return Draft(
        value=100 * share,
        unit="%",
        title=title.replace("{share}", percent(share)),
        severity=severity,
        threshold=limit.text(severity),
        source=limit.origin,
        evidence=sentences(*evidence),
        fix=tuple(fix),
        ms=ms,
        grade=lambda rest: capped(limit.grade(facts.share(rest)), facts),
        group=group,
        sections=sections,
        places=places
        if places is not None
        else {k: v * scale for k, v in use.places.items()}
        if use
        else {},
        shared={k: v * scale for k, v in use.shared.items()} if use else {},
        claims=claims or {},
        beside=beside,
        on_host=on_host and not beside,
    )
