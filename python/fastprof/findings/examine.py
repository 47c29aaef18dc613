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
from fastprof.findings.fixes import in_float16
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
from fastprof.report.findings import SEVERITIES, Examination, Finding
from fastprof.report.model import Report

#: From the specific to the general: a later rule's time excludes an earlier one's.
RULES: tuple[Rule, ...] = (
    Rule("cpu-contention", "more threads than CPUs", cpu.cpu_contention, knows_waits=True),
    Rule("loader-recreated", "new workers in each epoch", data.loader_recreated, knows_waits=True),
    Rule("worker-shutdown", "waiting for workers to exit", data.worker_shutdown, knows_waits=True),
    Rule("token-counting", "counting tokens", data.token_counting),
    Rule("sampler-time", "the sampler's time", data.sampler_time),
    Rule("batch-receiving", "receiving batches", data.batch_receiving),
    Rule("checkpoint-often", "saving checkpoints", host.checkpoint_often),
    Rule("gc-pressure", "garbage collection", host.gc_pressure),
    Rule("lock-contention", "waiting for locks", host.lock_contention, knows_waits=True),
    Rule("argument-checks", "checking the arguments of distributions", calls.argument_checks),
    Rule("sync-item", "reading single values from tensors", tensors.sync_item),
    Rule("host-device-transfers", "copies between host and GPU", tensors.host_device_transfers),
    Rule("tensor-copies", "copying and converting tensors", tensors.tensor_copies),
    Rule("mixed-precision-scaler", "scaling gradients", tensors.mixed_precision_scaler),
    Rule("optimizer-unfused", "updating parameter by parameter", calls.optimizer_unfused),
    Rule("logging-share", "logging", host.logging_share),
    Rule("memory-leak", "growing GPU memory", memory.memory_leak, knows_waits=True),
    Rule(
        "memory-fragmentation",
        "fragmented GPU memory",
        memory.memory_fragmentation,
        knows_waits=True,
    ),
    Rule("data-loading", "data loading", data.data_loading),
    Rule("unaccounted", "time in no section", beside.unaccounted),
    Rule("own-section", "the program's own sections", beside.own_section),
    Rule("all-reduce-share", "all-reduce", kernels.all_reduce_share, knows_waits=True),
    Rule("imbalance", "waiting for the slowest rank", ranks.imbalance, knows_waits=True),
    Rule("attention-unfused", "attention in separate matmuls", kernels.attention_unfused),
    Rule("anomaly-mode", "torch's anomaly detection", steps.anomaly_mode),
    Rule("untrained-gradients", "gradients that no optimizer uses", steps.untrained_gradients),
    Rule("validation-share", "validation's share of the training", beside.validation_share),
    Rule("compiling-again", "compiling, and code not compiled", compiling.compiling_again),
    Rule("tensor-loop", "loops over elements of tensors", calls.tensor_loop),
    Rule("small-batch", "small batches", kernels.small_batch, changes_training=True),
    Rule("kernel-launch-overhead", "launching kernels", kernels.kernel_launch_overhead),
    Rule("small-kernels", "small kernels", kernels.small_kernels),
    Rule("blocks-per-sm", "launches too small for the GPU", kernels.blocks_per_sm),
    Rule("occupancy", "few warps per multiprocessor", kernels.occupancy),
    Rule("gpu-memory-low", "unused GPU memory", memory.gpu_memory_low),
    Rule("gpu-memory-high", "nearly full GPU memory", memory.gpu_memory_high),
    Rule("optimizer-share", "the optimizer's share of the step", steps.optimizer_share),
    Rule("recomputation", "forwards that backward computes again", steps.recomputation),
    Rule("forward-share", "forward's share of the step", steps.forward_share),
    Rule("backward-share", "backward's share of the step", steps.backward_share),
    Rule("step-time-variation", "steps of unequal length", steps.step_time_variation),
    Rule("gpu-throttled", "heat or power limits of the GPU", gpu.gpu_throttled),
    Rule("gpu-utilization", "an idle GPU", gpu.gpu_utilization),
)

_OF_ID = {rule.id: rule for rule in RULES}

#: If waits for a CPU leave a smaller part of a share, or other parts of the step have more of them,
#: the title says so: the promise is of the step without them.
_MOSTLY = 0.75

#: A smaller part of the span is no promise.
_LITTLE = 0.001

__all__ = ["RULES", "SEVERITIES", "Examination", "Finding", "examine", "subject"]


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
        fix=in_float16(draft.fix) if facts.lacks_bfloat16 else draft.fix,
        saving_ms=ms if facts.per == "step" else None,
        saving_share=share,
        saving_total_ms=ms * steps if ms is not None and draft.beside else None,
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
