"""The cost of the function hook in this program, measured in the run itself.

Now and then a few steps are made without the hook (:mod:`fastprof.session.unprofiled`).
What they take less than the steps around them is what the hook costs a step, and with the
top-level sections there is one such figure for each part of a step.  What the calibration at the
start of the process says about the same parts is known from counts of calls.  Both together
say how much dearer calls are in this program than in the calibration's loops and, before
Python 3.12, how much slower its bytecode is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb
from statistics import median

from fastprof.report.threads import training_thread
from fastprof.snapshot import Calibration, EventCost, Snapshot, ThreadTree

#: Fewer differences have no interval of 95 %.
LEAST_BLOCKS = 6

#: What an unprofiled step takes is told if it is known to this part of it (half of the
#: interval), and the calibration is put right if the hook's cost is known to that part.
_KNOWN_STEP, _KNOWN_COST = 0.05, 0.25

#: How far the calibration is believed: standard deviations of the factor for calls and of
#: the share of bytecode's time; and of what it says about a part of a step.
_CALLS_MAY, _BYTECODE_MAY, _PART_MAY = 0.3, 0.15, 0.05

#: Bounds that no program was seen to reach.
_FACTORS, _MOST_BYTECODE = (0.2, 4.0), 0.8


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and its interval of 95 %, whatever the distribution is."""

    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class UnprofiledStep:
    """The median step without fastprof, in ms, and how well it is known.

    ``error_ms`` is half of an interval of 95 %.  ``hook_ms`` is what the function hook adds,
    measured in ``blocks`` places of the run, ``own_ms`` what sections, steps and loaders add.
    """

    ms: float
    error_ms: float
    hook_ms: float
    own_ms: float
    blocks: int

    @property
    def cost(self) -> float:
        """The time that recording adds, as a part of the unprofiled step."""
        return (self.hook_ms + self.own_ms) / self.ms


