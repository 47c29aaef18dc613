"""What the hook itself costs, on this machine and interpreter.

A hooked call is longer than the same call alone.  Part of the surplus lies between the
two clock reads and is booked on the callee (*inside*), the rest before the first and
after the second is booked on the caller (*outside*).  Both are measured here by running
small loops with and without the hook:

    surplus = (hooked loop - plain loop) / calls - what the loop's own bytecode gained
    inside  = callee's recorded self time / calls - what the callee truly takes
    outside = surplus - inside

A loop that does one thing is kind to caches and branch prediction; programs are not.  So
a small program of nested and mixed calls is measured, too, and all costs are scaled by
what it shows.

The minimum of several rounds is taken, as the smallest is the least disturbed.  The idea
of measuring and subtracting is that of ``profile.Profile.calibrate`` in the standard
library, which has one figure for everything; here Python calls, continuations of
generators and C calls each have their own two.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fastprof._core import BusyError, Recorder, nvtx_emits, profile_section
from fastprof.snapshot import Calibration, EventCost

_ROUNDS = 7
_CALLS = 1000

#: Steps that are ended to see what that costs, and how long each of them is.
_STEPS = 50
_STEP_NS = 60_000

#: Bytecode that an empty function runs between its two events, in ns; it is the
#: callee's own and stays with it.
_EMPTY_BODY_NS = 2.0

#: More than this is a disturbed measurement, not what caches do.
_MAX_SCALE = 1.5

#: Bytecode that takes so many times longer is slower; less is noise, more is disturbed.
_SLOWER, _MAX_SLOWDOWN = 1.1, 3.0

_cache: dict[str, Calibration | None] = {}
_section_costs: list[tuple[float, float, float]] = []


def section_costs() -> tuple[float, float, float]:
    """Return what an entry of a section, a batch and the end of a step cost, in ns.

    Measured once per process, in some milliseconds; to be called while nothing records.
    Zeroes while sections are NVTX ranges: the tool that shows them must not see these.
    """
    if nvtx_emits():
        return 0.0, 0.0, 0.0
    if not _section_costs:
        _section_costs.append(_measure_sections())
    return _section_costs[0]


def _measure_sections() -> tuple[float, float, float]:
    # Most sections are no data section, which has more to do.
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

    plain = min(_wall_ns(entries) for _ in range(_ROUNDS))
    plain_batch = min(_wall_ns(plain_fetches) for _ in range(_ROUNDS))
    recorder.start_sections()
    try:
        entry = min(_wall_ns(entries) for _ in range(_ROUNDS))
        batch = min(_wall_ns(fetches) for _ in range(_ROUNDS))
        recorder.mark()
        step_ns = _step_ns(recorder)
    finally:
        recorder.stop_sections()
    return max(0, entry - plain) / _CALLS, max(0, batch - plain_batch) / _CALLS, step_ns


def _step_ns(recorder: Recorder) -> float:
    """The usual cost of the end of a step; short steps share readings of the CPU time."""
    taken = []
    for _ in range(_STEPS):
        until = time.perf_counter_ns() + _STEP_NS
        while (began := time.perf_counter_ns()) < until:
            pass
        recorder.step()
        taken.append(time.perf_counter_ns() - began)
    nothing = min(-time.perf_counter_ns() + time.perf_counter_ns() for _ in range(_STEPS))
    return float(max(0, sorted(taken)[_STEPS // 2] - nothing))


def calibration(backend: str) -> Calibration | None:
    """Return the hook's cost for ``backend``, measured once per process.

    Takes a few milliseconds the first time.  None when it cannot be measured now because
    another profiler records; a later call tries again.
    """
    if backend not in _cache:
        try:
            _cache[backend] = _measure(backend)
        except BusyError:
            return None
    return _cache[backend]


def tell_costs(recorder: Recorder, backend: str) -> None:
    """Tell ``recorder`` what a call costs, so that it can keep its ``max_overhead``.

    To be called before it is enabled: measuring needs the hook.  ``backend`` is the one
    asked for; nothing happens when its cost cannot be measured now.
    """
    if backend == "auto":
        backend = "monitoring" if sys.version_info >= (3, 12) else "setprofile"
    cost = calibration(backend)
    if cost is not None:
        recorder.set_costs(
            cost.python.inside_ns + cost.python.outside_ns, cost.c.inside_ns + cost.c.outside_ns
        )


@dataclass(frozen=True)
class _Loop:
    """A loop of ``_CALLS`` calls; ``label`` is the callee's name in the recorder."""

    run: Callable[[], None]
    label: str


# The loops use what the calls give, as programs do: calls whose arguments and results
# nobody wants are specialised further and would look cheaper than real ones.


def _echo(x: int) -> int:
    return x


def _python_calls() -> None:
    total = 0
    for i in range(_CALLS):
        total += _echo(i)


def _c_calls() -> None:
    values = [1, 2, 3]
    total = 0
    for _ in range(_CALLS):
        total += len(values)


def _method_calls() -> None:
    values = [1, 2, 3]
    total = 0
    for _ in range(_CALLS):
        total += values.count(2)


