"""The cost of the function hook in this program, measured in the run itself.

Now and then fastprof runs a few steps without the hook (:mod:`fastprof.session.unprofiled`).  The
difference between these and the steps around them is the hook's cost per step; top-level sections
give one such figure for each part of a step.  Call counts give the calibration's estimate for the
same parts.  Comparing the two shows how much more calls cost in this program than in the
calibration's loops and, before Python 3.12, how much slower its bytecode is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import comb, sqrt
from statistics import fmean, median

from fastprof.report.threads import training_thread
from fastprof.report.tree import top_sections
from fastprof.snapshot import Calibration, EventCost, Snapshot, ThreadTree
from fastprof.snapshot.run_phases import STEPS

#: Fewer differences have no interval of 95 %.
LEAST_BLOCKS = 6

#: The time of an unprofiled step is reported if half of its interval is at most this part of it.
#: The calibration is adjusted if the hook's cost is known to that part.
_KNOWN_STEP, _KNOWN_COST = 0.05, 0.25

#: Confidence in the calibration, as standard deviations: of the factor for calls, of the share of
#: bytecode's time, and of its estimate for a part of a step.
_CALLS_MAY, _BYTECODE_MAY, _PART_MAY = 0.3, 0.15, 0.05

#: If other threads have this part of the CPU time, the hook's cost is measured as CPU time.
_OTHERS = 0.05

#: A thread that waits for a CPU for this part of its CPU time runs on a busy machine.
_BUSY = 0.1

#: Bounds that no observed program reached.
_FACTORS, _MOST_BYTECODE = (0.2, 4.0), 0.8


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and its interval of 95 %, for any distribution."""

    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class UnprofiledStep:
    """The median step without fastprof, in ms, and its uncertainty.

    ``error_ms`` is half of an interval of 95 %.  ``hook_ms`` is the time that the function hook
    adds, measured in ``blocks`` places of the run; ``own_ms`` is the time that sections, steps and
    loaders add.
    """

    ms: float
    error_ms: float
    hook_ms: float
    own_ms: float
    blocks: int


