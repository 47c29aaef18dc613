"""From the times of loops to the cost of an event; nothing here is timed."""

from __future__ import annotations

from fastprof.capture import calibrate
from fastprof.capture.calibrate_loops import LOOPS, MIXED_EVENTS, TURNS
from fastprof.snapshot import EventCost

#: What an event costs in a made up machine, and how much of it is inside.
COSTS = {
    "python": (70.0, 30.0),
    "resume": (50.0, 35.0),
    "c": (60.0, 20.0),
    "method": (66.0, 21.0),
    "implicit": (54.0, 31.0),
    "constructor": (84.0, 40.0),
    "init": (140.0, 32.0),
}


def times(scale: float = 1.0, slower: float = 1.0) -> tuple[dict[str, float], ...]:
    """Times of all loops without and with the hook; a turn takes 20 ns and does nothing."""
    plain = dict.fromkeys(LOOPS, 20.0 * TURNS) | {"mixed": 5000.0}
    hooked = {kind: ns * slower for kind, ns in plain.items() if kind != "mixed"}
    for kind, (total, _) in COSTS.items():
        hooked[kind] += TURNS * LOOPS[kind].calls * total
    # A constructor comes before each __init__.
    hooked["init"] += TURNS * COSTS["constructor"][0]
    surplus = sum(n * COSTS[kind][0] for kind, n in MIXED_EVENTS.items())
    hooked["mixed"] = plain["mixed"] + scale * surplus
    return plain, hooked, {kind: inside for kind, (_, inside) in COSTS.items()}


def test_each_kind_of_event_has_the_cost_of_its_loop():
    found = calibrate._calibration(*times(), constructors=True)
    assert found.slowdown == 1.0
    for kind, cost in found.costs().items():
        total, inside = COSTS[kind]
        assert (round(cost.inside_ns, 6), round(cost.outside_ns, 6)) == (inside, total - inside)


def test_without_events_for_constructors_their_functions_are_calls():
    found = calibrate._calibration(*times(), constructors=False)
    assert found.init == found.implicit == found.python == EventCost(30.0, 40.0)
    assert found.constructor == EventCost(0.0, 0.0)


def test_costs_grow_by_half_of_what_mixed_calls_cost_more():
    found = calibrate._calibration(*times(scale=1.2), constructors=True)
    assert round(found.c.inside_ns + found.c.outside_ns, 6) == 60.0 * 1.1
    disturbed = calibrate._calibration(*times(scale=40.0), constructors=True)
    assert disturbed.c.inside_ns + disturbed.c.outside_ns <= 60.0 * 1.25


def test_slower_bytecode_is_no_cost_of_calls():
    found = calibrate._calibration(*times(slower=1.5), constructors=True)
    assert found.slowdown == 1.5
    assert round(found.c.inside_ns + found.c.outside_ns, 6) == 60.0


def test_what_is_disturbed_is_never_negative():
    plain, _, inside = times()
    nothing = calibrate._calibration(plain, dict.fromkeys(plain, 0.0), inside, constructors=True)
    assert all(cost == EventCost(0.0, 0.0) for cost in nothing.costs().values())
