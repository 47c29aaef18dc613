"""Splits the time of the measured steps into kinds that add up exactly.

The recorder delivers sums per kind that do not overlap, but it measured each separately.
Each kind in the order below gets its time, as far as the steps' wall time reaches; the
remainder is computing.  Only the sum ``other`` does not measure an interval::

    off   = wall - CPU time of the thread
    known = lock + io + gpu_wait + communication outside of sections
            + (wall - CPU time) of the sections data and synchronization, and of gc
    rest  = off - known, if that is positive
    cpu_wait = the time in which the thread waited for a CPU, at most rest
    other = rest - cpu_wait

A waiting function may use the CPU as well (a write copies, a wait for the GPU spins),
so ``rest`` is a lower bound.  The wait for a CPU is counted outside of covering sections, but
also after the wait of a function has ended: hence the limit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastprof._core import COVERING_SECTIONS
from fastprof.snapshot import Key, NodeTable, Steps
from fastprof.snapshot.gpu import GpuSnapshot
from fastprof.snapshot.run_phases import STEPS

#: The order in which kinds get their time.  The best measured kind comes first.
ORDER = ("gc", "data", "communication", "gpu_wait", "lock", "io", "cpu_wait", "other")

#: If at most this part of the steps was not observed, their waits for the GPU are known.
_UNSEEN_MAY = 0.05


@dataclass(frozen=True, slots=True)
class Split:
    """Kinds and their ns, which add up to the wall time; and a sentence per missing kind."""

    rows: tuple[tuple[str, int], ...]
    missing: tuple[str, ...]


def make_split(
    spent: Mapping[str, Any] | None, steps: int, sum_ns: int, gpu_wait_ns: int | None = None
) -> Split:
    """Divide ``sum_ns`` of wall time.

    Args:
        spent: the field ``steps.spent`` of an export; None if there was no memory for it.
        sum_ns: their wall time.
        gpu_wait_ns: waiting for the GPU as known at the end, see :func:`late_gpu_wait`.
    """
    if steps <= 0:
        return Split((), ())
    if spent is None:
        return Split((), ("all: there was no memory to record single steps",))
    kinds: dict[str, int] = {name: max(0, ns) for name, ns in spent["kinds"].items()}
    missing = _missing(spent, steps, kinds)
    if "gpu_wait" in missing and gpu_wait_ns is not None:
        kinds["gpu_wait"] = gpu_wait_ns
        del missing["gpu_wait"]
    for name in missing:
        kinds.pop(name, None)
    if "other" not in missing:
        kinds["other"] = _rest(spent, kinds, sum_ns)
        if "cpu_wait" not in missing:
            kinds["cpu_wait"] = min(kinds["other"], max(0, spent["delay_ns"]))
            kinds["other"] -= kinds["cpu_wait"]
    rows = []
    left = max(0, sum_ns)
    for name in ORDER:
        if name in kinds:
            granted = min(kinds[name], left)
            left -= granted
            rows.append((name, granted))
    return Split((("compute", left), *rows), tuple(f"{k}: {why}" for k, why in missing.items()))


def late_gpu_wait(
    gpu: GpuSnapshot,
    nodes: NodeTable,
    thread: int,
    keys: Sequence[Key],
    steps: Steps,
    places: Sequence[Sequence[Any]],
) -> int | None:
    """Return the ns that a thread waited for the GPU in measured steps; None: not known.

    With external correlation CUPTI tells of a wait after its step.  So no step has it, but
    the functions and sections have.  Waits in sections of one kind, and in functions that wait for
    another reason, count there.

    Args:
        nodes: the tree of the training thread.
        thread: its number.
        steps: the measured steps.
        places: ``spent["places"]``, the functions that waited: (kind, thread, node, ns).
    """
    least = 1.0 - _UNSEEN_MAY
    seen = max((device.step_count for device in gpu.devices), default=0)
    if (
        gpu.tier != "external"
        or not nodes.phase
        or gpu.paused_ns > _UNSEEN_MAY * steps.sum_ns
        or seen < least * steps.measured
        or gpu.counters.get("cupti_errors")
    ):
        return None
    covering = [key.kind == "section" and key.name in COVERING_SECTIONS for key in keys]
    covered = [False] * len(nodes)
    for kind, of_thread, node, *_ in places:
        if of_thread == thread and kind in ("communication", "lock", "io"):
            covered[node] = True
    for i in range(1, len(nodes)):
        covered[i] = covered[i] or covered[nodes.parent[i]] or covering[nodes.key[i]]
    return sum(
        row.blocked_ns
        for row in gpu.host
        if row.thread == thread and nodes.phase[row.node] == STEPS and not covered[row.node]
    )


def _rest(spent: Mapping[str, Any], kinds: Mapping[str, int], sum_ns: int) -> int:
    covered: int = spent["covered_ns"]
    waiting = sum(kinds.get(name, 0) for name in ("lock", "io", "gpu_wait"))
    waiting += max(0, kinds.get("communication", 0) + kinds.get("data", 0) - covered)
    waiting += max(0, covered - spent["covered_cpu_ns"])
    waiting += max(0, kinds.get("gc", 0) - spent["gc_cpu_ns"])
    cpu_ns: int = spent["cpu_ns"]
    rest: int = sum_ns - cpu_ns - waiting
    return max(0, rest)


def _missing(spent: Mapping[str, Any], steps: int, kinds: Mapping[str, int]) -> dict[str, str]:
    out: dict[str, str] = {}
    if not kinds["data"]:
        out["data"] = "no section named data or data_loading ran in the steps"
    functions = _unseen(spent["function_steps"], steps, "functions were")
    if functions:
        out["lock"] = out["io"] = functions
        if not kinds["communication"]:
            out["communication"] = f"{functions}, and no section named synchronization ran"
    collector = _unseen(spent["gc_steps"], steps, "the garbage collector was")
    if collector:
        out["gc"] = collector
    gpu = _unseen(spent["gpu_steps"], steps, "waiting for the GPU was")
    if gpu:
        out["gpu_wait"] = gpu
    if spent["cpu_steps"] < steps:
        out["cpu_wait"] = out["other"] = "the CPU time of the thread is not known"
    elif spent["delay_steps"] < steps:
        out["cpu_wait"] = "this system does not report how long a thread waits for a CPU"
    return out


def _unseen(seen: int, steps: int, what: str) -> str:
    if seen >= steps:
        return ""
    return (
        f"{what} not recorded" if not seen else f"{what} recorded in only {seen} of {steps} steps"
    )
