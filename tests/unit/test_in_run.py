"""Solving for the hook's cost from steps with and without the hook."""

from __future__ import annotations

import random
import re
from dataclasses import fields, replace

import pytest
from fastprof.report.correct import correct
from fastprof.report.figures import duration, percent, percent_at_most
from fastprof.report.in_run import (
    LEAST_BLOCKS,
    HookFactors,
    hook_cost,
    median_interval,
    own_costs,
    scaled,
    unprofiled_step,
)
from fastprof.report.overhead import overhead_of
from fastprof.results.report import build_report
from fastprof.results.saved import load
from fastprof.snapshot import Calibration, EventCost, Snapshot, Steps
from fastprof.snapshot.operators import OperatorSnapshot
from fastprof.snapshot.run_phases import RUN_PHASES, PhaseTime
from fastprof.snapshot.steps import PlainSteps, StepSeries
from unit.snapshots import MS, Builder, Node, c, cost, py, section

#: Per step: calls of a Python and of a C function, and ns without the hook: own time of
#: the section's loop, of the function, of the C function.
FORWARD = (200, 100, 300_000, 100, 50)
BACKWARD = (20, 1000, 50_000, 200, 80)
STEPS = 500
INSIDE, OUTSIDE = (30.0, 40.0), (70.0, 60.0)  # Python, C


def simulated(
    factor: float, slower: float = 0.0, *, blocks: int = 40, noise: float = 0.0, seed: int = 1
) -> Snapshot:
    """Return a run whose calls cost ``factor`` times the calibrated cost, and whose Python
    functions take 1 / (1 - ``slower``) times as long."""
    stretch = 1.0 / (1.0 - slower)
    build = Builder()
    sections, sums = [], []
    for name, (calls, c_calls, loop_ns, own_ns, c_ns) in (
        ("forward", FORWARD),
        ("backward", BACKWARD),
    ):
        plain = loop_ns + calls * own_ns + c_calls * c_ns
        own = STEPS * calls * (own_ns * stretch + factor * INSIDE[0])
        in_c = STEPS * c_calls * (c_ns + factor * INSIDE[1])
        loop = loop_ns * stretch + factor * (calls * OUTSIDE[0] + c_calls * OUTSIDE[1])
        functions = [
            Node(py(f"work_{name}", 2), calls * STEPS, round(own)),
            Node(c("len"), c_calls * STEPS, round(in_c)),
        ]
        loops = Node(py(f"loop_{name}", 3), STEPS, round(STEPS * loop), functions)
        # The section pays for the call of the loop.
        paid = round(STEPS * factor * OUTSIDE[0])
        sections.append(Node(section(name), STEPS, paid, [loops]))
        loops.self_ns += round(STEPS * factor * INSIDE[0])
        hooked = (own + in_c + loops.self_ns + paid) / STEPS
        sums.append((name, plain, hooked))
    build.thread(Node(py("main"), 1, 0, sections))
    drawn = random.Random(seed)
    keys = {name: build.key(section(name)) for name, *_ in sums}
    rows = []
    for i in range(blocks):
        jitter = [drawn.gauss(0.0, noise) for _ in range(4)]
        parts = [
            (keys[name], round(plain + jitter[2 * k]), round(hooked + jitter[2 * k + 1]))
            for k, (name, plain, hooked) in enumerate(sums)
        ]
        walls = [sum(part[side] for part in parts) for side in (1, 2)]
        rows.append(PlainSteps(10 * i, *walls, tuple(parts)))
    wall = round(sum(hooked for *_, hooked in sums))
    steps = Steps(
        count=STEPS + 3 + 3 * blocks,
        skipped=3,
        apart=3 * blocks,
        sum_ns=wall * STEPS,
        recent_ns=(wall,) * STEPS,
        series=StepSeries(first=3, start_ns=(0,) * STEPS, wall_ns=(wall,) * STEPS),
        unprofiled=tuple(rows),
    )
    calibration = cost(python=(INSIDE[0], OUTSIDE[0]), c=(INSIDE[1], OUTSIDE[1]))
    calibration = replace(calibration, slowdown=1.5 if slower else 1.0)
    return build.snapshot(steps=steps, calibration=calibration)