@dataclass(frozen=True, slots=True)
class HookFactors:
    """``calls``: what calls cost as a multiple of the calibration's; ``bytecode``: the part of the
    time of Python functions called often that they would not take without the hook.

    ``bound``: the run says only that the hook costs no more than this, and the calibration says
    more.  So it is where a step waits for a time to come, and the hook's cost shortens the wait.
    ``least``: the part of this cost that the run says the hook has at least; 1.0 without a bound.
    """

    calls: float
    bytecode: float
    bound: bool = False
    least: float = 1.0


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the median with its interval of 95 %; None: too few values have none."""
    n = len(values)
    if n < LEAST_BLOCKS:
        return None
    ordered = sorted(values)
    outside, k = 0, 0  # below the k-th smallest value are so many of all 2^n outcomes
    while (outside + comb(n, k)) * 40 <= 2**n:
        outside += comb(n, k)
        k += 1
    return Interval(median(ordered), ordered[k - 1], ordered[n - k])


def hook_cost(snapshot: Snapshot) -> Interval | None:
    """Return what the function hook adds to a step, in ns; None: not measured."""
    return median_interval([b.hooked_ns - b.plain_ns for b in snapshot.steps.unprofiled])


def unprofiled_step(snapshot: Snapshot) -> UnprofiledStep | None:
    """Return what a step takes without fastprof; None: not known, or not well enough."""
    step = _median_step(snapshot)
    return None if step is None or _is_uneven(step) else step


@dataclass(frozen=True, slots=True)
class OwnCosts:
    """What fastprof itself took beside the function hook, in ns.

    ``timed`` is that of sections, steps and loaders, None where it was not recorded; ``unhooking``
    the part of it for taking the function hook away and giving it back, which no measured step
    holds.  ``untimed`` is an estimate of what the hooks on torch took beside ``timed``.
    """

    timed: float | None
    unhooking: float
    untimed: float

    @property
    def timed_in_steps(self) -> float:
        """What was timed and has lengthened measured steps."""
        return max(0.0, (self.timed or 0.0) - self.unhooking)

    @property
    def in_steps(self) -> float:
        """All that may have lengthened measured steps."""
        return self.timed_in_steps + self.untimed


def own_costs(snapshot: Snapshot) -> OwnCosts:
    """Return what fastprof itself took beside the function hook.

    A file may hold any number: one that cannot be (NaN, negative, centuries) counts as not
    recorded.
    """
    timed, unhooking, untimed = (
        float(ns) if isinstance(ns, (int, float)) and 0 <= ns < 2**63 else None
        for ns in (snapshot.meta.get(key) for key in ("own_ns", "unprofiled_ns", "untimed_ns"))
    )
    return OwnCosts(timed, unhooking or 0.0, untimed or 0.0)


def is_uneven(snapshot: Snapshot) -> bool:
    """Whether an unprofiled step is not known because steps vary too much."""
    step = _median_step(snapshot)
    return step is not None and _is_uneven(step)


def _is_uneven(step: UnprofiledStep) -> bool:
    return step.error_ms > _KNOWN_STEP * step.ms


def _median_step(snapshot: Snapshot) -> UnprofiledStep | None:
    hook = hook_cost(snapshot)
    walls = snapshot.steps.series.wall_ns or snapshot.steps.recent_ns
    if hook is None or not walls:
        return None
    own_ns = own_costs(snapshot).in_steps / snapshot.steps.count
    # No hook makes a program faster: what is below 0 is chance.
    hook_ns = max(0.0, hook.value)
    step_ns = median(walls) - hook_ns - own_ns
    if step_ns <= 0:
        return None
    return UnprofiledStep(
        ms=step_ns / 1e6,
        error_ms=hook.error / 1e6,
        hook_ms=hook_ns / 1e6,
        own_ms=own_ns / 1e6,
        blocks=len(snapshot.steps.unprofiled),
    )


# ---- solving for the costs ----


@dataclass(slots=True)
class _Part:
    """A part of a step, in ns per step: what calls cost by the calibration, how much of that
    is in the time of Python functions called often, that time, and what the hook cost."""

    calls: float = 0.0
    calls_in_python: float = 0.0
    python: float = 0.0
    cost: Interval | None = None


def hook_factors(
    snapshot: Snapshot, need: Sequence[Sequence[float]], often: Sequence[Sequence[bool]]
) -> HookFactors | None:
    """Solve for what the hook costs this program; None: the calibration has to do.

    Args:
        snapshot: a recording, or what happened in its measured steps.
        need: per thread and node, what the calibration says the hook cost, in ns.
        often: per thread and node, whether it is a Python function that was called often.
    """
    calibration = snapshot.calibration
    whole = hook_cost(snapshot)
    n, thread = snapshot.steps.measured, training_thread(snapshot)
    if calibration is None or whole is None or n == 0 or not 0 <= thread < len(need):
        return None
    # Muted functions have left the tree in the middle of the run; in the trees of worker
    # processes there are no steps.
    muted = bool(snapshot.muted)
    if muted or snapshot.threads is snapshot.worker_threads:
        return None
    slower = 1.0 - 1.0 / calibration.slowdown
    parts = _parts(snapshot, snapshot.threads[thread], need[thread], often[thread], n)
    total = _Part(
        calls=sum(part.calls for part in parts.values()),
        calls_in_python=sum(part.calls_in_python for part in parts.values()),
        python=sum(part.python for part in parts.values()),
        cost=whole,
    )
    if total.calls <= 0:
        return None
    if whole.value <= 0 or whole.error > _KNOWN_COST * whole.value:
        return _bounded(total, slower)
    known = [p for p in parts.values() if p.cost is not None]
    calls, bytecode = _solve([total, *known], slower)
    return _exact(total, calls, bytecode) or _bounded(total, slower)


def _bounded(total: _Part, slower: float) -> HookFactors | None:
    """The calibration's costs, if they are above what the run allows: as many times smaller."""
    assert total.cost is not None
    left = max(0.0, total.python - total.calls_in_python)
    most = max(total.cost.high, total.cost.error)
    if most >= total.calls + slower * left:
        return None
    # Where calls cost less, more of the time is bytecode's.
    part = most / (total.calls + slower * total.python)
    least = min(1.0, max(0.0, total.cost.low) / most) if most > 0 else 1.0
    return HookFactors(part, slower * part, bound=True, least=least)


