"""Findings: changes for a training run, ranked by the most that each can save.

``examine`` runs every rule on a report. :mod:`fastprof.findings.draft` divides shared milliseconds
between rules.
"""

from dataclasses import replace

from fastprof.findings.cpu_waits import NEAR
from fastprof.findings.draft import (
    Abstain,
    Draft,
    Rule,
    Uncertain,
    part_of,
    percent,
    span_text,
    waits_text,
)
from fastprof.findings.fixes import fixes, in_float16
from fastprof.findings.measurements import Facts, of_steps
from fastprof.findings.rules import (
    beside,
    calls,
    compiling,
    cpu,
    data,
    gpu,
    host,
    kernels,
    memory,
    ranks,
    steps,
    tensors,
)
from fastprof.findings.thresholds import LIMITS, Limit
from fastprof.report.findings import SEVERITIES, TRIED, Examination, Finding
from fastprof.report.model import Report

_SUBJECTS = (beside, calls, compiling, cpu, data, gpu, host, kernels, memory, ranks, steps, tensors)

#: From the specific to the general.
RULES: tuple[Rule, ...] = tuple(
    sorted((rule for subject in _SUBJECTS for rule in subject.RULES), key=lambda rule: rule.order)
)

_OF_ID = {rule.id: rule for rule in RULES}

#: If waits for a CPU leave a smaller part of a share, or other parts of the step have more of them,
#: the title says so: the promise is of the step without them.
_MOSTLY = 0.75

#: A smaller part of the span is no promise.
_LITTLE = 0.001

__all__ = ["RULES", "SEVERITIES", "Examination", "Finding", "examine", "limits", "subject"]


def limits() -> tuple[Limit, ...]:
    """Return the limits of all rules: those that several share, then those of one."""
    return (*LIMITS.values(), *(limit for rule in RULES for limit in rule.limits))


def subject(rule: str) -> str:
    """Return what a rule looks at, in words; its id if a newer fastprof made the finding."""
    return _OF_ID[rule].subject if rule in _OF_ID else rule


def examine(report: Report) -> Examination:
    """Return every rule's result on a report; the rules run at the first call only."""
    if "examination" not in report.known:  # the rules walk the tree, and outputs repeat them
        report.known["examination"] = _examine(report)
    found: Examination = report.known["examination"]
    return found


def _examine(report: Report) -> Examination:
    """Run every rule on a report.

    A rule that fails on unexpected data abstains with its error and does not break the report.
    Rules cover measured steps, in every phase of the run that the report shows.
    """
    facts = Facts(of_steps(report))
    fired: list[tuple[Rule, Draft]] = []
    found: list[tuple[tuple[float, int], Finding]] = []
    abstained: list[tuple[str, str]] = []
    explained: list[tuple[str, tuple[str, ...]]] = []
    checked: list[str] = []
    uncertain: list[str] = []
    for rule in RULES:
        try:
            draft = rule.check(facts)
            draft = None if draft is None else _without_waits(facts, rule, draft)
            rest, by = (None, ()) if draft is None else _reduced(rule, draft, fired)
            rest = None if rest is None else _beside_gpu(facts, rest, fired)
            finding = None if rest is None else _finding(facts, rule, rest, by)
        except Abstain as reason:
            if isinstance(reason, Uncertain):
                uncertain.append(rule.id)
            abstained.append((rule.id, str(reason)))
            continue
        except Exception as error:
            abstained.append((rule.id, f"the rule failed: {type(error).__name__}: {error}"))
            continue
        checked.append(rule.id)
        if finding is not None and rest is not None:
            found.append((_rank(rest, finding, facts), finding))
            if rest.severity != "note":
                fired.append((rule, rest))
        elif draft is not None:
            explained.append((rule.id, by))
    return Examination(
        findings=_ordered(
            [f for _, f in sorted(found, key=lambda r: r[0]) if f.severity != "note"]
        ),
        notes=tuple(f for _, f in found if f.severity == "note"),
        abstained=tuple(abstained),
        explained=tuple(explained),
        checked=tuple(checked),
        uncertain=tuple(uncertain),
        without_waits=any(_judged_without(facts, r, d) and d.promises for r, d in fired),
    )


def _ordered(findings: list[Finding]) -> tuple[Finding, ...]:
    """Return findings with those whose fix changes the training behind all other promises."""
    changing = {rule.id for rule in RULES if rule.changes_training}
    if all(f.rule in changing or f.saving_ms is None for f in findings):
        return tuple(findings)
    return tuple(sorted(findings, key=lambda f: f.rule in changing))