UNPROFILED = sum(
    loop_ns + calls * own_ns + c_calls * c_ns
    for calls, c_calls, loop_ns, own_ns, c_ns in (FORWARD, BACKWARD)
)


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.7])
def test_dearer_and_cheaper_calls_are_found(factor: float) -> None:
    found = correct(simulated(factor)).factors
    assert found is not None
    assert found.calls == pytest.approx(factor, rel=1e-3)
    assert found.bytecode == 0.0


@pytest.mark.parametrize(("factor", "slower"), [(1.0, 0.4), (1.3, 0.3), (0.8, 0.45)])
def test_calls_are_distinguished_from_slower_bytecode(factor: float, slower: float) -> None:
    found = correct(simulated(factor, slower)).factors
    assert found is not None
    assert found.calls == pytest.approx(factor, rel=0.1)
    assert found.bytecode == pytest.approx(slower, abs=0.03)


@pytest.mark.parametrize(("factor", "slower"), [(0.6, 0.0), (1.7, 0.0), (1.0, 0.4), (1.3, 0.3)])
def test_what_is_left_is_an_unprofiled_step(factor: float, slower: float) -> None:
    snapshot = simulated(factor, slower)
    left = sum(correct(snapshot).self_ns[0]) / STEPS
    assert left == pytest.approx(UNPROFILED, rel=0.01)
    step = unprofiled_step(snapshot)
    assert step is not None
    assert step.ms * 1e6 == pytest.approx(UNPROFILED, rel=1e-3)
    assert step.hook_ms + step.ms == pytest.approx(snapshot.steps.recent_ns[0] / 1e6, rel=1e-3)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    truth = simulated(1.2).steps.recent_ns[0] - UNPROFILED
    held = 0
    for seed in range(200):
        found = hook_cost(simulated(1.2, blocks=25, noise=20_000, seed=seed))
        assert found is not None
        held += found.low <= truth <= found.high
    assert held >= 190 - 7  # 95 %, less two standard deviations


def test_the_median_s_interval_is_that_of_the_sign_test() -> None:
    assert median_interval(range(LEAST_BLOCKS - 1)) is None
    # Of 2^6 outcomes 2 have all values on one side of the median: 3 %.
    found = median_interval([6, 1, 5, 2, 4, 3])
    assert found is not None
    assert (found.value, found.low, found.high) == (3.5, 1, 6)
    # Tables of the sign test: of 20 values the 6th from either end.
    found = median_interval(range(1, 21))
    assert found is not None
    assert (found.low, found.high) == (6, 15)


def test_noise_says_nothing() -> None:
    snapshot = simulated(1.0, blocks=12, noise=150_000)
    assert correct(snapshot).factors is None
    report = build_report(snapshot)
    assert report.steps.unprofiled is None
    assert "Without fastprof" not in report.overhead.text
    found = hook_cost(snapshot)
    assert found is not None
    low, high = duration(max(0.0, found.low) / 1e6), duration(found.high / 1e6)
    assert f"they allow {low} to {high} per step for the hook" in report.overhead.text


def test_too_few_blocks_leave_the_calibration_as_it_is() -> None:
    snapshot = simulated(1.7, blocks=LEAST_BLOCKS - 1)
    before = replace(snapshot, steps=replace(snapshot.steps, unprofiled=()))
    assert correct(snapshot).self_ns == correct(before).self_ns
    assert unprofiled_step(snapshot) is None


