"""Measures the cost of the hook itself, on this machine and interpreter.

A hooked call takes longer than the same call alone.  Part of the surplus lies between the
two clock reads and counts for the callee (*inside*); the rest, before the first and after
the second, counts for the caller (*outside*).  This module measures both by running
small loops with and without the hook:

    surplus = (hooked loop - plain loop) / calls - slowdown of the loop's own bytecode
    inside  = callee's recorded self time / calls - callee's true time
    outside = surplus - inside

Each kind of event has a loop (``calibrate_loops``).

Loops take microseconds.  They run with and without the hook in turns, and the minimum of
each counts: disturbed runs are slower, and even on a busy machine some runs of each are not
disturbed.  The rounds continue until the minimum has come up again.  If reading the clock took
longer in all rounds than before in this process, they are all disturbed, and the measurement is
repeated a little later (``clock_reads``).  The idea to measure and
subtract comes from ``profile.Profile.calibrate`` in the standard library, which uses one
figure for everything.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from fastprof._core import Recorder, nvtx_emits, profile_section
from fastprof.capture.calibrate_loops import LOOPS, NESTED_IMPLICIT, NESTED_TURN, TURNS
from fastprof.capture.clock_reads import is_disturbed, sample
from fastprof.clock import time
from fastprof.guards import own_errors
from fastprof.snapshot import Calibration, EventCost

#: Fewest and most rounds: rounds continue until the least time of each loop has come up in
#: 3 rounds in all, within 5 %.
_ROUNDS, _MOST_ROUNDS = 8, 48
_SAME, _AGAIN = 0.05, 3

#: Pause before each further round, in s: other programs run in it.
_REST_S = 0.001

#: Seconds, and seconds of CPU time, after which no further round begins, and no repetition: where
#: every round is slow (tracemalloc, a debugger), more of them would cost the program more than they
#: tell.  All rounds take 0.12 s of CPU time, one under tracemalloc up to 0.3 s.
_MOST_S, _MOST_CPU_S = 0.75, 0.2

#: The same at the start of a run, where the program waits for the measurement: two or three rounds.
_START_S, _START_CPU_S = 0.02, 0.004

#: Pauses before a disturbed measurement is repeated, in s.
_PAUSES_S = (0.1, 0.2, 0.4)

#: Fewest seconds from the first measurement to the second; each later distance is twice as long.
#: A neighbour on the machine can disturb all measurements of some seconds.
_LATER_S = 1.0

#: In tests a nested call cost at most an eighth more; above this share it is noise.
_MOST_NESTED = 0.3

#: Calibration of sections: rounds, and entries and batches per round.
_SECTION_ROUNDS = 4
_CALLS = 1000

#: Number and length of the steps that measure the cost of a step's end.
_STEPS = 20
_STEP_NS = 60_000
#: Most readings of the clock in such a step: a clock that stands still must end it, too.
_STEP_READS = 5_000

#: Time of the bytecode that an empty function runs between its two events, in ns; it
#: counts for the callee.
_EMPTY_BODY_NS = 2.0

#: Slowdowns of bytecode below the first factor are noise; the second one is the limit.
_SLOWER, _MAX_SLOWDOWN = 1.1, 3.0


@dataclass(frozen=True, slots=True)
class _Measured:
    """The least times of the loops so far, in ns; ``inside`` is per event."""

    plain: Mapping[str, float]
    hooked: Mapping[str, float]
    inside: Mapping[str, float]
    read_ns: float  # of the clock
    times: int  # whole measurements, without the short one at the start of a run
    at_s: float  # time of the last measurement


_measured: dict[str, _Measured] = {}
_section_costs: list[tuple[float, float, float]] = []


def section_costs() -> tuple[float, float, float]:
    """Return the costs of a section's entry, a batch and the end of a step, in ns.

    Measures them once per process, in some milliseconds; call it while nothing records.
    Returns zeroes while sections are NVTX ranges: the tool that shows them must not see these.
    """
    if nvtx_emits():
        return 0.0, 0.0, 0.0
    if not _section_costs:
        _section_costs.append(_measure_sections())
    return _section_costs[0]


def _measure_sections() -> tuple[float, float, float]:
    # Most sections are not data sections, which have more to do.
    section, data = profile_section("forward"), profile_section("data")
    values = [0] * _CALLS
    recorder = Recorder(outliers=5, skip_steps=0)

    def entries() -> None:
        for _ in values:
            with section:
                pass

    def fetches() -> None:
        iterator, fetch = iter(values), recorder.next_batch
        for _ in values:
            fetch(0, iterator, data)

    def plain_fetches() -> None:
        iterator = iter(values)
        for _ in values:
            next(iterator)

    plain, plain_batch = _least_ns(entries), _least_ns(plain_fetches)
    recorder.start_sections()
    try:
        entry, batch = _least_ns(entries), _least_ns(fetches)
        recorder.mark()
        step_ns = _step_ns(recorder)
    finally:
        recorder.stop_sections()
    return max(0, entry - plain) / _CALLS, max(0, batch - plain_batch) / _CALLS, step_ns


def _least_ns(run: Callable[[], None]) -> int:
    ends_at_cpu = time.thread_time() + _START_CPU_S
    least = _wall_ns(run)
    for _ in range(1, _SECTION_ROUNDS):
        if time.thread_time() > ends_at_cpu:
            break
        least = min(least, _wall_ns(run))
    return least


def _step_ns(recorder: Recorder) -> float:
    """Return the usual cost of the end of a step; short steps share readings of the CPU time."""
    taken: list[int] = []
    ends_at = time.perf_counter_ns() + int(_MOST_S * 1e9)
    while len(taken) < _STEPS:
        began = time.perf_counter_ns()
        if began > ends_at and taken:
            break
        until = began + _STEP_NS
        for _ in range(_STEP_READS):
            began = time.perf_counter_ns()
            if began >= until:
                break
        recorder.step()
        taken.append(time.perf_counter_ns() - began)
    nothing = min(-time.perf_counter_ns() + time.perf_counter_ns() for _ in range(_STEPS))
    return float(max(0, sorted(taken)[len(taken) // 2] - nothing))


def calibration(
    backend: str, *, at_start: bool = False, most_cpu_s: float = _START_CPU_S
) -> Calibration | None:
    """Return the hook's cost for ``backend``, by the least times measured in this process.

    A measurement takes 20 to 200 ms, a disturbed one up to 1.5 s: the first call measures, and
    later calls that come 1, 2, 4, 8 and so on seconds after the last measurement.  Returns None if
    it cannot measure now, mostly because another profiler records; a later call tries again.

    Args:
        backend: ``"auto"``: the one that a recorder would take.
        at_start: the program waits: measure for some milliseconds, and only if the cost is unknown.
            The next call measures the rest.
        most_cpu_s: seconds of CPU time after which no further round begins at the start.
    """
    if backend == "auto":
        backend = "monitoring" if sys.version_info >= (3, 12) else "setprofile"
    known = _measured.get(backend)
    if known is None or (not at_start and _is_due(known)):
        try:
            if at_start:
                known = _measured_at_start(backend, most_cpu_s)
            else:
                known = _measured_again(known, backend)
            _measured[backend] = known
        except own_errors():  # uncorrected times are better than none
            if known is None:
                return None
    return _calibration(
        known.plain, known.hooked, known.inside, constructors=backend == "monitoring"
    )


def _measured_at_start(backend: str, most_cpu_s: float) -> _Measured:
    began = time.thread_time()
    found = _measure(backend, _START_S, most_cpu_s)
    # If one round takes as long as all of them may, the next call would measure no more.
    is_whole = time.thread_time() - began >= _MOST_CPU_S
    return found if is_whole else replace(found, times=0)


def _is_due(known: _Measured) -> bool:
    if not known.times:
        return True
    return time.monotonic() - known.at_s >= _LATER_S * (1 << (known.times - 1))


def _measured_again(known: _Measured | None, backend: str) -> _Measured:
    """Measure; again if a neighbour has disturbed the processor in all measurements so far."""
    began = time.monotonic()
    found = _merged(known, _measure(backend))
    for pause_s in _PAUSES_S:
        if not is_disturbed(found.read_ns) or time.monotonic() - began > _MOST_S + pause_s:
            break
        time.sleep(pause_s)
        try:
            found = replace(_merged(found, _measure(backend)), times=found.times)
        except own_errors():  # another profiler records now: disturbed costs are better than none
            break
    return found


def _merged(known: _Measured | None, new: _Measured) -> _Measured:
    if known is None:
        return new
    return _Measured(
        _least([known.plain, new.plain]),
        _least([known.hooked, new.hooked]),
        _least([known.inside, new.inside]),
        min(known.read_ns, new.read_ns),
        known.times + 1,
        new.at_s,
    )


@dataclass(frozen=True, slots=True)
class CallCosts:
    """What the hook costs per call in ns, by kind, and by how much it slows bytecode."""

    python_ns: float
    c_ns: float
    constructor_ns: float
    slowdown: float

    def of(self, calls: Sequence[int], cpu_ns: int) -> float:
        """Return what calls have cost in ns.

        Args:
            calls: their numbers, as from ``Recorder.call_counts``.
            cpu_ns: the CPU time in which they happened; all of it may be bytecode.
        """
        each = (self.python_ns, self.c_ns, self.constructor_ns)
        cost_ns = sum(n * ns for n, ns in zip(calls, each, strict=True))
        return cost_ns + max(0.0, cpu_ns - cost_ns) * (1.0 - 1.0 / self.slowdown)


def call_costs(backend: str) -> CallCosts | None:
    """Return the costs of calls at the start of a run; None: they cannot be measured now.

    ``backend``: as requested.
    """
    cost = calibration(backend, at_start=True)
    if cost is None:
        return None
    return CallCosts(_total(cost.python), _total(cost.c), _total(cost.constructor), cost.slowdown)


def _wall_ns(run: Callable[[], None]) -> int:
    start = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - start


def _times_ns() -> dict[str, float]:
    """Return the time of each loop; in the first run the interpreter adapts to the hook."""
    return {name: min(_wall_ns(one.run), _wall_ns(one.run)) for name, one in LOOPS.items()}


def _inside_ns(recorder: Recorder) -> dict[str, float]:
    """Return the recorded self time per event of each loop's callees."""
    data = recorder.export()
    names = [key[4].rsplit(".", 1)[-1] for key in data["keys"]]
    loop_of = {loop.run.__name__: kind for kind, loop in LOOPS.items()}
    ns = dict.fromkeys(LOOPS, 0)
    events = dict.fromkeys(LOOPS, 0)
    for _ident, _ended, (parent, key, calls, resumes, self_ns, *_) in data["threads"]:
        loops: list[str] = []
        for above, k, n, m, own in zip(parent, key, calls, resumes, self_ns, strict=True):
            kind = loop_of.get(names[k]) or (loops[above] if above >= 0 else "")
            loops.append(kind)
            if kind and names[k] in LOOPS[kind].labels:
                ns[kind] += own
                events[kind] += n + m
    return {kind: ns[kind] / n for kind, n in events.items() if n}


