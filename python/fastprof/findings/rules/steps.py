"""Rules about a step as a whole and its phases."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from fastprof.findings.cpu_waits import NEAR
from fastprof.findings.draft import (
    Abstain,
    Draft,
    Rule,
    Uncertain,
    capped,
    need_steps,
    percent,
    sentences,
    share_draft,
    span_text,
    waits_text,
)
from fastprof.findings.fixes import HF
from fastprof.findings.function_groups import BACKWARD, FORWARD, OPTIMIZER
from fastprof.findings.measurements import Facts
from fastprof.findings.remedies import (
    STEP_LESS,
    can_fuse,
    fusing_is_measured,
    fusing_saves,
    optimizer_fix,
)
from fastprof.findings.thresholds import LIMITS, OWN, USUAL, Limit
from fastprof.names import readable
from fastprof.report.figures import chosen_percent, counted, duration, plural
from fastprof.report.rows import UNACCOUNTED
from fastprof.report.steps import StepSeriesView

_UNTRAINED = Limit(
    "share of the parameters with gradients that no optimizer has", "%", None, 0.10, None,
    f"{OWN}: a smaller part costs little",
)  # fmt: skip
_RECOMPUTED = Limit(
    "share of forwards that backward computes again", "%", 0.10, None, None,
    f"{OWN}: it is on purpose, and its price is worth knowing",
)  # fmt: skip

#: Fewest steps for a variation.
_CV_STEPS = 10
#: On a busy machine the CPU time of steady work varied by up to 24 %.
_SHARED_CORES = 0.4
#: A time slice of the scheduler is a few ms, as long as several such steps.
_SHORT_MS = 2.0
#: A smaller part of the step is not worth a finding.
_WORTH = 0.05
#: A few slow steps are outliers, not variation: p95 over p50 must be at least this.
_SPREAD = 1.1


def step_time_variation(facts: Facts) -> Draft | None:
    """Coefficient of variation of the step time; the saving assumes that all steps are as quick as
    the quickest quarter.

    Outliers are a note (the 95th percentile is close to the median), and, without a GPU, two cases
    that the training thread's CPU time shows: if it hardly varies, other programs on the machine
    make the steps differ; if it varies as much, the steps' work differs.
    """
    need_steps(facts, _CV_STEPS)
    series, which = _judged(facts)
    times = _step_times(facts, series, which)
    if times is None:
        raise Abstain("the step times are not known")
    cv, quick, p50, p95, mean, longest = times
    limit = LIMITS["step-cv"]
    severity = capped(limit.grade(cv), facts)
    if severity is None:
        return None
    elsewhere, other_work = _disturbed(facts, series, p50), _other_work(facts, series, mean)
    if other_work and _cv(series.cpu_ms) > _SHARED_CORES:
        elsewhere = ""  # other programs do not explain that much
    place, more = _what_varies(series)
    if elsewhere or other_work or (p50 > 0 and p95 < _SPREAD * p50):
        severity = "note"
    # A promise is per step of the run.
    ms = max(mean - quick, 0.0) * (
        len(series) / len(facts.own_series) if facts.report.stages else 1.0
    )
    return Draft(
        value=100 * cv, unit="%",
        title=f"Step times vary by {percent(cv)}{_among(facts, which)}",
        severity=severity,
        threshold=limit.text("warning" if severity == "note" else severity),
        source=limit.origin,
        evidence=sentences(
            f"Of {_seen(facts, series, which)} p50 is {duration(p50)}, p95 {duration(p95)}, "
            f"the longest {duration(longest)}.",
            elsewhere or other_work or ("" if place else _USUAL_CAUSES),
            (f"The longest tenth of the steps spends {duration(more)} more in "
            f"{_section(place)} than the shortest.") if place else "",
        ),
        fix=_ALONE if elsewhere else _even(place) if other_work else (),
        ms=ms, everywhere=True,
        yields_to=_IRREGULAR | _OF_PLACE.get(place, frozenset({"own-section"})),
        promises=not (elsewhere or other_work),
    )  # fmt: skip


#: If other programs may be the cause, nothing in this one is known to be wrong.
_ALONE = ("Record again while nothing else runs on this machine, before you change anything.",)
_BACKWARD_IN_BFLOAT16 = (
    ("Record the program without torch.autocast: it runs on the CPU, and a CPU without bfloat16 "
    "instructions computes in bfloat16 far slower than in float32, most of all in backward."),
)  # fmt: skip
#: Without a GPU neither mixed precision nor the memory of activations matters.
_SMALLER_FORWARD = ("Try torch.compile, distillation, quantization or a smaller architecture.",)
_USUAL_CAUSES = "Usual causes: data loading, dynamic batch sizes, memory fragmentation."
_PASSES = FORWARD | BACKWARD
#: Rules that explain why some steps are longer; a finding of one of these is the cause.
_IRREGULAR = frozenset({
    "data-loading", "checkpoint-often", "loader-recreated", "worker-shutdown", "gc-pressure",
    "logging-share", "lock-contention", "memory-fragmentation", "sampler-time", "small-batch",
    "tensor-loop",
})  # fmt: skip
#: Rules that explain it if the steps differ in one place; elsewhere a section of the program's.
_OF_PLACE = {UNACCOUNTED: frozenset({"unaccounted"}), **dict.fromkeys(_PASSES, frozenset[str]())}


def _section(name: str) -> str:
    return "no section" if name == UNACCOUNTED else readable(name, 60)


def _even(place: str) -> tuple[str, ...]:
    """Return the fix for steps that do different amounts of work in ``place``."""
    if not place or place in _PASSES:
        return ("If that is not intended, group samples of similar length into a batch.",)
    return (
        f"If that is not intended, look at what only the longest steps do in {_section(place)}.",
    )


def _among(facts: Facts, which: str) -> str:
    # The head of a report has the variation of all steps.
    return f"{' within ' if facts.report.stages else ', '}{which}" if which else ""


def _seen(facts: Facts, series: StepSeriesView, which: str) -> str:
    """Return which steps a variation describes."""
    if facts.report.stages:
        return f"{len(series)} steps of {which}"
    if which:
        return f"{len(series)} steps without operator recording"
    return f"{facts.report.shown_steps.measured} steps"


def _judged(facts: Facts) -> tuple[StepSeriesView, str]:
    """Return the steps that must be similar, and which they are; empty: all steps of the run.

    They are those of the longest stage, without those that torch.profiler slowed down.
    """
    series, stages = facts.own_series, facts.report.stages
    if stages:
        longest = max(stages, key=lambda stage: stage.mean_ms * stage.steps)
        ends = [stage.first for stage in stages if stage.first > longest.first]
        end = min(ends, default=math.inf)
        numbers = enumerate(series.numbers)
        series = series.only([row for row, i in numbers if longest.first <= i < end])
        if len(series) < _CV_STEPS:
            raise Abstain(f"too few single steps of {longest.name} are known")
        return series, longest.name
    every = facts.report.shown_steps.series
    if _CV_STEPS <= len(series) < len(every):
        return series, "without those of operator recording"
    return every, ""


def _step_times(
    facts: Facts, series: StepSeriesView, which: str
) -> tuple[float, float, float, float, float, float] | None:
    """Return variation, lower quartile, median, 95th percentile, mean and maximum; None: unknown.

    Without single steps the median replaces the quartile.
    """
    if which:
        values = sorted(series.wall_ms)
        mean = sum(values) / len(values)
        p50, p95 = median(values), values[int(0.95 * len(values))]
        return _cv(values), values[len(values) // 4], p50, p95, mean, values[-1]
    steps = facts.report.shown_steps
    known = (steps.cv, steps.p50_ms, steps.p50_ms, steps.p95_ms, steps.mean_ms, steps.max_ms)
    if any(value is None for value in known):
        return None
    return tuple(value or 0.0 for value in known)  # type: ignore[return-value]


def _cv(values: Sequence[float]) -> float:
    mean = sum(values) / len(values) if values else 0.0
    return _deviation(values) / mean if mean > 0 else 0.0


def _deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return float((sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5)


def _disturbed(facts: Facts, series: StepSeriesView, p50: float) -> str:
    """Return a sentence if, without a GPU, the thread's CPU time hardly varies or is unknown."""
    if facts.gpu is not None:
        return ""
    if p50 < _SHORT_MS:
        return f"Steps below {_SHORT_MS:g} ms are shorter than the time slices of other programs."
    if len(series.cpu_ms) < _CV_STEPS or not sum(series.cpu_ms):
        return "CPU times of the steps were not recorded, so other programs may be the cause."
    if facts.disturbed:
        return "The system often gave the training thread's CPU to other programs."
    cv = _cv(series.cpu_ms)
    if cv > _SHARED_CORES:
        return ""
    return (
        f"CPU time per step varies by {percent(cv)}: other programs can cause that much (up to "
        f"{chosen_percent(_SHARED_CORES)}), because they share caches and cores with this one."
    )


