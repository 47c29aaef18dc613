"""The rule about CPUs: more threads are ready to run than there are CPUs."""

from dataclasses import replace

from fastprof.findings.draft import (
    Abstain,
    Draft,
    Rule,
    need_steps,
    percent,
    share_draft,
    span_text,
)
from fastprof.findings.loading_remedies import train_loaders
from fastprof.findings.measurements import Facts
from fastprof.findings.thresholds import LIMITS
from fastprof.report.figures import counted, plural
from fastprof.report.loaders import BLOCKED_SHARE, any_workers

#: The program competes with itself if it uses this part of its available CPUs: only then fewer own
#: threads help.
OWN = 0.8
#: A wait for more than this part of a step is a finding, whichever program has the CPUs.
_MOST = 2 / 3
_OTHERS = (
    ("Stop the other programs on this machine, or give this program CPUs that no other program "
    "uses (the job's request, the container's limit, `taskset`)."),
    "Then record again: the other figures of this run come from a busy machine.",
)  # fmt: skip

_BY_THREAD = (
    ("If torch.set_num_threads is called in the main thread, call it in the thread that trains, "
    "too, or set OMP_NUM_THREADS: products of matrices and convolutions follow only these."),
)  # fmt: skip


_RANKS = (
    ("Fewer threads per rank: torch.set_num_threads(CPUs / ranks on this machine) or "
    "OMP_NUM_THREADS, and no more loader workers than CPUs are left."),
    "If other programs run on this machine, stop them, and record again.",
)  # fmt: skip


def cpu_contention(facts: Facts) -> Draft | None:
    """Time in which the training thread was ready to run and had no CPU.

    It is a finding if the program with all its threads and workers uses the CPUs, or if the thread
    waits for most of its time; else a note: other programs have the CPUs, or the container has used
    up its share.
    """
    need_steps(facts)
    ms = facts.split.get("cpu_wait")
    if ms is None:
        raise Abstain("how long the thread waited for a CPU was not recorded")
    used, cpus = facts.cpus_used, facts.cpus
    own = used is not None and cpus is not None and used >= OWN * cpus
    others, fix = ("Other ranks or programs", _RANKS) if facts.ranks > 1 else (
        "Other programs", _OTHERS
    )  # fmt: skip
    threads = _threads_with_cpus(facts)
    draft = share_draft(
        facts, LIMITS["overhead-share"], ms,
        rule="cpu-contention",
        title="The training thread waits for a CPU for {share} of the step",
        evidence=(
            _demand(facts) or f"It waits for a CPU for {span_text(ms, facts)}.",
            _threads(facts),
            _who(facts, own, others),
        ),
        fix=_fewer(facts, (*threads, *fix)) if own else (*threads, *fix),
    )  # fmt: skip
    if draft is None:
        return None
    if own or threads:
        # The rest of the step is the work done between the waits.
        return replace(draft, thins=facts.share(ms))
    if facts.share(ms) > _MOST:
        # A fix in the program saves the same part of a step, whether other programs run or not.
        return replace(draft, promises=False, outside=True)
    return replace(draft, severity="note")


def _who(facts: Facts, own: bool, others: str) -> str:
    """Return who has the CPUs; '' if it is this program, or unknown."""
    if facts.cpus_used is None or facts.cpus is None:
        return ""
    if not own:
        return f"{others} have the CPUs, or a container has used up its CPU limit."
    threads = _torch_threads(facts)
    if threads is None:
        return ""
    known = threads + _workers(facts)
    # If it uses more CPUs, it has other threads, which may be what competes.
    if facts.cpus_used <= known <= facts.cpus:
        return (
            "PyTorch and the loader's workers have no more threads than there are CPUs: other "
            "programs use CPUs, too, or a container has used up its CPU limit."
        )
    return ""