def _yields() -> Iterator[int]:
    for i in range(_CALLS):  # noqa: UP028 - each value is one resume of this frame
        yield i


def _resumes() -> None:
    total = 0
    for value in _yields():
        total += value


def _nothing() -> None:
    total = 0
    for i in range(_CALLS):
        total += i


_LOOPS = (
    _Loop(_python_calls, "_echo"),
    _Loop(_resumes, "_yields"),
    _Loop(_c_calls, "builtins.len"),
    _Loop(_method_calls, "list.count"),
)


class _Layer:
    """Calls as a network of objects makes them: several deep, of several kinds."""

    def __init__(self, below: list[_Layer]) -> None:
        self.below = below
        self.options: dict[str, int] = {}

    def run(self, value: int) -> int:
        if self.options.get("skip") is None:
            value = self.forward(value)
        return value

    def forward(self, value: int) -> int:
        if len(self.below):
            for layer in self.below:
                value = layer.run(value)
        return self.leaf(value)

    def leaf(self, value: int) -> int:
        return abs(value) + 1


_NETWORK = _Layer([_Layer([_Layer([]) for _ in range(3)]) for _ in range(3)])
_LAYERS = 13
_MIXED_RUNS = 40


def _mixed() -> None:
    for _ in range(_MIXED_RUNS):
        _NETWORK.run(1)


def _wall_ns(run: Callable[[], None]) -> int:
    start = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - start


def _self_ns(recorder: Recorder, label: str) -> int:
    """Self time of the function whose qualified name ends in ``label``."""
    data = recorder.export()
    wanted = {i for i, key in enumerate(data["keys"]) if key[4].split(".<locals>.")[-1] == label}
    total = 0
    for _ident, _ended, (_parent, key, _calls, _resumes, self_ns, *_) in data["threads"]:
        total += sum(ns for k, ns in zip(key, self_ns, strict=True) if k in wanted)
    return total


def _measure(backend: str) -> Calibration:
    plain = {loop.label: min(_wall_ns(loop.run) for _ in range(_ROUNDS)) for loop in _LOOPS}
    plain_mixed = min(_wall_ns(_mixed) for _ in range(_ROUNDS))
    plain_nothing = min(_wall_ns(_nothing) for _ in range(_ROUNDS))
    # Without its own thread's share of other threads' events: they cost, too, but the
    # minimum over rounds leaves them out.
    hooked: dict[str, int] = {}
    inside: dict[str, int] = {}
    hooked_nothing = hooked_mixed = 2**62
    for _ in range(_ROUNDS):
        for loop in _LOOPS:
            recorder = Recorder(backend=backend)
            recorder.enable()
            try:
                wall = _wall_ns(loop.run)
                nothing = _wall_ns(_nothing)
                mixed = _wall_ns(_mixed)
            finally:
                recorder.disable()
            own = _self_ns(recorder, loop.label)
            hooked[loop.label] = min(wall, hooked.get(loop.label, wall))
            inside[loop.label] = min(own, inside.get(loop.label, own))
            hooked_nothing = min(hooked_nothing, nothing)
            hooked_mixed = min(hooked_mixed, mixed)
    # 3.11 runs every bytecode slower under a hook; that is not the calls' cost.
    loop_gain = max(0, hooked_nothing - plain_nothing)

    def cost(label: str, body_ns: float) -> EventCost:
        surplus = max(0.0, (hooked[label] - plain[label] - loop_gain) / _CALLS)
        within = min(surplus, max(0.0, inside[label] / _CALLS - body_ns))
        return EventCost(inside_ns=within, outside_ns=surplus - within)

    # What a generator does per item and what a C function does is the plain loop's time
    # less the empty loop's, all of it the callee's.
    body = {loop.label: max(0.0, (plain[loop.label] - plain_nothing) / _CALLS) for loop in _LOOPS}
    python = cost("_echo", _EMPTY_BODY_NS)
    c = cost("builtins.len", body["builtins.len"] / 2)
    method = cost("list.count", body["list.count"] / 2)
    # Per layer: run, forward, leaf; len, abs; dict.get.
    expected = _LAYERS * (3 * _total(python) + 2 * _total(c) + _total(method))
    surplus = (hooked_mixed - plain_mixed) / _MIXED_RUNS
    scale = min(_MAX_SCALE, max(1.0, surplus / expected)) if expected else 1.0
    return Calibration(
        python=_scaled(python, scale),
        resume=_scaled(cost("_yields", body["_yields"] / 2), scale),
        c=_scaled(c, scale),
        method=_scaled(method, scale),
        slowdown=_slowdown(hooked_nothing, plain_nothing),
    )


def _slowdown(hooked_ns: int, plain_ns: int) -> float:
    """How many times longer bytecode takes under the hook; what is noise is none."""
    ratio = hooked_ns / plain_ns if plain_ns else 1.0
    return min(_MAX_SLOWDOWN, ratio) if ratio > _SLOWER else 1.0


def _total(cost: EventCost) -> float:
    return cost.inside_ns + cost.outside_ns


def _scaled(cost: EventCost, scale: float) -> EventCost:
    return EventCost(cost.inside_ns * scale, cost.outside_ns * scale)
