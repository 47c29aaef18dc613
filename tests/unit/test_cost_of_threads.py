"""The hook's cost where the training thread waits for another thread of Python."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastprof.report.correct import correct, without_hook
from fastprof.report.in_run import hook_cost, unprofiled_step
from fastprof.report.rows import OWN_COST
from fastprof.results.report import build_report
from fastprof.snapshot import Calibration, Key, Snapshot, Steps
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS, PhaseTime
from fastprof.snapshot.steps import PlainCpu, PlainSteps, StepSeries
from unit.snapshots import MS, Builder, Node, cost, py

N = 400
INSIDE, OUTSIDE = 60.0, 40.0
#: Per step: calls and ms without the hook of the training thread, and of the other one.
CALLS, OWN = 1000, 1.0
CALLS_BESIDE, BESIDE = 5000, 2.0
#: What the hook adds, in ms.
COST, COST_BESIDE = 0.1, 0.5
ACQUIRE = Key(
    "c", "~", 0, "<method 'acquire' of '_thread.lock' objects>", "_thread.lock.acquire", ""
)


def ns(ms: float) -> int:
    return round(ms * MS)


def work(name: str, ms: float, calls: int, *more: Node) -> Node:
    called = Node(py(f"{name}_called", 7), N * calls, round(N * calls * INSIDE))
    return Node(py(name, 3), 1, round(N * (ns(ms) + calls * OUTSIDE)), [called, *more])


def run(
    *, waits: bool = True, measured: bool = True, slowdown: float = 1.0, without_cpu: float = 0.0
) -> Snapshot:
    """Return a run whose thread hands work to another one, and waits for it, or does not wait.

    The two take turns in slices of some milliseconds, so the times of neighbouring steps differ.
    ``without_cpu`` is the other one's wait for a CPU, in ms per step; this one's is in proportion.
    """
    wait = BESIDE + COST_BESIDE + without_cpu if waits else 0.0
    build = Builder()
    build.thread(work("train", OWN, CALLS, Node(ACQUIRE, N, N * ns(wait))))
    build.thread(work("drain", BESIDE, CALLS_BESIDE), ident=2, name="writer")
    own_wait = ns(without_cpu * (OWN + COST) / (BESIDE + COST_BESIDE))
    step = ns(OWN + COST + wait) + own_wait
    first = range(30, 30 + 14 * 10, 14)
    slices = [ns(ms) for ms in (0, 2, -2, 3, -1, 0, 1, -3, 2, -2)]
    steps = Steps(
        count=N + 3, skipped=3, sum_ns=N * step, recent_ns=(step,) * N,
        series=StepSeries(
            first=3, start_ns=(0,) * N, wall_ns=(step,) * N, cpu_wait_ns=(own_wait,) * N
        ),
        split=(
            ("compute", N * ns(OWN + COST)), ("lock", N * ns(wait)), ("cpu_wait", N * own_wait),
        ),
    )  # fmt: skip
    if measured:
        steps = replace(
            steps,
            unprofiled=tuple(
                PlainSteps(at, max(0, step - ns(0.2) + noise), step)
                for at, noise in zip(first, slices, strict=True)
            ),
            unprofiled_cpu=tuple(
                PlainCpu(at, ns(OWN), ns(OWN + COST), ns(BESIDE), ns(BESIDE + COST_BESIDE))
                for at in first
            ),
        )
    build.threads = [
        replace(t, nodes=replace(t.nodes, phase=(STEPS,) * len(t.nodes))) for t in build.threads
    ]
    calibration: Calibration = replace(cost(python=(INSIDE, OUTSIDE)), slowdown=slowdown)
    return build.snapshot(
        steps=steps, calibration=calibration, phases=(PhaseTime(RUN_PHASES[STEPS], N * step, 1),),
        duration_ns=N * step, sections=(replace(build.stats("train", [step] * N), phase=STEPS),),
    )  # fmt: skip


def lock_ms(snapshot: Snapshot, column: tuple[int, ...] | list[float]) -> float:
    """Return the time at locks per step."""
    lock = snapshot.keys.index(ACQUIRE)
    rows = zip(snapshot.threads[0].nodes.key, column, strict=True)
    return sum(ns for key, ns in rows if key == lock) / N / MS


@pytest.mark.parametrize("without_cpu", [0.0, 9.0])
@pytest.mark.parametrize("slowdown", [1.0, 1.5])
def test_the_hook_in_a_thread_that_the_step_waits_for_is_a_cost_of_the_step_once(
    slowdown: float, without_cpu: float
) -> None:
    snapshot = run(slowdown=slowdown, without_cpu=without_cpu)
    truth = (COST + COST_BESIDE) / (OWN + COST + BESIDE + COST_BESIDE)
    found = hook_cost(snapshot)
    assert found is not None
    assert found.value == found.low == found.high == pytest.approx(ns(COST + COST_BESIDE))
    report = build_report(snapshot)
    assert report.overhead.share == pytest.approx(truth, rel=0.01)
    assert report.overhead.most_share == pytest.approx(truth, rel=0.01)
    step = unprofiled_step(snapshot)
    assert step is not None
    wall_ms = snapshot.steps.recent_ns[0] / MS
    assert step.ms == pytest.approx((1 - truth) * wall_ms, rel=0.01)


def test_a_wait_for_another_thread_does_not_contain_the_hook_s_cost_there() -> None:
    snapshot = run()
    assert lock_ms(snapshot, correct(snapshot).self_ns[0]) == pytest.approx(BESIDE)
    report = build_report(snapshot)
    split = {row.name: row.mean_ms for row in report.steps.split}
    assert split["lock"] == pytest.approx(BESIDE)
    assert split["compute"] == pytest.approx(OWN)
    # One figure on the screen.
    own = next(row for row in report.steps.rows if row.name == OWN_COST)
    assert own.share == pytest.approx(report.overhead.share, rel=0.01)


def test_what_a_finding_promises_of_a_wait_lacks_the_hook_s_cost_though_nothing_measured_it() -> (
    None
):
    snapshot = run(measured=False)
    assert correct(snapshot).factors is None
    assert lock_ms(snapshot, correct(snapshot).self_ns[0]) == pytest.approx(BESIDE + COST_BESIDE)
    assert lock_ms(snapshot, list(without_hook(snapshot)[0])) == pytest.approx(BESIDE)


def test_a_thread_that_no_step_waits_for_costs_the_step_nothing() -> None:
    """It computes while the training thread runs in C."""
    snapshot = run(waits=False)
    found = correct(snapshot)
    assert found.factors is not None
    assert found.factors.others == pytest.approx(0.0)
    assert build_report(snapshot).overhead.share == pytest.approx(COST / (OWN + COST))
    # Its own functions are corrected all the same.
    left = sum(found.self_ns[1]) / N / MS
    assert left == pytest.approx(BESIDE, rel=0.01)