def _other_work(facts: Facts, series: StepSeriesView, mean: float) -> str:
    """Return a sentence if, without a GPU, the CPU time explains nearly all of the variation."""
    if facts.gpu is not None or len(series.cpu_ms) != len(series.wall_ms) or mean <= 0:
        return ""
    rest = [wall - cpu for wall, cpu in zip(series.wall_ms, series.cpu_ms, strict=True)]
    if LIMITS["step-cv"].grade(_deviation(rest) / mean) is not None:
        return ""
    return "CPU time varies as much as step time: some steps do more work than others."


def _what_varies(series: StepSeriesView) -> tuple[str, float]:
    """Return the row of the step table that differs most between short and long steps, and its ms.

    The name is empty if it is unknown.
    """
    walls = series.wall_ms
    if len(walls) < _CV_STEPS:
        return "", 0.0
    columns = dict(series.names)
    if columns:
        known = [sum(row) for row in zip(*columns.values(), strict=True)]
        columns[UNACCOUNTED] = tuple([wall - ms for wall, ms in zip(walls, known, strict=True)])
    order = sorted(range(len(walls)), key=lambda i: walls[i])
    tenth = max(1, len(order) // 10)
    quick, slow = order[:tenth], order[-tenth:]
    grown = {
        name: (sum(column[i] for i in slow) - sum(column[i] for i in quick)) / tenth
        for name, column in columns.items()
    }
    name = max(grown, key=lambda n: grown[n], default="")
    return (name, grown[name]) if name and grown[name] > 0 else ("", 0.0)


def optimizer_share(facts: Facts) -> Draft | None:
    """Optimizer's share of the step; a note if no fused version makes it faster.

    Forward and backward in a closure of the optimizer do not count.
    """
    need_steps(facts)
    ms = facts.optimizer_ms if facts.phase("optimizer") is not None else None
    if ms is None:
        raise Abstain("no section optimizer or optimizer_step ran in the measured steps")
    classes = facts.optimizer.classes
    if "LBFGS" in classes:  # its directions are the method, not overhead
        return None
    draft = share_draft(
        facts, LIMITS["optimizer-share"], ms,
        rule="optimizer-share",
        title="The optimizer takes {share} of the step",
        evidence=(f"The optimizer takes {span_text(ms, facts)}.",),
        fix=(*optimizer_fix(facts), STEP_LESS[facts.framework]),
        group="optimizer", sections=OPTIMIZER,
    )  # fmt: skip
    if draft is None:
        return None
    if not classes:  # one of the program's or a library's
        return replace(draft, promises=False)
    if not can_fuse(facts) or "SGD" in classes:
        # A part of it at most, and how much is unknown.
        return replace(draft, severity="note", promises=False)
    if not fusing_is_measured(facts):
        return replace(draft, promises=False)
    return draft.saving(fusing_saves(facts, ms, 0), of=ms)


def forward_share(facts: Facts) -> Draft | None:
    """Forward above its usual share, as a note.

    Not reported in a job of several ranks, which wait for each other in it.
    """
    if facts.ranks > 1 and facts.split_by_section("communication").get("forward"):
        raise Abstain("forward includes the wait for other ranks: see fastprof merge")
    return _unusual(facts, "forward")


def recomputation(facts: Facts) -> Draft | None:
    """Forwards that backward computes again (torch.utils.checkpoint), as a note.

    It saves memory on purpose. With a GPU the autograd engine runs them in another thread, and
    their time on the host says little: the rule sees them only in the training thread.
    """
    need_steps(facts)
    if not facts.has_functions or not facts.report.has_tree:
        raise Abstain("functions were not recorded")
    ms, calls = facts.recomputed
    limit = _RECOMPUTED
    severity = limit.grade(facts.share(ms))
    if severity is None:
        return None
    parts = plural(max(1, round(calls)), "part")
    return Draft(
        value=100 * facts.share(ms), unit="%",
        title=f"Backward computes parts of forward again for {percent(facts.share(ms))} of the "
        "step (gradient checkpointing)",
        severity=severity, threshold=limit.text(severity), source=limit.origin,
        evidence=(
            (f"torch.utils.checkpoint keeps no activations of {parts} of forward, so backward "
            f"computes forward there again: {span_text(ms, facts)}."),
        ),
        ms=ms,
    )  # fmt: skip


def backward_share(facts: Facts) -> Draft | None:
    """Backward above 3 times forward; the saving assumes that it took as long as forward.

    Not reported if activations are recomputed (torch.utils.checkpoint), because backward then
    contains a forward, if the program calls torch.autograd.grad (gradients of gradients are part
    of what it computes), and in a job of several ranks, which wait for each other in backward.
    Above its usual share it is a note.
    """
    need_steps(facts)
    forward, backward = facts.phase("forward"), facts.phase("backward")
    if forward is None or backward is None:
        raise Abstain("no sections forward and backward ran in the measured steps")
    outside = facts.forward_outside.ms if facts.forward_outside is not None else 0.0
    forward += outside
    limit = LIMITS["backward-to-forward"]
    ratio = backward / forward if forward else 0.0
    if recomputes(facts) or facts.use("gradients").calls > 0:
        return None
    if facts.ranks > 1:
        # Ranks exchange gradients there: an early rank waits for the others.
        raise Abstain("with several ranks backward includes waits for others: see fastprof merge")
    # If a GPU does the work, both may be the microseconds of launching it.
    if limit.grade(ratio) is None or facts.share(backward - forward) < _WORTH:
        return _unusual(facts, "backward")
    if facts.cpu_waits.matter:
        behind = facts.cpu_waits.without(backward, {}, BACKWARD)
        ahead = facts.cpu_waits.without(forward, {}, FORWARD)
        if limit.grade(behind.low / ahead.high / NEAR) is None:
            raise Uncertain(waits_text(facts, behind))

    def grade(rest: float) -> str | None:
        return limit.grade((rest + forward) / forward)

    return Draft(
        value=ratio, unit="times",
        title=f"Backward takes {ratio:.1f} times as long as forward",
        severity="warning", threshold=limit.text("warning"), source=limit.origin,
        evidence=(
            (f"Backward takes {span_text(backward, facts)}, forward {span_text(forward, facts)}"
            f"{f' ({duration(outside)} of it in no section)' if outside else ''}; "
            "they are roughly equal as a rule. No recomputation was seen."),
        ),
        fix=_BACKWARD_IN_BFLOAT16 if _in_bfloat16(facts) else (),
        ms=backward - forward, grade=grade, sections=BACKWARD,
        # That a backward can become as short as forward is known of no other cause.
        promises=_in_bfloat16(facts),
        yields_to=frozenset({"unaccounted"}),
    )  # fmt: skip


def _in_bfloat16(facts: Facts) -> bool:
    """Return whether the CPU computes the steps under torch.autocast."""
    return facts.cpu_only and facts.use("autocast").calls > 0


def anomaly_mode(facts: Facts) -> Draft | None:
    """torch's anomaly detection is on: each operation keeps its traceback, and is checked for NaN.

    How much it costs is unknown: the run has no steps without it.
    """
    need_steps(facts)
    if not facts.report.meta.get("torch_anomaly_mode"):
        return None
    ms = sum(facts.phase(phase) or 0.0 for phase in ("forward", "backward"))
    return Draft(
        value=100 * facts.share(ms), unit="%",
        title="torch.autograd's anomaly detection is on, which makes forward and backward longer",
        severity="warning", threshold="on", source="PyTorch: the mode is for debugging",
        evidence=(
            (f"Forward and backward take {span_text(ms, facts)} with it. Each operation keeps a "
            "traceback, and its gradient is searched for NaN."),
        ),
        fix=("torch.autograd.set_detect_anomaly(False): switch it on only to look for a NaN.",),
        promises=False,
    )  # fmt: skip


def untrained_gradients(facts: Facts) -> Draft | None:
    """Parameters that require gradients, and no optimizer of torch's has them.

    Forward keeps a graph for them, and backward may compute its gradients, which nothing uses.  How
    much that costs is unknown: the run has no steps without it.
    """
    need_steps(facts)
    meta = facts.report.meta
    name = meta.get("torch_untrained")
    size, total, share = (meta.get(f"torch_untrained_{of}") for of in ("size", "all", "share"))
    limit = _UNTRAINED
    if not (isinstance(size, int) and isinstance(total, int)):
        return None
    if not (isinstance(name, str) and isinstance(share, float)):
        return None
    if limit.grade(share) is None:
        return None
    said = readable(name, 100)
    path, _, kind = said.partition(" ")
    # An optimizer from before the recording is known once it steps.
    who = "No optimizer that steps has" if meta.get("torch_untrained_of") else "No optimizer has"
    last = path.rpartition(".")[2]
    # A number is the place in a list, which is no name of Python's.
    which = f"{last}." if kind and not last.isdigit() else "its "
    said = f"module {said}" if kind and path.isdigit() else said
    title = f"{who} the {plural(size, 'parameter')} of {said}, which records gradients"
    fix = (
        f"If it is not to be trained, call {which}requires_grad_(False) before the loop; "
        "torch.no_grad() around its forward does the same if no gradient has to pass through."
    )
    if total > size:
        title = (
            f"{who} {plural(total, 'parameter')} that record gradients, "
            f"{counted(size)} of them in {said}"
        )
        fix = (
            "Call requires_grad_(False) before the loop on each parameter that is not to be "
            "trained; torch.no_grad() around a module's forward does the same if no gradient has "
            "to pass through."
        )
    return Draft(
        value=100 * share, unit="%",
        title=title,
        severity="warning", threshold=limit.text("warning"), source=limit.origin,
        evidence=(
            (f"They are {percent(share)} of all parameters that require gradients. Forward keeps a "
            "graph for them, and backward computes their gradients if the loss depends on them."),
        ),
        fix=(fix,),
        promises=False,
    )  # fmt: skip


def recomputes(facts: Facts) -> bool:
    """Return whether activations are checkpointed: functions of torch.utils.checkpoint ran."""
    told = facts.report.meta.get("gradient_checkpointing")
    return bool(told) or facts.use("recompute").calls > 0


def _unusual(facts: Facts, phase: str) -> Draft | None:
    need_steps(facts)
    usual, ms = USUAL[phase], facts.phase(phase)
    if ms is None:
        raise Abstain(f"no section {phase} or {phase}_pass ran in the measured steps")
    share = facts.share(ms)
    if facts.report.meta.get("steps_ended_by") == "batches":
        raise Abstain("no optimizer stepped: the usual share is that of training")
    if share <= usual.share.high:  # below it, other parts of the step take the time
        return None
    return Draft(
        value=100 * share, unit="%",
        title=f"{phase.capitalize()} takes {percent(share)} of the step",
        severity="note",
        threshold=f"usually {usual.text}", source=usual.origin,
        evidence=(f"Section {phase} takes {span_text(ms, facts)}.",),
        fix=_SMALLER_FORWARD if phase == "forward" and facts.cpu_only else (),
        sections=FORWARD if phase == "forward" else BACKWARD,
    )  # fmt: skip


#: See :class:`~fastprof.findings.draft.Rule`.
RULES = (
    Rule(
        "anomaly-mode", "torch's anomaly detection", anomaly_mode, order=250,
    ),
    Rule(
        "untrained-gradients", "gradients that no optimizer uses", untrained_gradients,
        order=260, limits=(_UNTRAINED,),
    ),
    Rule(
        "optimizer-share", "the optimizer's share of the step", optimizer_share, order=360,
    ),
    Rule(
        "recomputation", "forwards that backward computes again", recomputation,
        order=370, limits=(_RECOMPUTED,),
        fixes={
            "torch": (
                ("If memory allows, call torch.utils.checkpoint for fewer layers, or for none: "
                "those keep their activations from forward to backward."),
            ),
            "transformers": (
                f"If memory allows, {HF}(gradient_checkpointing=False).",
            ),
        },
    ),
    Rule(
        "forward-share", "forward's share of the step", forward_share, order=380,
        fixes={
            "torch": (
                ("Distillation, quantization, a smaller architecture, AMP, torch.compile; "
                "checkpointing trades time for memory."),
            ),
        },
    ),
    Rule(
        "backward-share", "backward's share of the step", backward_share, order=390,
        fixes={
            "torch": (
                ("Look for a memory bottleneck, gradient accumulation or synchronization within "
                "backward; recomputation (torch.utils.checkpoint) is a known reason."),
            ),
        },
    ),
    Rule(
        "step-time-variation", "steps of unequal length", step_time_variation, order=400,
        fixes={
            "torch": (
                "Look at what the longest steps do that the others do not.",
            ),
        },
    ),
)  # fmt: skip