def test_a_note_names_a_large_cost_that_the_run_did_not_confirm() -> None:
    doubt = "the steps without the function hook are too few or too uneven to confirm it"
    snapshot = replace(simulated(1.7, blocks=LEAST_BLOCKS - 1), duration_ns=10**8)
    assert doubt in build_report(snapshot).overhead.text
    assert doubt not in build_report(replace(snapshot, duration_ns=10**12)).overhead.text
    without = replace(snapshot, steps=replace(snapshot.steps, unprofiled=()))
    said = build_report(without).overhead.text
    assert "no step could be used that ran without the function hook to confirm it" in said
    assert doubt not in said
    assert doubt not in build_report(replace(simulated(1.7), duration_ns=10**8)).overhead.text


def test_a_phase_of_the_run_has_the_costs_of_the_run() -> None:
    snapshot = replace(
        simulated(1.7), phases=(PhaseTime("steps", 1, 1), PhaseTime("validation", 1, 1))
    )
    whole, view = build_report(snapshot), build_report(snapshot, phase="validation")
    assert correct(view.view).factors == correct(whole.snapshot).factors != None  # noqa: E711


def test_a_function_that_no_step_calls_keeps_its_time() -> None:
    """The run did not measure how much slower its bytecode is: set-up, or the start of a fold."""
    snapshot = simulated(1.0, 0.4)
    tree = snapshot.threads[0]
    nodes = tree.nodes
    key = len(snapshot.keys)
    outside = RUN_PHASES.index("outside")
    phase = (*((0,) * len(nodes)), outside)
    grown = replace(
        nodes,
        parent=(*nodes.parent, 0), key=(*nodes.key, key), calls=(*nodes.calls, 500),
        resumes=(*nodes.resumes, 0), self_ns=(*nodes.self_ns, 10**9), phase=phase,
    )  # fmt: skip
    made = replace(
        snapshot,
        keys=(*snapshot.keys, py("featurise", 10)),
        threads=(replace(tree, nodes=grown),),
        phases=(PhaseTime("steps", 1, 1), PhaseTime("outside", 1, 1)),
    )
    found = correct(made)
    assert found.factors is not None
    assert found.factors.bytecode > 0.3
    assert found.self_ns[0][-1] == pytest.approx(10**9, rel=0.001)
    work = next(i for i, k in enumerate(nodes.key) if snapshot.keys[k].name == "work_forward")
    assert found.self_ns[0][work] < 0.7 * nodes.self_ns[work]


def test_the_report_says_it(tmp_path) -> None:
    snapshot = simulated(1.7, 0.4)
    report = build_report(snapshot)
    assert "with those around them in 40 places of the run" in report.overhead.text
    assert "Without fastprof the median step takes" in report.overhead.text
    report.save(tmp_path / "run.fprof")
    again = load(tmp_path / "run.fprof")
    assert again.steps.unprofiled == report.steps.unprofiled
    assert again.snapshot.steps == snapshot.steps
    assert again.steps.measured == STEPS


def test_every_kind_of_cost_is_scaled() -> None:
    kinds = [f.name for f in fields(Calibration) if f.name != "slowdown"]
    before = Calibration(**{kind: EventCost(i, 2 * i) for i, kind in enumerate(kinds)})
    after = scaled(before, HookFactors(2.0, 0.5))
    assert after.slowdown == 2.0
    for i, kind in enumerate(kinds):
        assert getattr(after, kind) == EventCost(2 * i, 4 * i)


def test_a_hook_that_seems_to_save_time_costs_nothing_that_can_be_measured() -> None:
    snapshot = simulated(1.0)
    rows = tuple(
        replace(row, plain_ns=row.hooked_ns + 100 * (i % 5) - 100)
        for i, row in enumerate(snapshot.steps.unprofiled)
    )
    report = build_report(replace(snapshot, steps=replace(snapshot.steps, unprofiled=rows)))
    step = report.steps.unprofiled
    assert step is not None
    assert step.hook_ms == 0
    assert step.hook_ms + step.own_ms >= 0
    assert "the hook adds at most" in report.overhead.text


