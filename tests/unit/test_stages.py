"""When a run has stages."""

from __future__ import annotations

from array import array
from typing import Any

from fastprof.session.stages import Stages


class Recorder:
    """Steps of given lengths in ns."""

    def __init__(self) -> None:
        self.walls: list[int] = []

    @property
    def steps(self) -> int:
        return len(self.walls)

    def window(self, first: int, /) -> dict[str, Any]:
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
        stages.at_step(optimizer, type(optimizer).__name__, tag)
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


def test_many_folds_end_in_one_stage() -> None:
    optimizers = [Optimizer() for _ in range(20)]
    found = stages_of(*[(optimizer, i, 5) for i, optimizer in enumerate(optimizers)])
    assert [row[1] for row in found] == [1] * 7 + [13]
