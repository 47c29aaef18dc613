"""Whose steps end the steps of a run with several optimizers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fastprof.integrations._torch.leaders import Leaders


class Optimizer:
    """As far as its parameters count."""

    def __init__(self, leaders: Leaders, *shapes: tuple[int, ...]) -> None:
        self.param_groups = [{"params": [SimpleNamespace(shape=shape) for shape in shapes]}]
        leaders.made(self)


class Foreign:
    """Without groups of parameters."""


def ends(
    leaders: Leaders, *optimizers: Any, fetched: bool = False, backward: bool = True
) -> list[int]:
    ended = []
    for optimizer in optimizers:
        leaders.fetched, leaders.backward = fetched, backward
        ended.append(int(leaders.ends_step(optimizer)))
    return ended


def test_the_optimizers_of_an_inner_loop_end_no_steps() -> None:
    leaders = Leaders()
    outer = Optimizer(leaders, (3, 2), (3,))
    for _ in range(25):
        for steps in (3, 5):
            inner = Optimizer(leaders, (3, 2), (3,))
            assert ends(leaders, *[inner] * steps) == [0] * steps
        assert ends(leaders, outer) == [1]


def test_optimizers_that_take_turns_have_a_step_per_round() -> None:
    leaders = Leaders()
    painter, judge = Optimizer(leaders, (8, 2)), Optimizer(leaders, (3, 2))
    for _ in range(4):
        assert ends(leaders, *[judge] * 3, painter) == [1, 1, 1, 0]


def test_twins_have_a_step_per_round() -> None:
    leaders = Leaders()
    first, second = Optimizer(leaders, (3, 2)), Optimizer(leaders, (3, 2))
    assert sum(ends(leaders, *[second, first] * 9)) == 9


def test_a_second_part_of_the_run_has_its_steps() -> None:
    leaders = Leaders()
    before = Optimizer(leaders, (3, 2))
    assert ends(leaders, *[before] * 5) == [1] * 5
    after = Optimizer(leaders, (3, 2))
    assert ends(leaders, *[after] * 5) == [0, 1, 1, 1, 1]


def test_an_optimizer_that_never_steps_is_no_outer_one() -> None:
    leaders = Leaders()
    unused, used = Optimizer(leaders, (3, 2)), Optimizer(leaders, (3, 2))
    assert sum(ends(leaders, *[used] * 100)) >= 80
    assert unused is not None


def test_training_after_an_inner_loop_has_its_steps() -> None:
    leaders = Leaders()
    outer = Optimizer(leaders, (3, 2))
    for _ in range(3):
        inner = Optimizer(leaders, (3, 2))
        ends(leaders, *[inner] * 4, outer)
    after = Optimizer(leaders, (3, 2))
    assert sum(ends(leaders, *[after] * 200)) >= 130


def test_training_by_the_outer_optimizer_alone_is_no_outer_loop() -> None:
    leaders = Leaders()
    models = [Optimizer(leaders, (3, 2)) for _ in range(3)]
    for model in reversed(models):
        ends(leaders, *[model] * 20)
    assert sum(ends(leaders, *[models[2]] * 20, *[models[1]] * 20)) == 40


def test_a_server_that_steps_without_a_backward_leaves_the_steps_to_its_clients() -> None:
    leaders = Leaders()
    server = Optimizer(leaders, (3, 2))
    for _ in range(5):
        client = Optimizer(leaders, (3, 2))
        ended = ends(leaders, *[client] * 4)
        assert ends(leaders, server, backward=False) == [0]
    assert ended == [1] * 4


def test_an_optimizer_with_several_steps_per_turn_has_all_of_them() -> None:
    leaders = Leaders()
    first, second = Optimizer(leaders, (3, 2)), Optimizer(leaders, (4, 2))
    assert sum(ends(leaders, *[first] * 3, *[second] * 3)) == 5
    assert sum(ends(leaders, *[first] * 3, *[second] * 3)) == 6
    assert sum(ends(leaders, *[first, second] * 10)) == 11


def test_an_optimizer_with_other_groups_is_one() -> None:
    leaders = Leaders()
    first, second = Foreign(), Foreign()
    assert ends(leaders, first, second, first) == [1, 0, 1]


def test_an_outer_optimizer_may_end_before_its_inner_ones() -> None:
    leaders = Leaders()
    outer = Optimizer(leaders, (3, 2))
    inner = Optimizer(leaders, (3, 2))
    assert ends(leaders, inner) == [0]
    del outer
    assert ends(leaders, inner, inner) == [1, 1]
