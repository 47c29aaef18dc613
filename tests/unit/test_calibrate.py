"""Computing the cost of an event from the times of loops; no test measures real time."""

from __future__ import annotations

import sys

import pytest
from fastprof import Profile
from fastprof._core import Recorder
from fastprof.capture import calibrate, clock_reads
from fastprof.capture.calibrate_loops import LOOPS, NESTED_IMPLICIT, NESTED_TURN, TURNS
from fastprof.errors import BusyError
from fastprof.snapshot import EventCost

#: Cost of an event on an artificial machine, and the part of it inside the call.
COSTS = {
    "python": (70.0, 30.0),
    "resume": (50.0, 35.0),
    "c": (60.0, 20.0),
    "method": (66.0, 21.0),
    "implicit": (54.0, 31.0),
    "constructor": (84.0, 40.0),
    "init": (140.0, 32.0),
    "general": (61.0, 29.0),
    "unpacked": (82.0, 28.0),
    "c_general": (51.0, 17.0),
    "fed": (51.5, 36.0),
    "made": (90.0, 0.0),
    "nested": (9.0, 0.0),
    "text": (105.0, 50.0),
}

#: A generator is created, begins and resumes eight times, and a C function consumes it.
MADE_EVENT = (COSTS["made"][0] + 9 * COSTS["fed"][0] + COSTS["c"][0]) / LOOPS["made"].calls

#: Functions that call functions: their cost in a row, and the additional cost.
NESTED_EVENT = COSTS["nested"][0] + (
    sum(n * COSTS[kind][0] for kind, n in NESTED_TURN.items()) / LOOPS["nested"].calls
)

#: Work of callees that are not empty.
WORK = 11.0


OF_MANY = {"made": (MADE_EVENT, 0.0), "nested": (NESTED_EVENT, 0.0)}


def times(slower: float = 1.0, nested: bool = True) -> tuple[dict[str, float], ...]:
    """Return times of all loops without and with the hook; an empty turn takes 20 ns."""
    plain = dict.fromkeys(LOOPS, 20.0 * TURNS) | {"work": (20.0 + WORK) * TURNS}
    inside = {kind: inside for kind, (_, inside) in COSTS.items()}
    for kind in inside:
        if LOOPS[kind].works:
            plain[kind] += TURNS * LOOPS[kind].calls * WORK
            inside[kind] += WORK + calibrate._EMPTY_BODY_NS
    hooked = {kind: ns + (slower - 1.0) * plain["nothing"] for kind, ns in plain.items()}
    for kind, (total, _) in (COSTS | OF_MANY).items():
        hooked[kind] += TURNS * LOOPS[kind].calls * total
    # One property reads another.
    hooked["implicit"] += TURNS * nested * NESTED_IMPLICIT * COSTS["nested"][0]
    # A constructor comes before each __init__.
    hooked["init"] += TURNS * COSTS["constructor"][0]
    return plain, hooked, inside


def test_each_kind_of_event_has_the_cost_of_its_loop():
    found = calibrate._calibration(*times(), constructors=True)
    assert found.slowdown == 1.0
    for kind, cost in found.costs().items():
        total, inside = COSTS[kind]
        assert (round(cost.inside_ns, 6), round(cost.outside_ns, 6)) == (inside, total - inside)


def test_without_events_for_constructors_their_functions_are_calls():
    found = calibrate._calibration(*times(nested=False), constructors=False)
    kinds = (found.python, found.general, found.unpacked, found.implicit, found.init)
    assert {(round(k.inside_ns, 6), round(k.outside_ns, 6)) for k in kinds} == {(30.0, 27.5)}
    assert found.constructor == EventCost(0.0, 0.0)
    assert found.made == EventCost(0.0, 6.0)  # a generator begins with a call


def test_a_disturbed_loop_of_nested_calls_does_not_take_all_of_a_recursion():
    plain, hooked, inside = times()
    hooked["nested"] *= 3
    found = calibrate._calibration(plain, hooked, inside, constructors=True)
    assert 0 < found.nested.outside_ns <= 0.3 * COSTS["python"][0]


def test_slower_bytecode_is_no_cost_of_calls():
    found = calibrate._calibration(*times(slower=1.5), constructors=True)
    assert found.slowdown == 1.5
    assert round(found.c.inside_ns + found.c.outside_ns, 6) == 60.0


def test_what_is_disturbed_is_never_negative():
    plain, _, inside = times()
    nothing = calibrate._calibration(plain, dict.fromkeys(plain, 0.0), inside, constructors=True)
    assert all(cost == EventCost(0.0, 0.0) for cost in nothing.costs().values())