@dataclass(frozen=True, slots=True)
class HookFactors:
    """``calls``: the cost of calls as a multiple of the calibration's; ``bytecode``: the share of
    the time of often called Python functions that the hook's slower bytecode adds.

    ``bound``: the run gives only limits of the hook's cost, and the calibration's estimate is
    outside of them, where the nearer one counts, or below their middle, where the estimate counts.
    The estimate is too high if a step waits until a fixed time, and the hook's cost shortens the
    wait.  A step takes longer by ``others``, a part of the hook's cost in other threads: they wait
    with it for the interpreter, but not where the step waits for nothing or runs in C.
    """

    calls: float
    bytecode: float
    bound: bool = False
    others: float = 1.0


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the median with its interval of 95 %; None: too few values."""
    n = len(values)
    if n < LEAST_BLOCKS:
        return None
    ordered = sorted(values)
    outside, k = 0, 0  # of all 2^n outcomes, `outside` are below the k-th smallest
    while (outside + comb(n, k)) * 40 <= 2**n:
        outside += comb(n, k)
        k += 1
    return Interval(median(ordered), ordered[k - 1], ordered[n - k])


def hook_cost(snapshot: Snapshot) -> Interval | None:
    """Return the time in ns that the function hook adds to a step; None: not measured.

    Most places without the hook are early in a short run.  If the machine becomes slower later,
    the hook's share of a step stays the same; if steps have more work later, its time does.  The
    interval holds both.
    """
    blocks = [b for b in snapshot.steps.unprofiled if b.hooked_ns > 0]
    if _others_run(snapshot):
        return median_interval(_cpu_costs(snapshot))
    times = median_interval([b.hooked_ns - b.plain_ns for b in blocks])
    shares = median_interval([1.0 - b.plain_ns / b.hooked_ns for b in blocks])
    running = running_times(snapshot)
    if times is None or shares is None or not running:
        return times
    step_ns = median(running)
    return Interval(
        (times.value + shares.value * step_ns) / 2,
        min(times.low, shares.low * step_ns),
        max(times.high, shares.high * step_ns),
    )


def _others_run(snapshot: Snapshot) -> bool:
    """Return whether other threads of Python compute while steps run.

    Then steps take turns with them, in time slices of some milliseconds, and wait for them: two
    neighbouring steps differ by more than the hook's cost.  Their CPU times hardly do.
    """
    rows = snapshot.steps.unprofiled_cpu or ()
    if len(rows) < LEAST_BLOCKS:
        return False
    own, others = median(r.hooked_ns for r in rows), median(r.hooked_others_ns for r in rows)
    return others > _OTHERS * (own + others)


def _cpu_costs(snapshot: Snapshot) -> list[float]:
    """Return the CPU time in ns that the hook adds to a step, per place without it.

    What it adds in other threads lengthens a step at most by the time that the training thread
    waited.
    """
    rows = snapshot.steps.unprofiled_cpu or ()
    waited = fmean(running_times(snapshot) or (0,)) - fmean(r.hooked_ns for r in rows)
    return [
        r.hooked_ns - r.plain_ns + min(r.hooked_others_ns - r.plain_others_ns, max(0.0, waited))
        for r in rows
    ]


def step_walls(snapshot: Snapshot) -> Sequence[int]:
    """Return the times in ns of the last measured steps."""
    return snapshot.steps.series.wall_ns or snapshot.steps.recent_ns


def running_times(snapshot: Snapshot) -> Sequence[int]:
    """Return the same without their waiting for a CPU, as far as it was recorded.

    While the training thread waits for a lock, the thread that it waits for may wait for a CPU,
    too.  If the training thread often does, the time at locks beyond that thread's CPU time counts
    as such a wait.
    """
    series = snapshot.steps.series
    times = step_walls(snapshot)
    if series.cpu_wait_ns:
        pairs = zip(series.wall_ns, series.cpu_wait_ns, strict=True)
        times = [max(0, wall - wait) for wall, wait in pairs]
    if not times or not _others_run(snapshot):
        return times
    rows = snapshot.steps.unprofiled_cpu or ()
    own, others = fmean(r.hooked_ns for r in rows), fmean(r.hooked_others_ns for r in rows)
    locks = dict(snapshot.steps.split).get("lock", 0) / max(1, snapshot.steps.measured)
    if fmean(series.cpu_wait_ns or (0,)) < _BUSY * own:
        return times
    # It may also compute while the training thread waits for a CPU.
    running = max(fmean(times) - max(0.0, locks - others), own + min(others, locks))
    part = min(running, fmean(step_walls(snapshot))) / max(1.0, fmean(times))
    return [round(part * ns) for ns in times]


def unprofiled_step(whole: Snapshot) -> UnprofiledStep | None:
    """Return the time of a step without fastprof; None: unknown, or too uncertain."""
    step = _median_step(whole)
    return None if step is None or _is_uneven(step) else step


@dataclass(frozen=True, slots=True)
class OwnCosts:
    """The time in ns of fastprof's own code outside of the function hook.

    ``timed`` is the time of sections, steps and loaders, None if it was not recorded; ``unhooking``
    is its part for removing and restoring the function hook, which no measured step contains.
    ``untimed`` estimates the time of the hooks on torch that ``timed`` lacks.  All are of the whole
    run; each step has ``part`` of them, except ``unhooking``; validation and checkpoints together
    ``evaluating``.
    """

    timed: float | None
    unhooking: float
    untimed: float
    part: float
    evaluating: float = 0.0

    @property
    def timed_in_step(self) -> float:
        """Timed cost of a step."""
        return self.part * max(0.0, (self.timed or 0.0) - self.unhooking)

    @property
    def in_step(self) -> float:
        """All costs that may have lengthened a step."""
        return self.timed_in_step + self.part * self.untimed


def own_costs(whole: Snapshot) -> OwnCosts:
    """Return the time of fastprof's own code outside of the function hook.

    A file may hold any number: an impossible one (NaN, negative, centuries) counts as not recorded.
    """
    keys = "own_ns", "unprofiled_ns", "untimed_ns", "own_elsewhere_ns", "own_evaluating_ns"
    timed, *others = (
        float(ns) if isinstance(ns, (int, float)) and 0 <= ns < 2**63 else None
        for ns in map(whole.meta.get, keys)
    )
    unhooking, untimed, elsewhere, evaluating = (ns or 0.0 for ns in others)
    all_ns = max(0.0, (timed or 0.0) - unhooking) + untimed
    in_steps = max(0.0, 1.0 - elsewhere / all_ns) if all_ns else 0.0
    return OwnCosts(timed, unhooking, untimed, in_steps / max(1, whole.steps.count), evaluating)


def is_uneven(snapshot: Snapshot) -> bool:
    """Return whether the unprofiled step is unknown because steps vary too much."""
    step = _median_step(snapshot)
    return step is not None and _is_uneven(step)


def _is_uneven(step: UnprofiledStep) -> bool:
    return step.error_ms > _KNOWN_STEP * step.ms


def _median_step(snapshot: Snapshot) -> UnprofiledStep | None:
    hook = hook_cost(snapshot)
    walls = step_walls(snapshot)
    if hook is None or not walls or not snapshot.steps.measured:
        return None
    own_ns = own_costs(snapshot).in_step
    # No hook makes a program faster: a negative cost is chance.
    hook_ns = max(0.0, hook.value)
    running_ns = median(running_times(snapshot))
    step_ns = running_ns - hook_ns - own_ns
    if step_ns <= 0:
        return None
    # Waiting for a CPU makes all of it longer: without fastprof the step would wait for less.
    ns_to_ms = median(walls) / running_ns / 1e6
    return UnprofiledStep(
        ms=step_ns * ns_to_ms,
        error_ms=hook.error * ns_to_ms,
        hook_ms=hook_ns * ns_to_ms,
        own_ms=own_ns * ns_to_ms,
        blocks=len(snapshot.steps.unprofiled),
    )


# ---- solving for the costs ----


@dataclass(slots=True)
class _Part:
    """A part of a step, in ns per step: the calibration's cost of calls, how much of it is in often
    called Python functions, the time of these functions, and the measured cost of the hook."""

    calls: float = 0.0
    calls_in_python: float = 0.0
    python: float = 0.0
    cost: Interval | None = None

    def scaled(self, part: float) -> "_Part":
        """Return a part of it."""
        return _Part(part * self.calls, part * self.calls_in_python, part * self.python)


def _sum(parts: Iterable[_Part], cost: Interval | None = None) -> _Part:
    whole = _Part(cost=cost)
    for part in parts:
        whole.calls += part.calls
        whole.calls_in_python += part.calls_in_python
        whole.python += part.python
    return whole


def hook_factors(
    snapshot: Snapshot, need: Sequence[Sequence[float]], often: Sequence[Sequence[bool]]
) -> HookFactors | None:
    """Solve for the hook's cost in this program; None: use the calibration.

    Args:
        need: per thread and node, the hook's cost in ns by the calibration.
        often: per thread and node, whether it is a Python function that was called often.
    """
    calibration = snapshot.calibration
    whole = hook_cost(snapshot)
    n, thread = snapshot.steps.measured, training_thread(snapshot)
    if calibration is None or whole is None or n == 0 or not 0 <= thread < len(need):
        return None
    if snapshot.threads is snapshot.worker_threads:  # they have no steps
        return None
    slower = 1.0 - 1.0 / calibration.slowdown
    parts = _parts(snapshot, snapshot.threads[thread], need[thread], often[thread], n)
    total = _sum(parts.values(), whole)
    if total.calls <= 0:
        return None
    elsewhere = _sum(
        [
            part
            for i, tree in enumerate(snapshot.threads)
            if i != thread
            for part in _parts(snapshot, tree, need[i], often[i], n).values()
        ]
    )
    others = 1.0
    if elsewhere.calls > 0:
        others = min(1.0, max(0.0, (whole.value - total.calls) / elsewhere.calls))
        total = _sum([total, elsewhere.scaled(others)], whole)
    if whole.value <= 0 or whole.error > _KNOWN_COST * whole.value:
        found = _bounded(total, slower)
    else:
        # A section may have waited for another thread: its cost is not that of its calls.
        apart = _others_run(snapshot)
        known = [p for p in parts.values() if p.cost is not None and not apart]
        calls, bytecode = _solve([total, *known], slower)
        found = _exact(total, calls, bytecode) or _bounded(total, slower)
    return found and replace(found, others=others)


def _bounded(total: _Part, slower: float) -> HookFactors | None:
    """Combine the calibration's costs with the run's limits; None: they agree.

    Outside of the limits the costs are scaled to the nearer one.  Below the run's median they stay.
    Where the median lies between calls alone and calls with the calibration's bytecode, it counts.
    """
    cost = total.cost
    assert cost is not None
    said = total.calls + slower * max(0.0, total.python - total.calls_in_python)
    if cost.low > said:
        found = _exact(replace(total, cost=Interval(cost.low, cost.low, cost.low)), 1.0, slower)
        return found and replace(found, bound=True)
    if cost.value > said:
        return HookFactors(1.0, slower, bound=True)
    most = max(cost.high, cost.error)
    if most >= said:
        return None
    left = total.python - total.calls_in_python
    if slower and left > 0 and total.calls <= cost.value:
        # How much slower bytecode is depends on the program: the calibration gives a bound.
        return HookFactors(1.0, (cost.value - total.calls) / left)
    # With cheaper calls, bytecode has a larger share of the time:
    # most = part * calls + slower * part * (python - part * calls_in_python)
    linear, square = total.calls + slower * total.python, slower * total.calls_in_python
    part = 2.0 * most / (linear + sqrt(max(0.0, linear**2 - 4.0 * square * most)))
    return HookFactors(part, slower * part, bound=True)


def _parts(
    snapshot: Snapshot, tree: ThreadTree, need: Sequence[float], often: Sequence[bool], n: int
) -> dict[int, _Part]:
    """Return the part of a step in each top-level section, by key; -1: outside of sections."""
    nodes = tree.nodes
    phase = nodes.phase or (STEPS,) * len(nodes)
    part_of = top_sections(nodes, snapshot.keys)
    parts = {-1: _Part()}
    for i in range(len(nodes)):
        if phase[i] != STEPS or not (need[i] or often[i]):
            continue
        part = parts.setdefault(part_of[i], _Part())
        part.calls += need[i] / n
        if often[i]:
            part.calls_in_python += need[i] / n
            part.python += nodes.self_ns[i] / n
    blocks = snapshot.steps.unprofiled
    for key, part in parts.items():
        rows = [s for b in blocks for s in b.sections if s[0] == key]
        if len(rows) == len(blocks):  # the section ran in all of them
            part.cost = median_interval([hooked - plain for _key, plain, hooked in rows])
    return parts


def _solve(parts: Sequence[_Part], slower: float) -> tuple[float, float]:
    """Fit the parts by least squares, with the calibration (1, ``slower``) as prior."""
    calls, bytecode = 1.0, slower
    for _ in range(8):  # the time left for bytecode depends on the cost of calls
        a11, a12, a22 = _CALLS_MAY**-2, 0.0, _BYTECODE_MAY**-2
        b1, b2 = a11, slower * a22
        for part in parts:
            cost = part.cost
            assert cost is not None
            python = max(0.0, part.python - calls * part.calls_in_python)
            # A part with costs that the calibration misses (attributes, conversions) must not
            # dominate.
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
    """Adjust both so that they add up to the whole step; None: the result is impossible."""
    assert total.cost is not None
    left = max(0.0, total.python - calls * total.calls_in_python)
    said = calls * total.calls + bytecode * left
    if said <= 0:
        return None
    if bytecode * left:
        # Scale the calls; bytecode, whose time changes with that, takes the rest.
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
    """Return the calibration with the costs of calls in this program."""
    costs = {
        kind: EventCost(cost.inside_ns * factors.calls, cost.outside_ns * factors.calls)
        for kind, cost in calibration.costs().items()
    }
    return replace(calibration, slowdown=1.0 / (1.0 - factors.bytecode), **costs)