@pytest.mark.parametrize("slower", [0.0, 0.4])
def test_calls_cost_no_more_than_the_run_allows(slower: float) -> None:
    """For example in a loop that calls a clock until a given time."""
    snapshot = simulated(1.0, slower)
    rows = tuple(
        replace(row, plain_ns=row.hooked_ns + 100 * (i % 5) - 100, sections=())
        for i, row in enumerate(snapshot.steps.unprofiled)
    )
    waiting = replace(snapshot, steps=replace(snapshot.steps, unprofiled=rows))
    found, calibrated = correct(waiting), correct(simulated(1.0, slower, blocks=0))
    most = hook_cost(waiting)
    assert found.factors is not None
    assert found.factors.bound
    assert most is not None
    cost_ns = (found.overhead_ns or 0) + found.bytecode_ns
    assert cost_ns <= 1.01 * max(most.high, most.error) * STEPS + 1000
    assert (calibrated.overhead_ns or 0) > 20 * cost_ns
    assert (
        "is the most that steps without the function hook allow"
        in build_report(waiting).overhead.text
    )


def scattered(snapshot: Snapshot, *parts: float) -> Snapshot:
    """Return the run with one place per part, where the hook seems to cost that part of the truth.

    No section ran in all places, so only whole steps count.
    """
    truth = snapshot.steps.recent_ns[0] - UNPROFILED
    rows = tuple(
        replace(row, plain_ns=round(row.hooked_ns - part * truth), sections=())
        for row, part in zip(snapshot.steps.unprofiled, parts, strict=False)
    )
    return replace(
        snapshot,
        phases=(PhaseTime("steps", 10**9, 1),),
        steps=replace(snapshot.steps, unprofiled=rows),
    )


def stated(snapshot: Snapshot) -> tuple[float, float]:
    """Return the cost of a step with the hook in ns that the report states, and its bound."""
    steps = snapshot.steps
    of_hooked = replace(steps, count=steps.count - steps.apart, apart=0)
    overhead = build_report(replace(snapshot, steps=of_hooked)).overhead
    assert overhead.of_steps
    assert overhead.share is not None
    assert overhead.most_share is not None
    step_ns = steps.sum_ns / steps.measured
    return overhead.share * step_ns, overhead.most_share * step_ns


UNEVEN = (0.5, 0.6, 0.8, 0.95, 1.05, 1.3, 1.5, 1.6)


def test_calls_that_cost_more_than_the_calibration_are_stated_though_steps_vary() -> None:
    """Code that is rarely in the caches, for example."""
    snapshot = scattered(simulated(3.0), *UNEVEN)
    truth = snapshot.steps.recent_ns[0] - UNPROFILED
    cost_ns, most = stated(snapshot)
    assert cost_ns == pytest.approx(0.5 * truth, rel=0.02)  # what is subtracted
    assert most == pytest.approx(1.6 * truth, rel=0.02)
    text = build_report(snapshot).overhead.text
    assert "is the least that steps without the function hook allow" in text


@pytest.mark.parametrize(("factor", "slower"), [(1.6, 0.0), (3.0, 0.4)])
def test_what_the_run_allows_beyond_the_calibration_is_the_most_that_is_stated(
    factor: float, slower: float
) -> None:
    snapshot = scattered(simulated(factor, slower), *UNEVEN)
    truth = snapshot.steps.recent_ns[0] - UNPROFILED
    cost_ns, most = stated(snapshot)
    assert 0.5 * truth <= cost_ns <= truth
    assert most == pytest.approx(1.6 * truth, rel=0.02)
    text = build_report(snapshot).overhead.text
    assert "suggest a larger cost of functions than the test" in text
    assert "up to" not in text


def test_the_most_that_the_run_allows_is_stated_in_full() -> None:
    """Calls and bytecode together cost no less than the run's limit."""
    snapshot = scattered(simulated(1.0, 1 / 3), *(part / 2 for part in UNEVEN))
    truth = snapshot.steps.recent_ns[0] - UNPROFILED
    assert stated(snapshot) == pytest.approx((0.5 * truth, 0.8 * truth), rel=0.02)