def _least(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the least value of each name over the rounds that have it (that saw its events)."""
    names = dict.fromkeys(name for one in rounds for name in one)
    return {name: min(one[name] for one in rounds if name in one) for name in names}


def _steady(rounds: Sequence[Mapping[str, float]]) -> bool:
    """Return whether the least time of every loop came up too often for chance."""
    for name in rounds[0]:
        times = sorted(one[name] for one in rounds)
        if len(times) < _AGAIN or times[_AGAIN - 1] > times[0] * (1.0 + _SAME):
            return False
    return True


def _measure(backend: str, most_s: float = _MOST_S, most_cpu_s: float = _MOST_CPU_S) -> _Measured:
    # If another recorder has the hook, this fails before the training waits for a loop.
    recorder = Recorder(backend=backend)
    recorder.enable()
    recorder.disable()
    plain_rounds: list[dict[str, float]] = []
    hooked_rounds: list[dict[str, float]] = []
    inside_rounds: list[dict[str, float]] = []
    reads = []
    ends_at, ends_at_cpu = time.monotonic() + most_s, time.thread_time() + most_cpu_s
    while len(plain_rounds) < _MOST_ROUNDS:
        if plain_rounds and (time.monotonic() > ends_at or time.thread_time() > ends_at_cpu):
            break
        if len(plain_rounds) >= _ROUNDS:
            if _steady(plain_rounds) and _steady(hooked_rounds):
                break
            time.sleep(_REST_S)
        reads.append(sample())
        plain_rounds.append(_times_ns())
        if not any(plain_rounds[0].values()):
            # The cost is unknown, not nothing.  More rounds would have no limit of time.
            raise OSError("the clock stands still")
        recorder = Recorder(backend=backend)
        recorder.enable()
        try:
            hooked_rounds.append(_times_ns())
        finally:
            recorder.disable()
        inside_rounds.append(_inside_ns(recorder))
    return _Measured(
        _least(plain_rounds), _least(hooked_rounds), _least(inside_rounds), min(reads), 1,
        time.monotonic(),
    )  # fmt: skip


def _calibration(
    plain: Mapping[str, float],
    hooked: Mapping[str, float],
    inside: Mapping[str, float],
    *,
    constructors: bool,
) -> Calibration:
    """Work out the costs from the loops' times in ns; ``inside`` is per event.

    ``constructors``: whether the hook gets events for them.
    """
    # 3.11 runs every bytecode slower under a hook; calls do not cause this.
    loop_gain = max(0.0, hooked["nothing"] - plain["nothing"])
    work_ns = max(0.0, plain["work"] - plain["nothing"]) / TURNS
    work_gain = max(0.0, hooked["work"] - plain["work"] - loop_gain) / TURNS
    if constructors:  # sys.monitoring changes no other bytecode: the rest is noise
        work_gain = 0.0

    def events(kind: str) -> int:
        return TURNS * LOOPS[kind].calls

    def surplus(kind: str) -> float:
        """Return the cost of one event of a loop without other events."""
        longer = max(0.0, hooked[kind] - plain[kind] - loop_gain) / events(kind)
        return max(0.0, longer - work_gain) if LOOPS[kind].works else longer

    def cost(kind: str, ns: float) -> EventCost:
        """Split ``ns``: inside is the recorded time minus the callee's true time."""
        body = max(0.0, plain[kind] - plain["nothing"]) / events(kind) / 2
        if LOOPS[kind].works or kind == "init":
            body = min(body, _EMPTY_BODY_NS) + (work_ns if LOOPS[kind].works else 0.0)
        within = min(ns, max(0.0, inside.get(kind, body) - body))
        return EventCost(within, ns - within)

    def as_in(one: EventCost, kind: str) -> EventCost:
        """Split the cost of ``kind`` in the proportion of ``one``: its callees are slow."""
        share = one.inside_ns / _total(one) if _total(one) else 1.0
        return EventCost(share * surplus(kind), (1.0 - share) * surplus(kind))

    kinds = ("python", "general", "unpacked", "resume", "fed", "c", "method")
    costs = {kind: cost(kind, surplus(kind)) for kind in kinds}
    costs["c_general"] = as_in(costs["c"], "c_general")
    if constructors:
        costs["constructor"] = cost("constructor", surplus("constructor"))
        costs["text"] = as_in(costs["constructor"], "text")
        costs["init"] = cost("init", max(0.0, surplus("init") - _total(costs["constructor"])))
        turn = surplus("nested") * LOOPS["nested"].calls
        called = sum(n * _total(costs[kind]) for kind, n in NESTED_TURN.items())
        more = max(0.0, turn - called) / LOOPS["nested"].calls
        costs["nested"] = EventCost(0.0, min(more, _MOST_NESTED * _total(costs["python"])))
        within = _total(costs["nested"]) * NESTED_IMPLICIT / LOOPS["implicit"].calls
        costs["implicit"] = cost("implicit", max(0.0, surplus("implicit") - within))
        turn = surplus("made") * LOOPS["made"].calls
        begun = LOOPS["made"].calls * _total(costs["fed"])
        costs["made"] = EventCost(0.0, max(0.0, turn - begun - _total(costs["c"])))
    else:
        # This hook does not distinguish forms, and slower bytecode makes nested calls look dear.
        of_both = (costs["general"], cost("implicit", surplus("implicit")))
        inside_ns, outside_ns = (sum(part) / 2 for part in zip(*map(astuple, of_both), strict=True))
        costs |= dict.fromkeys(
            ("python", "general", "unpacked", "implicit", "init"), EventCost(inside_ns, outside_ns)
        )
        costs |= dict.fromkeys(("constructor", "text"), EventCost(0.0, 0.0))
        costs["nested"] = EventCost(0.0, 0.0)
        # It begins with a call, and no event reports its creation.
        begins = max(0.0, inside_ns + outside_ns - _total(costs["fed"]))
        costs["made"] = EventCost(0.0, begins)
    return Calibration(**costs, slowdown=_slowdown(hooked["nothing"], plain["nothing"]))


def _slowdown(hooked_ns: float, plain_ns: float) -> float:
    """Return how many times longer bytecode takes under the hook; 1.0: only noise differs."""
    ratio = hooked_ns / plain_ns if plain_ns else 1.0
    return min(_MAX_SLOWDOWN, ratio) if ratio > _SLOWER else 1.0


def _total(cost: EventCost) -> float:
    return cost.inside_ns + cost.outside_ns