def _parts(
    snapshot: Snapshot, tree: ThreadTree, need: Sequence[float], often: Sequence[bool], n: int
) -> dict[int, _Part]:
    """The part of a step in each top-level section, by its key; -1: outside of sections."""
    is_section = [key.kind == "section" for key in snapshot.keys]
    nodes = tree.nodes
    phase = nodes.phase or (0,) * len(nodes)
    part_of = [-1] * len(nodes)
    parts = {-1: _Part()}
    for i, (parent, key) in enumerate(zip(nodes.parent, nodes.key, strict=True)):
        if i:
            above = part_of[parent]
            part_of[i] = key if above == -1 and is_section[key] else above
        if phase[i] != 0 or not (need[i] or often[i]):
            continue
        part = parts.setdefault(part_of[i], _Part())
        part.calls += need[i] / n
        if often[i]:
            part.calls_in_python += need[i] / n
            part.python += nodes.self_ns[i] / n
    blocks = snapshot.steps.unprofiled
    for key, part in parts.items():
        rows = [s for b in blocks for s in b.sections if s[0] == key]
        if len(rows) == len(blocks):  # it ran in all of them
            part.cost = median_interval([hooked - plain for _key, plain, hooked in rows])
    return parts


def _solve(parts: Sequence[_Part], slower: float) -> tuple[float, float]:
    """Least squares over the parts, drawn towards the calibration: (1, ``slower``)."""
    calls, bytecode = 1.0, slower
    for _ in range(8):  # what is left for bytecode depends on what calls take
        a11, a12, a22 = _CALLS_MAY**-2, 0.0, _BYTECODE_MAY**-2
        b1, b2 = a11, slower * a22
        for part in parts:
            cost = part.cost
            assert cost is not None
            python = max(0.0, part.python - calls * part.calls_in_python)
            # A part that the calibration is blind to (attributes, conversions) may not decide.
            error = cost.error / 2 + _PART_MAY * (abs(cost.value) + part.calls) + 1.0
            w = error**-2
            a11 += w * part.calls**2
            a12 += w * part.calls * python
            a22 += w * python**2
            b1 += w * part.calls * cost.value
            b2 += w * python * cost.value
        if not slower:
            calls = b1 / a11
            break
        determinant = a11 * a22 - a12 * a12
        calls = (b1 * a22 - b2 * a12) / determinant
        bytecode = min(_MOST_BYTECODE, max(0.0, (b2 * a11 - b1 * a12) / determinant))
        if bytecode in (0.0, _MOST_BYTECODE):
            calls = (b1 - a12 * bytecode) / a11
        calls = max(_FACTORS[0], calls)
    return calls, bytecode


def _exact(total: _Part, calls: float, bytecode: float) -> HookFactors | None:
    """Both so that the whole step adds up; None: they say nothing that can be."""
    assert total.cost is not None
    left = max(0.0, total.python - calls * total.calls_in_python)
    said = calls * total.calls + bytecode * left
    if said <= 0:
        return None
    if bytecode * left:
        # Calls are put right first where there is nothing else.
        factor = total.cost.value / said
        calls *= factor
        left = max(1e-9, total.python - calls * total.calls_in_python)
        bytecode = max(0.0, (total.cost.value - calls * total.calls) / left)
    else:
        calls = total.cost.value / total.calls
        bytecode = 0.0
    if not _FACTORS[0] <= calls <= _FACTORS[1] or bytecode > _MOST_BYTECODE:
        return None
    return HookFactors(calls, bytecode)


def scaled(calibration: Calibration, factors: HookFactors) -> Calibration:
    """Return the costs of calls in this program."""
    costs = {
        kind: EventCost(cost.inside_ns * factors.calls, cost.outside_ns * factors.calls)
        for kind, cost in calibration.costs().items()
    }
    return replace(calibration, slowdown=1.0 / (1.0 - factors.bytecode), **costs)
