"""The rule about CPUs: more threads are ready to run than there are CPUs."""

from __future__ import annotations

from dataclasses import replace

from fastprof.findings.draft import (
    Abstain,
    Draft,
    need_steps,
    percent,
    share_draft,
    span_text,
)
from fastprof.findings.measurements import Facts
from fastprof.findings.thresholds import LIMITS
from fastprof.report.figures import counted, plural

#: The program competes with itself if it uses this part of its available CPUs: only then fewer own
#: threads help.
_OWN = 0.8
#: A wait for more than this part of a step is a finding, whichever program has the CPUs.
_MOST = 2 / 3
_OTHERS = (
    ("Stop what else runs on this machine, or give this program CPUs that no other program "
    "uses (the job's request, the container's limit, `taskset`)."),
    "Then record again: the other figures of this run come from a busy machine.",
)  # fmt: skip


def cpu_contention(facts: Facts) -> Draft | None:
    """Time in which the training thread was ready to run and had no CPU; all of it can be saved.

    It is a finding if the program with all its threads and workers uses the CPUs, or if the thread
    waits for most of its time; else a note: other programs have the CPUs, or the container has used
    up its share.
    """
    need_steps(facts)
    ms = facts.split.get("cpu_wait")
    if ms is None:
        raise Abstain("how long the thread waited for a CPU was not recorded")
    used, cpus = facts.cpus_used, facts.cpus
    own = used is not None and cpus is not None and used >= _OWN * cpus
    draft = share_draft(
        facts, LIMITS["overhead-share"], ms,
        rule="cpu-contention",
        title="The training thread waits for a CPU for {share} of the step",
        evidence=(
            f"It waits for a CPU for {span_text(ms, facts)}.",
            _demand(used, cpus),
            _threads(facts),
            "" if own or used is None or cpus is None
            else "Other programs have the CPUs, or a container has used up its CPU limit.",
        ),
        fix=() if own else _OTHERS,
    )  # fmt: skip
    if draft is None:
        return None
    # The rest of the step is the work done between the waits.
    if own or facts.share(ms) > _MOST:
        return replace(draft, thins=facts.share(ms))
    return replace(draft, severity="note")


def _demand(used: float | None, cpus: float | None) -> str:
    if used is None or cpus is None:
        return ""
    share = percent(min(1.0, used / cpus))
    return f"This program and its workers use {counted(used)} of {plural(cpus, 'CPU')} ({share})."


def _threads(facts: Facts) -> str:
    """Return the number of threads that compete for CPUs: torch's and the loaders' workers."""
    parts = []
    threads = facts.report.meta.get("torch_threads")
    if isinstance(threads, int):
        parts.append(f"PyTorch computes with {plural(threads, 'thread')}")
    workers = sum(row.workers.workers for row in facts.report.loaders if row.workers)
    if workers:
        parts.append(f"the loaders have {plural(workers, 'worker')}")
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""