def test_slower_bytecode_is_not_all_that_an_uncertain_run_allows() -> None:
    """The calibration's bytecode is a bound, so what the run measured counts, not its limit."""
    snapshot = scattered(simulated(1.0, 1 / 4), 0.3, 0.6, 0.9, 1.1, 1.2, 1.25)
    snapshot = replace(snapshot, calibration=replace(snapshot.calibration, slowdown=3.0))
    hook, found = hook_cost(snapshot), correct(snapshot)
    assert hook is not None
    assert found.factors is not None
    assert not found.factors.bound
    assert found.factors.calls == 1.0
    cost_ns = (found.overhead_ns or 0) + found.bytecode_ns
    assert cost_ns / STEPS == pytest.approx(hook.value, rel=0.02)
    assert stated(snapshot) == pytest.approx((hook.value, hook.high), rel=0.02)


@pytest.mark.parametrize(("factor", "slower"), [(3.0, 0.0), (1.6, 0.0), (1.3, 0.3), (1.0, 0.0)])
@pytest.mark.parametrize("measured", ["exactly", "unevenly", "not at all"])
def test_times_as_recorded_change_nothing_about_the_cost(
    factor: float, slower: float, measured: str
) -> None:
    snapshot = simulated(factor, slower, blocks=0 if measured == "not at all" else 40)
    snapshot = scattered(snapshot, *(UNEVEN if measured == "unevenly" else (1.0,) * 40))
    snapshot = replace(snapshot, duration_ns=4 * 10**8)
    subtracted = build_report(snapshot).overhead
    included = build_report(snapshot, correct_times=False).overhead
    assert (subtracted.corrected, included.corrected) == (True, False)
    changed = {"corrected": False, "clamped_ms": 0.0, "text": ""}
    assert replace(subtracted, **changed) == replace(included, **changed)
    assert "subtracted" not in included.text
    how = " was subtracted from all function and section times (steps stay as measured)"
    as_recorded = " is included in all times: correction was switched off"
    assert included.text.replace(as_recorded, how) == subtracted.text.replace(
        ", which was subtracted", ""
    )


def test_a_cost_that_is_not_known_exactly_has_a_bound() -> None:
    parts = (0.8, 0.85, 0.9, 0.97, 1.03, 1.1, 1.15, 1.2)
    snapshot = scattered(simulated(1.3), *parts)
    truth = snapshot.steps.recent_ns[0] - UNPROFILED
    cost_ns, most = stated(snapshot)
    assert cost_ns == pytest.approx(truth, rel=0.02)
    assert most == pytest.approx(1.2 * truth, rel=0.02)
    text = build_report(snapshot).overhead.text
    assert re.search(r"cost [\d.]+ % \(at most [\d.]+ %\) of the", text)
    cost_ns, most = stated(scattered(simulated(1.3), *(0.05 * part + 0.95 for part in parts)))
    assert cost_ns == pytest.approx(truth, rel=0.02)
    assert most == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize("times", [0.6, 1.6])
def test_a_machine_whose_speed_changes_after_the_places_makes_the_cost_a_range(
    times: float,
) -> None:
    """The first places are near to each other, so those of a short run tell of its beginning."""
    fast = simulated(1.0)
    wall = round(times * fast.steps.recent_ns[0])
    steps = replace(
        fast.steps,
        sum_ns=wall * STEPS,
        recent_ns=(wall,) * STEPS,
        series=replace(fast.steps.series, wall_ns=(wall,) * STEPS),
    )
    found = hook_cost(replace(fast, steps=steps))
    assert found is not None
    truth = fast.steps.recent_ns[0] - UNPROFILED
    assert (found.low, found.high) == pytest.approx(sorted((truth, times * truth)), rel=0.01)


