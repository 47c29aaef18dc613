"""Which interventions to try: those for which the first run's findings speak."""

from collections.abc import Collection, Sequence

from fastprof.findings.examine import examine
from fastprof.report.findings import Examination, Finding
from fastprof.report.model import Report
from fastprof.trial.interventions import INTERVENTIONS, Evidence, Intervention
from fastprof.trial.model import Answer, Candidate, Values


def candidates(
    report: Report,
    answer: Answer,
    *,
    only: Sequence[Intervention] | None = None,
    skip: Collection[str] = (),
    numerics: bool = False,
) -> list[Candidate]:
    """Return what to try, the largest promise first.

    An intervention is one if a rule that it answers fired, or lacked a proof, and if the evidence
    gives it values.

    Args:
        report: the first run.
        answer: what it answered.
        only: these, whatever the findings say.
        skip: ids of those that are not tried.
        numerics: also those that change the results of the training.
    """
    found, evidence = examine(report), Evidence(report, answer)
    out = []
    for intervention in INTERVENTIONS if only is None else only:
        if intervention.id in skip or (
            only is None and intervention.changes_results and not numerics
        ):
            continue
        finding, speaks = spoken_for(found, intervention.rules)
        values = intervention.values(evidence) if speaks or only is not None else None
        if values is not None:
            out.append(_candidate(intervention, values, finding))
    return sorted(out, key=lambda one: -(one.saving_ms or 0.0))


def notes(report: Report) -> list[str]:
    """Return sentences on what makes a trial of this run uncertain."""
    found = examine(report)
    busy = [f for f in (*found.findings, *found.notes) if f.rule == "cpu-contention"]
    return [f"{f.title}: on free CPUs, fewer runs would show more." for f in busy]


def _candidate(intervention: Intervention, values: Values, finding: Finding | None) -> Candidate:
    # The finding's estimate is that of its first remedy.
    first = finding is not None and intervention.rules[0] == finding.rule
    return Candidate(
        intervention.id,
        {intervention.id: values},
        intervention.spelled(values),
        "" if finding is None else finding.rule,
        finding.saving_ms if finding is not None and first else None,
        intervention.changes_results,
        finding.fix[0].rstrip(".") if finding is not None and first and finding.fix else "",
    )


def spoken_for(found: Examination, rules: Sequence[str]) -> tuple[Finding | None, bool]:
    """Return the finding of one of ``rules``, and whether any speaks for a trial."""
    fired = {finding.rule: finding for finding in (*found.notes, *found.findings)}
    finding = next((fired[rule] for rule in rules if rule in fired), None)
    return finding, finding is not None or bool({rule for rule, _ in found.abstained} & {*rules})


def joined(helped: Sequence[Candidate]) -> Candidate:
    """Return all of these together, as one candidate."""
    parts = {name: values for one in helped for name, values in one.parts.items()}
    count = "both" if len(helped) == 2 else f"all {len(helped)}"
    return Candidate(
        "together",
        parts,
        f"{count} that helped, together",
        changes_results=any(one.changes_results for one in helped),
    )
