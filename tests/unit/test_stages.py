"""When a run has stages."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest
from fastprof.errors import SnapshotError
from fastprof.findings.measurements import Facts
from fastprof.render.screen import closed_lines
from fastprof.report.outliers import find_outliers
from fastprof.results.report import build_report
from fastprof.session.stages import Stages
from fastprof.snapshot import Snapshot
from fastprof.snapshot.outliers import OutlierSnapshot, OutlierStep
from fastprof.snapshot.run_phases import PhaseTime
from fastprof.snapshot.stages import Stage
from fastprof.snapshot.steps import SplitPlace
from fastprof.tables.overview import overview
from unit.findings_runs import found, gpu_layer, run


class Recorder:
    """Steps of given lengths in ns."""

    def __init__(self) -> None:
        self.walls: list[int] = []

    @property
    def steps(self) -> int:
        return len(self.walls)

    def window(self, first: int, plain: bool = False, /) -> dict[str, Any]:
        walls = self.walls[first:]
        column = array("q", walls).tobytes()
        return {"wall_ns": column, "measured": len(self.walls), "sections": [("data", column)]}


class Optimizer:
    pass


def stages_of(*steps: tuple[object, int, int]) -> list[tuple[int, int, int, str]]:
    """Return (first, steps, sum_ns, loader) of each stage, for (optimizer, loader, ns) per step."""
    recorder = Recorder()
    stages = Stages(recorder, "loader{}".format)  # type: ignore[arg-type]
    for optimizer, tag, ns in steps:
        stages.step_ends(optimizer, type(optimizer).__name__, tag)
        recorder.walls.append(ns)
    return [(s.first, s.steps, s.sum_ns, s.loader) for s in stages.stages()]


def test_another_optimizer_on_another_loader_is_another_stage() -> None:
    first, second = Optimizer(), Optimizer()
    found = stages_of(*[(first, 0, 10)] * 5, *[(second, 1, 70)] * 3)
    assert found == [(0, 5, 50, "loader0"), (5, 3, 210, "loader1")]


def test_another_optimizer_on_the_same_loader_is_none() -> None:
    first, second = Optimizer(), Optimizer()
    assert stages_of((first, 0, 1), (second, 0, 1), (first, 0, 1), (second, 0, 1)) == []


def test_a_mixture_of_loaders_is_one_stage() -> None:
    optimizer = Optimizer()
    assert stages_of((optimizer, 0, 1), (optimizer, 1, 1), (optimizer, 0, 1)) == []


def test_optimizers_that_take_turns_on_their_loaders_are_one_stage() -> None:
    first, second = Optimizer(), Optimizer()
    assert stages_of(*[(first, 0, 1), (second, 1, 1)] * 4) == []


def test_few_folds_are_stages_and_many_are_a_loop() -> None:
    optimizers = [Optimizer() for _ in range(20)]
    steps = [(optimizer, i, 5) for i, optimizer in enumerate(optimizers)]
    assert [row[1] for row in stages_of(*steps[:8])] == [1] * 8
    assert stages_of(*steps) == []


def test_clients_that_come_back_with_new_optimizers_are_a_loop() -> None:
    """Federated training; a single return (pretraining, another task, the first again) is none."""
    turns = [(Optimizer(), client, 1) for _ in range(3) for client in range(3) for _ in range(2)]
    assert stages_of(*turns) == []
    after = Optimizer()
    assert [row[0] for row in stages_of(*turns, (after, 7, 9), (after, 7, 9))] == [0, 18]
    back = [(Optimizer(), loader, 1) for loader in (0, 1, 0)]
    assert [row[0] for row in stages_of(*back)] == [0, 1, 2]


def test_an_optimizer_of_a_loop_that_became_one_stage_belongs_to_that_stage() -> None:
    first, second, third = Optimizer(), Optimizer(), Optimizer()
    turns = [(first, 0, 1), (second, 1, 1), (first, 0, 1)]
    assert stages_of(*turns, (third, 2, 1), (second, 1, 1), (third, 2, 1)) == []


def test_a_loop_with_a_new_optimizer_in_each_pass_is_not_read_in_each_pass() -> None:
    """The inner loop of MAML: reading the series of steps takes a millisecond."""
    recorder, outer, read = Recorder(), Optimizer(), []
    window = recorder.window
    recorder.window = lambda first, plain=False, /: read.append(first) or window(first)  # type: ignore
    stages = Stages(recorder, "loader{}".format)  # type: ignore[arg-type]
    for _ in range(20):
        for optimizer, tag in ((Optimizer(), 1), (outer, 0)):
            stages.step_ends(optimizer, "SGD", tag)
            recorder.walls.append(1)
    assert len(read) <= 4  # two kinds of steps


def stage(first: int, loader: str, step_ms: int, data_ms: int) -> Stage:
    """Return a stage of 50 steps."""
    ns = step_ms * 1_000_000
    sections = (("data", 50 * data_ms * 1_000_000),)
    return Stage(first, 50, "Adam", loader, 50, 50 * ns, ns, ns, sections)


def test_a_finding_names_the_stage_in_which_it_costs_most() -> None:
    """Not the one whose short steps have the largest share of it."""
    stages = (stage(0, "loader0", 2, 1), stage(50, "loader1", 100, 40))
    made = replace(run({"data": 30, "forward": 40}), stages=stages)
    said = " ".join(found(made)["data-loading"].evidence)
    assert "50.0 % of stage 1, 40.0 % of stage 2: look at stage 2 (Adam, loader1) first" in said


def test_a_slow_step_is_one_that_is_slow_in_its_stage() -> None:
    """All steps of a stage with longer steps are longer than 1.5 times the median of the run."""
    kept = tuple(
        OutlierStep(index, 0, ms * 1_000_000, False, (), 0, 0, False, (), 0)
        for index, ms in ((10, 9), (60, 101), (70, 400))
    )
    made = replace(
        run({"data": 30, "forward": 40}),
        stages=(stage(0, "loader0", 2, 1), stage(50, "loader1", 100, 40)),
        outliers=OutlierSnapshot(0, 5, 0, 0, (), 0, kept),
    )
    found = find_outliers(made, 2.0)
    assert [(row.index, row.typical_ms) for row in found] == [(70, 100.0), (10, 2.0)]
    assert find_outliers(replace(made, stages=()), 2.0)[1].index == 60


@pytest.mark.parametrize("stages", [9, 1])
def test_f46_more_stages_or_sections_than_a_run_has_are_refused(stages: int) -> None:
    """Their table has a column for each section of each stage."""
    sections = tuple((f"s{i}", 1) for i in range(64 + (stages == 1)))
    made = Snapshot({}, 1, stages=(Stage(0, 1, "", "", 1, 1, 1, 1, sections),) * stages)
    with pytest.raises(SnapshotError, match="at most"):
        Snapshot.from_dict(made.to_dict())


def test_steps_vary_within_the_longest_stage() -> None:
    """A run of steps of 10 ms and then of 100 ms varies by its stages, not by its steps."""
    for second, varies in (([100.0] * 20, False), ([60.0, 140.0] * 10, True)):
        lengths = [10.0] * 20 + second
        made = run({"forward": 20}, step_ms=55, durations=lengths, layer=gpu_layer(0.9, step_ms=55))
        known = (stage(0, "loader0", 2, 1), stage(20, "loader1", 100, 40))
        staged = replace(made, stages=known)
        assert "step-time-variation" in found(made)
        rule = found(staged).get("step-time-variation")
        assert (rule is not None) == varies
        if rule is not None:
            assert rule.title == "Step times vary by 40.0 % within stage 2"
            assert "Of 20 steps of stage 2 p50 is 100 ms" in " ".join(rule.evidence)
            # 40 ms of the second half's steps.
            assert rule.saving_ms == pytest.approx(20.0)


def test_steps_without_a_wait_show_nothing_in_a_run_with_stages() -> None:
    """Most are of the stage with short steps: its sections would be those of the run."""
    made = run({"forward": 20}, step_ms=55, durations=[15.0] * 20 + [95.0] * 20)
    forward, ms = made.steps.rows[0].key, 1_000_000
    waits = (0,) * 20 + (70 * ms,) * 20
    columns = ((forward, (10 * ms,) * 20 + (30 * ms,) * 20),)
    series = replace(made.steps.series, cpu_wait_ns=waits, switches=(1,) * 40, sections=columns)
    split = (("cpu_wait", sum(waits)), ("compute", made.steps.sum_ns - sum(waits)))
    place = SplitPlace("cpu_wait", 0, made.threads[0].nodes.key.index(forward), 40 * ms)
    steps = replace(made.steps, series=series, split=split, split_places=(place,))
    known = (stage(0, "loader0", 2, 1), stage(20, "loader1", 100, 40))
    parts = [
        Facts(build_report(replace(made, steps=steps, stages=stages))).cpu_waits.sections
        for stages in ((), known)
    ]
    assert parts[0] != parts[1]


class Switched(Recorder):
    """Plain steps of 10 ns; the automatic sections are off in all but those listed.

    Other steps wait longer for data.
    """

    def __init__(self, seen: set[int], hooked: int = 0) -> None:
        super().__init__()
        self.seen, self.hooked = seen, hooked

    def window(self, first: int, plain: bool = False, /) -> dict[str, Any]:
        numbers = range(first, len(self.walls))
        if not plain:
            numbers = range(first, min(first + self.hooked, len(self.walls)))
        columns = {
            "data": [2 if plain and i not in self.seen else 1 for i in numbers],
            "forward": [6 if not plain or i in self.seen else 0 for i in numbers],
            "optimizer": [2 if not plain or i in self.seen else 0 for i in numbers],
        }
        return {
            "wall_ns": array("q", (self.walls[i] for i in numbers)).tobytes(),
            "measured": len(self.walls),
            "sections": [(name, array("q", of).tobytes()) for name, of in columns.items()],
        }


def shares(recorder: Recorder) -> list[dict[str, float]]:
    """Return the share of each section in two stages of 100 steps of 10 ns."""
    stages = Stages(recorder, "loader{}".format)  # type: ignore[arg-type]
    for optimizer, tag in ((Optimizer(), 0), (Optimizer(), 1)):
        for _ in range(100):
            stages.step_ends(optimizer, "SGD", tag)
            recorder.walls.append(10)
    made = replace(run({"data": 30}), stages=stages.stages())
    return [{n: share for n, _, share in row.sections} for row in build_report(made).stages]


def test_sections_of_a_stage_are_those_of_its_steps_that_have_them() -> None:
    """A budget switches the automatic sections of most plain steps off: no step lost its parts."""
    first, second = shares(Switched({3, 150, 160}))
    for parts in (first, second):
        data = parts["data"]
        assert data == pytest.approx(0.2, abs=0.01)
        assert parts["forward"] == pytest.approx((1 - data) * 6 / 9, abs=0.01)
        assert parts["(unaccounted)"] == pytest.approx((1 - data) * 1 / 9, abs=0.01)
    # Functions were recorded in four steps of the stage.
    assert shares(Switched({3}, hooked=4))[1]["forward"] == pytest.approx(0.6)


def test_a_stage_without_a_step_that_has_sections_does_not_guess() -> None:
    first, second = shares(Switched({3}))
    assert first["forward"] > 0.5
    assert second == {}


def test_the_headline_has_no_mean_over_stages() -> None:
    """Steps of 2 and 100 ms are no "100 steps of 51 ms"."""
    stages = (stage(0, "loader0", 2, 1), stage(50, "loader1", 100, 40))
    phases = [PhaseTime("unprofiled", 900_000_000, 3)]
    made = build_report(replace(run({"data": 30, "forward": 40}), stages=stages, phases=phases))
    text = "\n".join(closed_lines(made, 80))
    # Those of the stages, in which steps without the hook count, too.
    assert "100 steps in 2 stages" in text.splitlines()[0]
    assert "without the function hook" not in text
    assert "stage 1 (Adam, loader0) 50 steps of 2.00 ms" in text
    assert dict(overview(made))["step time"] == "2.00 ms in stage 1, 100 ms in stage 2"