def _threads_with_cpus(facts: Facts) -> tuple[str, ...]:
    """Return how many threads find a CPU while other programs run; empty if all do.

    An operation ends with its slowest thread: two threads on 1.5 CPUs took ten times as long as
    one.
    """
    threads = _torch_threads(facts)
    if not facts.cpu_waits.matter or threads is None or facts.cpus is None or facts.ranks > 1:
        return ()
    free, known = int(facts.cpus - facts.others_cpus), "others_cpu_ns" in facts.report.meta
    if threads <= 1:
        return _BY_THREAD if _in_another_thread(facts) else ()
    if known and threads <= free:
        return ()
    count = max(1, min(threads - 1, free))
    return (
        (f"{_setting(facts, count)}: other programs have CPUs, "
        "and an operation ends with the slowest of its threads."),
    )  # fmt: skip


def _in_another_thread(facts: Facts) -> bool:
    """Return whether the program trains in another thread than its main one.

    What the main thread sets reaches PyTorch's own loops there, but not MKL's and oneDNN's: OpenMP
    has a number of threads for each thread.
    """
    return facts.thread is not None and facts.thread.name != "MainThread"


def _setting(facts: Facts, count: int) -> str:
    where = " in the thread that trains" if _in_another_thread(facts) else ""
    return f"torch.set_num_threads({count}){where}, or OMP_NUM_THREADS={count}"


def _fewer(facts: Facts, others: tuple[str, ...]) -> tuple[str, ...]:
    """Return the threads and workers that have CPUs; empty, for the rule's text, if unknown.

    ``others``: what to do if all of them have one, and other programs must be what competes.
    """
    threads = _torch_threads(facts)
    if facts.cpus is None or threads is None or facts.ranks > 1:
        return ()  # how many ranks share this machine is unknown
    cpus, workers = max(1, int(facts.cpus)), _workers(facts)
    free = max(1, cpus - workers)
    out = []
    if threads > free:
        why = "" if not workers else (
            ": the loader's worker needs a CPU, too" if workers == 1
            else f": the loader's {plural(workers, 'worker')} need CPUs, too"
        )  # fmt: skip
        out.append(f"{_setting(facts, free)}{why}.")
    if workers > cpus - 1 and not _wants_workers(facts):
        out.append(f"DataLoader(num_workers={cpus - 1}): the training thread needs one CPU.")
    return tuple(out) or (() if threads + workers > cpus else others)


def _wants_workers(facts: Facts) -> bool:
    """Return whether the loop waits for its batches, or would with fewer workers."""
    rows = [row.workers for row in train_loaders(facts) if row.workers]
    return any(
        (w.blocked_share or 0.0) > BLOCKED_SHARE or (w.needed or 0) >= w.workers for w in rows
    )


def _torch_threads(facts: Facts) -> int | None:
    threads = facts.report.meta.get("torch_threads")
    return threads if isinstance(threads, int) else None


def _workers(facts: Facts) -> int:
    """Return the workers that load while steps train: those of the largest training loader."""
    rows = [row.workers.workers for row in train_loaders(facts) if row.workers]
    return max(rows, default=0)


def _demand(facts: Facts) -> str:
    used, cpus = facts.cpus_used, facts.cpus
    if used is None or cpus is None:
        return ""
    use = f"{counted(used)} of {plural(cpus, 'CPU')} ({percent(min(1.0, used / cpus))})"
    if any_workers(facts.report.loaders):
        return f"This program and its workers use {use}."
    return f"This program uses {use}."


def _threads(facts: Facts) -> str:
    """Return the number of threads that compete for CPUs: torch's and the loaders' workers."""
    parts = []
    threads = _torch_threads(facts)
    if threads is not None:
        parts.append(f"PyTorch computes with {plural(threads, 'thread')}")
    workers = _workers(facts)
    if workers:
        parts.append(f"the training data's loader has {plural(workers, 'worker')}")
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


#: See :class:`~fastprof.findings.draft.Rule`.
RULES = (
    Rule(
        "cpu-contention", "more threads than CPUs", cpu_contention, order=10, knows_waits=True,
        fixes={
            "torch": (
                ("Fewer threads: torch.set_num_threads(CPUs / processes) or OMP_NUM_THREADS, and "
                "no more loader workers than CPUs are left."),
                ("Or give the program more CPUs: check the job's request to the scheduler, the "
                "container's limit, `taskset` and the launcher's CPU binding."),
            ),
        },
    ),
)  # fmt: skip