def test_a_disturbed_machine_is_measured_until_the_least_times_come_up_again(monkeypatch):
    plain, hooked, inside = times()
    rounds = iter(range(2 * calibrate._MOST_ROUNDS))

    def disturbed():
        number = next(rounds)
        slower = 2.0 - 0.06 * (number // 2) if number < 30 else 1.0
        return {kind: slower * ns for kind, ns in (hooked if number % 2 else plain).items()}

    monkeypatch.setattr(calibrate, "_times_ns", disturbed)
    monkeypatch.setattr(calibrate, "_inside_ns", lambda _recorder: inside)
    monkeypatch.setattr(calibrate, "_REST_S", 0.0)
    backend = "monitoring" if sys.version_info >= (3, 12) else "setprofile"
    monkeypatch.setattr(calibrate, "_measured", {})
    found = calibrate.calibration(backend)
    assert found.c == calibrate._calibration(plain, hooked, inside, constructors=True).c
    assert 8 < next(rounds) / 2 < calibrate._MOST_ROUNDS


def test_a_machine_that_never_comes_to_rest_is_measured_for_a_bounded_time(monkeypatch):
    rounds = iter(range(1000))

    def never():
        slower = 1.2 ** (60 - next(rounds) // 2)
        return dict.fromkeys(LOOPS, slower * 20.0)

    monkeypatch.setattr(calibrate, "_times_ns", never)
    monkeypatch.setattr(calibrate, "_inside_ns", lambda _recorder: dict.fromkeys(LOOPS, 1.0))
    monkeypatch.setattr(calibrate, "_REST_S", 0.0)
    calibrate._measure("monitoring" if sys.version_info >= (3, 12) else "setprofile")
    assert next(rounds) == 2 * calibrate._MOST_ROUNDS


def test_slow_rounds_are_few(monkeypatch):
    """With -X tracemalloc=25 a round takes 40 ms of CPU time instead of 2.5."""
    plain, hooked, inside = times()
    rounds, cpu_s = [], [5.0]

    def slow():
        rounds.append(len(rounds))
        cpu_s[0] += 0.02
        return hooked if len(rounds) % 2 == 0 else plain

    monkeypatch.setattr(calibrate, "_times_ns", slow)
    monkeypatch.setattr(calibrate, "_inside_ns", lambda _recorder: inside)
    monkeypatch.setattr(calibrate.time, "thread_time", lambda: cpu_s[0])
    found = calibrate._measure("monitoring" if sys.version_info >= (3, 12) else "setprofile")
    assert len(rounds) / 2 <= 6
    assert (found.plain, found.hooked) == (plain, hooked)


def test_i38_a_round_that_is_too_long_at_the_start_of_a_run_is_the_whole_measurement(monkeypatch):
    """With -X tracemalloc=25 a round takes 250 ms of CPU time."""
    plain, hooked, inside = times()
    rounds, cpu_s = [], [5.0]

    def slow():
        rounds.append(len(rounds))
        cpu_s[0] += 0.125
        return hooked if len(rounds) % 2 == 0 else plain

    monkeypatch.setattr(calibrate, "_measured", {})
    monkeypatch.setattr(calibrate, "_times_ns", slow)
    monkeypatch.setattr(calibrate, "_inside_ns", lambda _recorder: inside)
    monkeypatch.setattr(calibrate.time, "thread_time", lambda: cpu_s[0])
    backend = "monitoring" if sys.version_info >= (3, 12) else "setprofile"
    at_start = calibrate.calibration(backend, at_start=True)
    assert at_start == calibrate.calibration(backend)
    assert len(rounds) == 2


def test_i38_slow_rounds_of_sections_are_few(monkeypatch):
    rounds, cpu_s = [], [5.0]

    def slow(run):
        rounds.append(run.__name__)
        cpu_s[0] += 0.02
        return 1000

    monkeypatch.setattr(calibrate, "_wall_ns", slow)
    monkeypatch.setattr(calibrate.time, "thread_time", lambda: cpu_s[0])
    calibrate._measure_sections()
    assert rounds == ["entries", "plain_fetches", "entries", "fetches"]


def test_the_start_of_a_run_measures_for_some_milliseconds_and_the_report_the_rest(monkeypatch):
    """Rounds and readings of the clock take their time on an artificial, disturbed machine."""
    plain, hooked, inside = times()
    rounds, cpu_s, slept = [], [5.0], []

    def loops():
        rounds.append(len(rounds))
        cpu_s[0] += 0.00115
        slower = 1.0 + 0.5 / len(rounds)
        kind = hooked if len(rounds) % 2 == 0 else plain
        return {name: slower * ns for name, ns in kind.items()}

    monkeypatch.setattr(calibrate, "_measured", {})
    monkeypatch.setattr(calibrate, "_times_ns", loops)
    monkeypatch.setattr(calibrate, "_inside_ns", lambda _recorder: inside)
    monkeypatch.setattr(calibrate, "is_disturbed", lambda read_ns: True)
    monkeypatch.setattr(calibrate.time, "sleep", slept.append)
    monkeypatch.setattr(calibrate.time, "thread_time", lambda: cpu_s[0])
    backend = "monitoring" if sys.version_info >= (3, 12) else "setprofile"
    first = calibrate.calibration(backend, at_start=True)
    assert calibrate.call_costs(backend) is not None
    assert first is not None
    assert cpu_s[0] - 5.0 < 0.0075
    assert not slept
    at_start = len(rounds)
    better = calibrate.calibration(backend)
    assert len(rounds) >= at_start + 2 * calibrate._ROUNDS
    assert better.c.outside_ns < first.c.outside_ns
    measured = len(rounds)
    assert calibrate.calibration(backend, at_start=True) == better  # another run starts
    assert len(rounds) == measured


def test_a_round_that_saw_no_event_of_a_kind_costs_no_profile(monkeypatch):
    """On 3.14 a run ended by SIGTERM was lost, because one round had seen no call."""
    plain, hooked, inside = times()
    without = {kind: ns for kind, ns in inside.items() if kind != "python"}
    for rounds in ([inside, without], [without, inside]):
        assert calibrate._least(rounds) == inside
    found = calibrate._calibration(plain, hooked, without, constructors=True)
    assert found.python.inside_ns + found.python.outside_ns == pytest.approx(COSTS["python"][0])

    def fails(backend):
        raise KeyError("python")

    monkeypatch.setattr(calibrate, "_measured", {})
    monkeypatch.setattr(calibrate, "_measure", fails)
    assert calibrate.calibration("monitoring") is None


def test_a_disturbed_measurement_that_cannot_be_repeated_is_kept(monkeypatch):
    """Another profiler began in the pause before the repetition."""
    plain, hooked, inside = times()
    outcomes = [calibrate._Measured(plain, hooked, inside, 100.0, 1, 0.0)]

    def measure(backend):
        if not outcomes:
            raise BusyError("another profiler")
        return outcomes.pop()

    monkeypatch.setattr(calibrate, "_measured", {})
    monkeypatch.setattr(calibrate, "_measure", measure)
    monkeypatch.setattr(calibrate, "is_disturbed", lambda read_ns: True)
    monkeypatch.setattr(calibrate, "_PAUSES_S", (0.0, 0.0))
    assert calibrate.calibration("setprofile") is not None


def test_a_neighbour_that_slows_hooked_calls_once_does_not_decide(monkeypatch):
    """In its second it slows every hooked run, so no round of that second is undisturbed."""
    plain, hooked, inside = times()
    now, slower, calls = [100.0], [1.6], []

    def disturbed():
        calls.append(now[0])
        return (
            {kind: slower[0] * ns for kind, ns in hooked.items()} if len(calls) % 2 == 0 else plain
        )

    monkeypatch.setattr(calibrate, "_measured", {})
    monkeypatch.setattr(calibrate, "_times_ns", disturbed)
    monkeypatch.setattr(calibrate, "_inside_ns", lambda _recorder: inside)
    monkeypatch.setattr(calibrate.time, "monotonic", lambda: now[0])

    def total(cost):
        return cost.inside_ns + cost.outside_ns

    backend = "monitoring" if sys.version_info >= (3, 12) else "setprofile"
    true = calibrate._calibration(plain, hooked, inside, constructors=backend == "monitoring")
    first = calibrate.calibration(backend)
    assert total(first.python) > 1.2 * total(true.python)
    slower[0] = 1.0
    assert calibrate.calibration(backend) == first  # within the same second
    now[0] += 1.0
    assert calibrate.calibration(backend) == true
    # Nor does a later neighbour, or one that prevents any measurement.
    slower[0] = 1.6
    for _ in range(5):
        now[0] += 1.0
        assert calibrate.calibration(backend) == true
    assert len(set(calls)) == 3


def test_a_neighbour_that_stays_for_seconds_does_not_decide_over_a_long_process(monkeypatch):
    """It slows hooked calls by half, and a loop without calls hardly."""
    plain, hooked, inside = times()
    now, hooks, measured = [100.0], [False], []

    def disturbed():
        measured.append(now[0])
        hooks[0] = not hooks[0]
        slower = 1.0 if now[0] > 110.0 else 1.08 if hooks[0] else 1.6
        loops = plain if hooks[0] else hooked
        return {kind: slower * ns for kind, ns in loops.items()}

    monkeypatch.setattr(calibrate, "_measured", {})
    monkeypatch.setattr(calibrate, "_times_ns", disturbed)
    monkeypatch.setattr(calibrate, "_inside_ns", lambda _recorder: inside)
    monkeypatch.setattr(calibrate.time, "monotonic", lambda: now[0])
    backend = "monitoring" if sys.version_info >= (3, 12) else "setprofile"
    true = calibrate._calibration(plain, hooked, inside, constructors=backend == "monitoring")
    while now[0] < 1000.0:
        found = calibrate.calibration(backend)
        assert now[0] < 116.0 or found == true
        now[0] += 0.5
    assert sorted(set(measured)) == [100.0 + 2**n - 1 for n in range(10)]


def test_costs_that_are_known_stay_when_they_cannot_be_measured_again(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(calibrate, "_measured", {})
    monkeypatch.setattr(calibrate.time, "monotonic", lambda: now[0])
    known = calibrate._Measured(*times(), 40.0, 1, now[0])
    monkeypatch.setattr(calibrate, "_measure", lambda backend: known)
    first = calibrate.calibration("monitoring")

    def busy(backend):
        raise RuntimeError("another profiler records")

    monkeypatch.setattr(calibrate, "_measure", busy)
    now[0] += 10.0
    assert calibrate.calibration("monitoring") == first


def test_a_report_of_a_run_that_goes_on_does_not_measure(monkeypatch):
    """During the run the hook belongs to a recorder, and the training waits for the report."""
    backend = "monitoring" if sys.version_info >= (3, 12) else "setprofile"
    known = calibrate._Measured(*times(), 40.0, 1, calibrate.time.monotonic() - 10.0)
    monkeypatch.setattr(calibrate, "_measured", {backend: known})
    measured = []
    monkeypatch.setattr(calibrate, "_times_ns", lambda: measured.append(1) or {})
    recorder = Recorder(backend=backend)
    recorder.enable()
    try:
        assert calibrate.calibration(backend) is not None
    finally:
        recorder.disable()
    assert not measured


class Neighbour:
    """A neighbour on the core that slows hooked calls and readings of the clock until a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, until: float) -> None:
        self.until, self.now, self.hooked, self.pauses = until, 100.0, True, []
        self.plain_ns, self.hooked_ns, inside = times()
        monkeypatch.setattr(calibrate, "_measured", {})
        monkeypatch.setattr(calibrate, "_times_ns", self.loops)
        monkeypatch.setattr(calibrate, "_inside_ns", lambda _recorder: inside)
        monkeypatch.setattr(calibrate.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(calibrate.time, "sleep", self.sleep)
        monkeypatch.setattr(clock_reads, "_timed", self.reads)
        monkeypatch.setattr(clock_reads, "_least", [float("inf")])
        self.backend = "monitoring" if sys.version_info >= (3, 12) else "setprofile"
        self.true = calibrate._calibration(
            self.plain_ns, self.hooked_ns, inside, constructors=self.backend == "monitoring"
        )

    def loops(self) -> dict[str, float]:
        self.hooked = not self.hooked
        slower = 1.6 if self.now < self.until else 1.0
        if not self.hooked:
            return self.plain_ns
        return {kind: slower * ns for kind, ns in self.hooked_ns.items()}

    def reads(self) -> int:
        return round(20 * 40 * (1.45 if self.now < self.until else 1.0))

    def sleep(self, seconds: float) -> None:
        if seconds > calibrate._REST_S:
            self.pauses.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("quiet", [0.05, 0.25, 0.65])
def test_a_profile_that_reports_once_waits_for_an_undisturbed_moment(monkeypatch, quiet):
    """The clock was quicker to read when the profiler was created."""
    machine = Neighbour(monkeypatch, until=0.0)
    clock_reads.sample()
    machine.until = machine.now + quiet
    assert calibrate.calibration(machine.backend) == machine.true
    assert sum(machine.pauses) < 1.0


def test_a_neighbour_that_stays_delays_no_report_for_long(monkeypatch):
    machine = Neighbour(monkeypatch, until=0.0)
    clock_reads.sample()
    machine.until = 1e9
    assert calibrate.calibration(machine.backend) is not None
    assert machine.pauses == list(calibrate._PAUSES_S)


def test_a_processor_that_is_as_quick_as_before_is_measured_once(monkeypatch):
    machine = Neighbour(monkeypatch, until=0.0)
    clock_reads.sample()
    assert calibrate.calibration(machine.backend) == machine.true
    assert not machine.pauses


def test_a_disturbed_later_calibration_waits_for_nothing(monkeypatch):
    machine = Neighbour(monkeypatch, until=0.0)
    assert calibrate.calibration(machine.backend) == machine.true
    machine.now += 5.0
    machine.until = 1e9
    assert calibrate.calibration(machine.backend) == machine.true
    assert not machine.pauses


def test_a_new_profile_samples_the_clock(monkeypatch):
    monkeypatch.setattr(clock_reads, "_least", [float("inf")])
    Profile()
    assert 0 < clock_reads._least[0] < float("inf")
