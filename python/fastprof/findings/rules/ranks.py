"""The rule about ranks: it needs the runs of all ranks, which ``fastprof merge`` reads."""

from fastprof.findings.draft import Abstain, Draft, Rule, sentences
from fastprof.findings.fixes import Fixes, fixes
from fastprof.findings.measurements import Facts
from fastprof.findings.rules.host import CHECKPOINT_FIXES
from fastprof.findings.thresholds import CRITICAL_STEPS, LIMITS, MIN_STEPS
from fastprof.names import readable
from fastprof.ranks.health import against_others
from fastprof.ranks.model import RankReport, Straggler, WorkBetweenSteps, in_section, named
from fastprof.report.figures import duration, with_percent
from fastprof.report.findings import Finding

_IMBALANCE: Fixes = {
    "torch": (
        ("Give all ranks equal work: batches of similar length, a sampler that balances them; "
        "look at what the slowest rank does differently."),
    ),
}  # fmt: skip


def imbalance(facts: Facts) -> Draft | None:
    """Abstain: a single run shows nothing about ranks; see :func:`rank_finding`."""
    raise Abstain("one rank only: fastprof merge looks at all of them")


def rank_finding(ranks: RankReport) -> Finding | None:
    """Return the finding about ranks that work unequally; None if they work equally.

    The value is the excess of the largest own work over the mean.  The saving is the time that the
    others wait for the late rank, as far as its own work is known.
    """
    late = ranks.straggler
    if late is None and ranks.between is not None:
        return _between_steps(ranks, ranks.between)
    # Without a late rank, chance explains the difference.
    if ranks.imbalance is None or late is None:
        return None
    limit = LIMITS["imbalance"]
    steps = min(row.steps for row in ranks.rows)
    severity = limit.grade(ranks.imbalance)
    if severity is None or steps < MIN_STEPS:
        return None
    if steps < CRITICAL_STEPS:
        severity = "warning"
    return Finding(
        rule="imbalance",
        severity=severity,
        title=f"Ranks do unequal work: the most is {with_percent(ranks.imbalance)} above the mean",
        value=100 * ranks.imbalance,
        unit="%",
        threshold=limit.text(severity),
        source=limit.origin,
        evidence=sentences(late.text, against_others(ranks.rows, late.rank)),
        fix=_fixes(late),
        saving_ms=late.late_ms,
        saving_share=late.late_share,
    )


def _between_steps(ranks: RankReport, work: WorkBetweenSteps) -> Finding | None:
    limit = LIMITS["imbalance"]
    severity, steps = limit.grade(work.share), min(row.steps for row in ranks.rows)
    if severity is None or steps < MIN_STEPS:
        return None
    if steps < CRITICAL_STEPS:
        severity = "warning"
    fix: tuple[str, ...] = (
        (
            "Share this work among the ranks, do it less often, or do it in a thread: "
            f"{named(sorted((work.rank, *work.also)))} "
            f"{'do' if work.also else 'does'} it alone."
        ),
    )
    if work.phase == "checkpoint":
        fix = fixes(CHECKPOINT_FIXES, ranks.rows[0].framework)
    return Finding(
        rule="imbalance",
        severity=severity,
        title=(
            f"Ranks wait {with_percent(work.share)} of a step for what rank {work.rank} does "
            "between steps"
        ),
        value=100 * work.share,
        unit="%",
        threshold=limit.text(severity),
        source=limit.origin,
        evidence=(work.text,),
        fix=fix,
        saving_ms=work.wait_ms,
        saving_share=work.share,
    )


def _fixes(late: Straggler) -> tuple[str, ...]:
    """Return fixes for the parts that take longer on the late rank, as far as they are known."""
    rank = f"rank {late.rank}"
    if late.cpu_wait is not None:
        on = "its machine" if late.host is None else readable(late.host, 60)
        first = (
            f"Find out which programs use the CPUs of {on} (top), or give the job more CPUs: "
            f"{rank} waits for a CPU for {duration(late.cpu_wait[0])} per step, the others for "
            f"{duration(late.cpu_wait[1])}."
        )
        return (first,)
    if late.functions:
        most = late.functions[0]
        first = (
            f"Look at {most.subject} on {rank}: it takes {duration(most.ms)} per step there "
            f"and {duration(most.others_ms)} on the others."
        )
    elif late.section is None:
        return fixes(_IMBALANCE, "torch")
    elif late.section == "GPU":
        first = (
            f"Look at the GPU of {rank}: its work takes {duration(late.section_ms)} per step there "
            f"and {duration(late.section_others_ms)} on the others."
        )
    else:
        first = (
            f"Look at what {rank} does {in_section(late.section)}: it takes "
            f"{duration(late.section_ms)} per step there and {duration(late.section_others_ms)} "
            "on the others."
        )
    return (first, _EQUAL)


_EQUAL = (
    "If this rank has more work there (more samples, or longer ones), give all ranks equal work; "
    "if it has equal work, look for a slower disk, CPU or GPU."
)

#: See :class:`~fastprof.findings.draft.Rule`.
RULES = (
    Rule(
        "imbalance", "waiting for the slowest rank", imbalance, order=230, knows_waits=True,
        fixes=_IMBALANCE,
    ),
)  # fmt: skip