def test_the_part_of_a_step_that_the_hook_took_is_of_its_time_on_a_cpu() -> None:
    quiet = simulated(1.0)
    series, step_ns = quiet.steps.series, quiet.steps.recent_ns[0]
    busy = replace(
        quiet.steps,
        sum_ns=3 * quiet.steps.sum_ns,
        recent_ns=(3 * step_ns,) * STEPS,
        series=replace(series, wall_ns=(3 * step_ns,) * STEPS, cpu_wait_ns=(2 * step_ns,) * STEPS),
    )
    assert hook_cost(replace(quiet, steps=busy)) == hook_cost(quiet)
    # Without the hook the program would wait for as large a part of its time.
    alone, beside = unprofiled_step(quiet), unprofiled_step(replace(quiet, steps=busy))
    assert alone is not None
    assert beside is not None
    assert beside.ms == pytest.approx(3 * alone.ms)
    assert beside.hook_ms == pytest.approx(3 * alone.hook_ms)
    assert beside.own_ms == pytest.approx(3 * alone.own_ms)


@pytest.mark.parametrize("in_data", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("measured", [True, False])
def test_waiting_for_a_cpu_does_not_make_the_hook_s_share_smaller(
    measured: bool, own: bool, in_data: bool
) -> None:
    """Without the hook the program would wait for as large a part of its time."""
    quiet = replace(
        simulated(1.0, blocks=40 if measured else 0), phases=(PhaseTime("steps", 10**9, 1),)
    )
    step_ns = quiet.steps.recent_ns[0]
    wait_ns = STEPS * step_ns  # a few steps wait for long
    split = (("compute", quiet.steps.sum_ns), ("cpu_wait", wait_ns))
    busy = replace(quiet.steps, sum_ns=quiet.steps.sum_ns + wait_ns, split=split)
    quiet_ns, _ = stated(quiet)
    truth = 1 - UNPROFILED / step_ns
    assert quiet_ns / step_ns == pytest.approx(truth, rel=0.02)
    if in_data:  # the split counts all of a section that waits for batches as loading data
        waits = replace(busy.series, wall_ns=(2 * step_ns,) * STEPS, cpu_wait_ns=(step_ns,) * STEPS)
        busy = replace(busy, split=(("data", busy.sum_ns),), series=waits)
    meta = dict(quiet.meta)
    if own:  # the steps' code
        meta["own_ns"] = 0.1 * step_ns * (busy.count - busy.apart)
        truth += 0.1
    cost_ns, most = stated(replace(quiet, steps=busy, meta=meta))
    assert cost_ns == pytest.approx(2 * step_ns * truth, rel=0.02)
    assert most == pytest.approx(2 * step_ns * truth, rel=0.02)


def test_slower_bytecode_that_nothing_confirms_is_a_bound() -> None:
    """A function may spend its time in operators on arrays, which the hook does not slow."""
    snapshot = replace(simulated(1.0, 0.4, blocks=0), duration_ns=10**9)
    overhead = build_report(snapshot).overhead
    calls_ms = overhead.functions_ms or 0.0
    assert overhead.bytecode_ms > calls_ms > 0
    assert overhead.share == pytest.approx((calls_ms + overhead.bytecode_ms / 2) / 1000)
    assert overhead.most_share == pytest.approx((calls_ms + overhead.bytecode_ms) / 1000)
    one_figure = percent_at_most(overhead.share, overhead.most_share)
    assert "% (at most " in one_figure
    assert f"({one_figure} of wall time)" in overhead.text
    assert "up to" in overhead.text
    assert f"cost {one_figure}" in " ".join(build_report(snapshot).to_text().split())

    found = build_report(replace(simulated(1.0, 0.4), duration_ns=10**9)).overhead
    assert found.most_share == found.share
    assert "up to" not in found.text


def test_the_bound_of_the_steps_holds_their_cost() -> None:
    slower = 1 / 3  # as in the calibration
    phases = (PhaseTime("steps", 10**9, 1),)
    made = replace(simulated(1.0, slower, blocks=0), phases=phases)
    cost_ns, most = stated(made)
    truth = made.steps.sum_ns / STEPS - UNPROFILED
    assert 0 < cost_ns < truth <= 1.05 * most


def test_a_hook_that_costs_next_to_nothing_is_bounded_by_the_run() -> None:
    """Far below any real cost of calls: the program did less work instead."""
    found = correct(simulated(0.01)).factors
    assert found is not None
    assert found.bound
    assert found.calls < 0.05


@pytest.mark.parametrize("ns", [float("nan"), float("inf"), -1, 10**300, "7", None])
def test_f43_own_costs_that_cannot_be_count_as_not_recorded(ns: object) -> None:
    made = simulated(1.0)
    meta = {**made.meta, "own_ns": ns, "unprofiled_ns": ns, "untimed_ns": ns}
    read = replace(made, meta=meta)
    assert own_costs(read) == replace(own_costs(made), timed=None, unhooking=0.0, untimed=0.0)
    assert build_report(read).overhead.sections_ms is None
    step, whole = unprofiled_step(read), unprofiled_step(made)
    assert step is not None
    assert whole is not None
    assert step.ms == pytest.approx(whole.ms)


@pytest.mark.parametrize("phase", ["steps", "validation", "all"])
def test_the_cost_of_sections_in_other_phases_is_not_a_step_s(phase: str) -> None:
    """For example a validation of many small batches after every few steps."""
    build = Builder()
    sections = (
        build.stats("forward", [MS] * STEPS),
        build.stats("forward", [MS] * 9 * STEPS, phase=RUN_PHASES.index("validation")),
    )
    made = simulated(1.0)
    made = replace(
        made,
        sections=tuple(replace(s, key=made.keys.index(section("forward"))) for s in sections),
        meta={
            **made.meta,
            "own_ns": 10 * STEPS * 50_000,
            "untimed_ns": 10 * STEPS * 20_000,
            "own_elsewhere_ns": 6 * STEPS * 70_000,
            "own_evaluating_ns": 5 * STEPS * 70_000,
        },
        phases=(PhaseTime("steps", made.steps.sum_ns, 1), PhaseTime("validation", 1, 1)),
    )
    plain, step = unprofiled_step(simulated(1.0)), build_report(made, phase=phase).steps.unprofiled
    assert plain is not None
    assert step is not None
    own_ms = 0.07 * 4 * STEPS / made.steps.count
    assert step.own_ms == pytest.approx(own_ms)
    assert step.ms == pytest.approx(plain.ms - own_ms)
    # The loop's cost has that of the validation, and the loop's time the validation.
    without = replace(made, meta={**made.meta, "own_evaluating_ns": 0})
    costs = [overhead_of(one, correct_times=True).share for one in (made, without)]
    assert costs[0] > costs[1]
    longer = replace(made, phases=(made.phases[0], PhaseTime("validation", 10**12, 1)))
    assert overhead_of(longer, correct_times=True).share < 0.01 < costs[1]


def test_without_sections_each_step_costs_the_same() -> None:
    made = simulated(1.0)
    assert made.steps.measured == STEPS < made.steps.count
    own = own_costs(replace(made, meta={**made.meta, "own_ns": 1000 * made.steps.count}))
    assert own.in_step == pytest.approx(1000)


def test_what_hooks_on_torch_cannot_time_is_added_to_what_was_timed() -> None:
    made = simulated(1.0)
    count, ms = made.steps.count, 10**6
    own = {"own_ns": 3 * count * 1000, "unprofiled_ns": count * 1000}
    timed = build_report(replace(made, meta={**made.meta, **own}))
    report = build_report(replace(made, meta={**made.meta, **own, "untimed_ns": 2 * count * 1000}))
    cost = report.overhead
    assert timed.overhead.sections_ms == pytest.approx(3 * count * 1000 / ms)
    assert cost.sections_ms == pytest.approx(5 * count * 1000 / ms)
    assert cost.share is not None
    assert timed.overhead.share is not None
    assert cost.share == cost.most_share
    assert cost.share > timed.overhead.share
    assert f"sections, steps and loaders {duration(5 * count * 1000 / ms)}" in cost.text
    # The estimate of a step without fastprof excludes this cost, too.
    before, after = unprofiled_step(timed.snapshot), unprofiled_step(report.snapshot)
    assert before is not None
    assert after is not None
    assert after.ms == pytest.approx(before.ms - 0.002)


def test_a_cost_above_the_budget_is_that_of_the_full_look_in_a_short_run() -> None:
    made = replace(simulated(1.0), phases=(PhaseTime("steps", 1, 1),))
    said = "of the loop, all of it in the full look that a run begins with"
    for budget, shown in ((0.01, True), (0.9, False)):
        report = build_report(replace(made, meta={**made.meta, "full_look": budget}))
        assert (said in " ".join(report.to_text().split())) == shown


def test_the_cost_is_that_of_all_steps_not_of_those_with_functions() -> None:
    """It was 67 to 78 % where 13 % were measured: own code of all steps, by the recorded ones."""
    made = simulated(1.0)
    n, plain, settling, own = STEPS, 9000, 40, 20_000
    step_ns = made.steps.recent_ns[0]
    others = made.steps.apart
    steps = replace(made.steps, count=made.steps.count + plain, apart=others + plain)
    made = replace(
        made,
        steps=steps,
        plain_steps=replace(
            steps, apart=others + n, unprofiled=(), rows=(), sum_ns=plain * UNPROFILED,
            series=StepSeries(first=3, start_ns=(0,) * 9, wall_ns=(UNPROFILED,) * 9),
        ),
        phases=(PhaseTime("steps", 1, 1), PhaseTime("unprofiled", 1, 10)),
        meta={"overhead_budget": 0.01, "own_ns": own * steps.count, "settling_steps": settling},
        operators=OperatorSnapshot(cost_ns=5 * MS),
    )  # fmt: skip
    cost_ns = (n + settling) * (step_ns - UNPROFILED) + own * (n + others + plain)
    cost_ns += 20 * 200_000 + 5 * MS  # changes of the hook, operator windows
    time_ns = (n + settling) * step_ns + (others - settling + plain) * UNPROFILED + 5 * MS
    report = build_report(made)
    assert report.plain is not None
    assert report.overhead.share == pytest.approx(cost_ns / time_ns, abs=0.0005)
    said = f"cost {percent(cost_ns / time_ns)} % of the loop; functions from 500 steps"
    assert said in " ".join(report.to_text().split())
    assert "Without fastprof" not in report.overhead.text
    # The full look is most of it: 400 of the steps with functions, and half of the own time.
    look = {
        "look_steps": made.steps.skipped + 500, "look_measured": 400, "look_changes": 18,
        "look_unhooking_ns": 0, "look_own": 0.5,
    }  # fmt: skip
    looked = build_report(replace(made, meta={**made.meta, **look}))
    hooked, left = n + settling - 400, n + others + plain - 500
    after_ns = hooked * (step_ns - UNPROFILED) + 0.5 * own * (n + others + plain) + 2 * 200_000
    after = after_ns / (hooked * step_ns + (left - hooked) * UNPROFILED)
    assert looked.overhead.after_look == pytest.approx(after, abs=0.0005)
    assert looked.overhead.share == report.overhead.share > after
    said = (
        f"cost {percent(cost_ns / time_ns)} % of the loop and {percent(after)} % after the full "
        f"look at {made.steps.skipped + 500} steps; functions from 500 steps"
    )
    assert said in " ".join(looked.to_text().split())
    # Where the cost keeps to the budget, there is nothing to explain.
    cheap = build_report(replace(made, meta={**made.meta, **look, "overhead_budget": 0.9}))
    assert "after the full look" not in cheap.to_text()
    # Doubt about what cannot be timed is in the bound only.
    doubt = build_report(replace(made, meta={**made.meta, "untimed_ns": own * steps.count}))
    assert doubt.overhead.most_share - doubt.overhead.share == pytest.approx(
        0.2 * own * (n + others + plain) / time_ns, rel=0.01
    )