def _without_waits(facts: Facts, rule: Rule, draft: Draft) -> Draft | None:
    """Return a draft as a step without its wait for a CPU has it; None if that is within the limit.

    Raises:
        Uncertain: chance decides whether it is.
    """
    if not _judged_without(facts, rule, draft) or draft.ms is None or draft.grade is None:
        return draft
    waits = facts.cpu_waits
    seen = draft.ms if draft.seen is None else draft.seen
    share = waits.without(seen, draft.scaled_places(seen / draft.ms).places, draft.sections)
    part = share.middle / facts.share(seen)
    severity = draft.grade(part * draft.ms)
    if severity is None:
        return None
    if draft.grade(share.low / facts.share(seen) * draft.ms / NEAR) is None:
        raise Uncertain(waits_text(facts, share))
    title = draft.title
    if not _MOSTLY <= part <= 1.0 / _MOSTLY:
        title += f" ({percent(share.middle)} without waits for a CPU)"
    return replace(
        draft.scaled(part),
        title=title,
        seen=None if draft.seen is None else part * seen,
        severity=_milder(severity, draft.severity),
        evidence=(*draft.evidence, waits_text(facts, share)),
    )


def _judged_without(facts: Facts, rule: Rule, draft: Draft) -> bool:
    """Return whether a draft is judged without the wait for a CPU."""
    if not facts.cpu_waits.matter or facts.timeline is not None or rule.knows_waits:
        return False
    return draft.ms is not None and draft.grade is not None and not draft.beside


def _milder(severity: str, of_rule: str) -> str:
    """Return the severity of a rest; a rule may have made a note of what the grade calls more."""
    return max(severity, of_rule, key=SEVERITIES.index)


def _reduced(
    rule: Rule, draft: Draft, fired: list[tuple[Rule, Draft]]
) -> tuple[Draft | None, tuple[str, ...]]:
    """Return the draft without the time of earlier findings, and the ids of their rules."""
    causes = tuple(r.id for r, _ in fired if r.id in draft.yields_to)
    if causes:
        return None, causes
    if draft.ms is None:
        return draft, ()
    parts = [(r, earlier, part_of(earlier, draft, rule.id)) for r, earlier in fired]
    by = tuple(r.id for r, _, ms in parts if ms > 0)
    rest = max(0.0, draft.ms - sum(ms for *_, ms in parts))
    if not by:
        return draft, ()
    # A cause that stretches the whole step does not change the shares of its parts.
    graded = max(0.0, draft.ms - sum(ms for _, earlier, ms in parts if not earlier.thins))
    severity = draft.severity if draft.grade is None else draft.grade(graded)
    if severity is None or rest <= 0:
        return None, by
    return replace(draft.scaled(rest / draft.ms), severity=_milder(severity, draft.severity)), by


def _beside_gpu(facts: Facts, draft: Draft, fired: list[tuple[Rule, Draft]]) -> Draft:
    """Return the draft with at most the GPU's idle time that earlier findings do not save.

    The GPU's own work remains, however many causes of its idle time are removed.
    """
    if facts.timeline is None or not draft.on_host or draft.ms is None:
        return draft
    earlier = [(r, one.ms) for r, one in fired if one.on_host and one.promises and one.ms]
    left = max(0.0, facts.timeline.idle_ms - sum(ms for _, ms in earlier))
    if not earlier or left >= draft.ms:
        return draft
    fixed = ", ".join(r.subject for r, _ in earlier)
    told = (
        f"Together with the fix of {fixed}, it saves at most "
        f"{span_text(facts.timeline.idle_ms, facts)}: the GPU works in the rest of the step."
    )
    return replace(draft, ms=left, evidence=(*draft.evidence, told))


def _finding(facts: Facts, rule: Rule, draft: Draft, by: tuple[str, ...]) -> Finding:
    evidence = draft.evidence
    if by and draft.promises:
        counted = ", ".join(map(subject, by))
        evidence += (f"What is already counted under {counted} is not counted here again.",)
    evidence += _by_stage(facts, draft)
    ms = draft.ms if draft.promises and facts.share(draft.ms or 0.0) >= _LITTLE else None
    share = None if ms is None else facts.share(ms)
    fix = draft.fix or fixes(rule.fixes, facts.framework)
    steps = facts.report.steps.count
    return Finding(
        rule=rule.id,
        severity=draft.severity,
        title=draft.title,
        value=draft.value,
        unit=draft.unit,
        threshold=draft.threshold,
        source=draft.source,
        evidence=evidence,
        fix=in_float16(fix) if facts.lacks_bfloat16 else fix,
        saving_ms=ms if facts.per == "step" else None,
        saving_share=share,
        saving_total_ms=ms * steps if ms is not None and draft.beside else None,
        measured=str(facts.report.meta.get(TRIED + rule.id, "")),
    )


def _by_stage(facts: Facts, draft: Draft) -> tuple[str, ...]:
    """Return in which stage of the run the sections of a finding have most of their time."""
    stages = [stage for stage in facts.report.stages if stage.sections]
    if len(stages) < 2 or not draft.sections:
        return ()
    most = max(stages, key=lambda stage: stage.share(*draft.sections) * stage.mean_ms * stage.steps)
    parts = [f"{percent(stage.share(*draft.sections))} of {stage.name}" for stage in stages]
    return (f"The sections take {', '.join(parts)}: look at {most.name} ({most.of}) first.",)


def _rank(draft: Draft, finding: Finding, facts: Facts) -> tuple[float, int]:
    share = -1.0 if draft.ms is None or draft.outside else min(1.0, facts.share(draft.ms))
    return -share, SEVERITIES.index(finding.severity)
