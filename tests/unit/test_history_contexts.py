"""The contexts of a run over time: their work is bounded, and their times add up."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from fastprof.session.history import contexts
from fastprof.session.history.contexts import MOST_NEW, MOST_NODES, RunContexts
from fastprof.session.history.meanwhile import Meanwhile
from fastprof.session.history.segments import MOST_TIMES, Segments
from fastprof.snapshot.history import MAX_CONTEXTS
from fastprof.snapshot.run_phases import RUN_PHASES

_PHASES, _PIECE = len(RUN_PHASES), 4096


class Tree:
    """A recorder with a root and ``n`` functions below it, all of which spend time."""

    def __init__(self, n: int) -> None:
        self.n, self.step = n, 0
        self.described: list[int] = []
        self.read: list[int] = []

    def gpu_status(self) -> dict[str, Any]:
        return {}

    def add_spent(
        self, first: int, least_ns: int, known: Any, place: Any, sums: Any
    ) -> tuple[int, int, int, bytes]:
        end = min(first + _PIECE, len(place), self.n + 1)
        self.read.append(end - first)
        new = array("q")
        for node in range(first, end):
            ns = self.ns(node)
            place[node] = 0 if not node else place[node]
            at = place[node]
            ticks, known[2 * node] = ns - known[2 * node], ns
            sums[2 * (at if at >= 0 else -1 - at)] += ticks
            if at >= 0:
                sums[2 * at + 1] += 1
            elif ticks >= least_ns and len(new) < 3 * 64:
                new.extend((node, ticks, 1))
        return 0, self.n + 1, max(end, first), new.tobytes()

    def ns(self, node: int) -> int:
        return self.step * (1000 + node)

    def nodes(self, wanted: bytes) -> Any:
        numbers = sorted(array("q", wanted))
        self.described.append(len(numbers))
        keys = [("python", "train.py", node, f"f{node}", f"f{node}") for node in numbers]
        return {0: (-1, -1)} | {node: (0, i) for i, node in enumerate(numbers)}, keys


def test_the_work_in_a_tree_of_100_000_contexts_is_bounded(monkeypatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(contexts.time, "sleep", pauses.append)
    tree = Tree(100_000)
    run = RunContexts(tree)  # type: ignore[arg-type]
    run.skip()
    for _ in range(20):
        tree.step += 1
        pauses.clear()
        before = len(tree.read)
        spent, idle = run.spent(0)
        assert max(tree.read) <= _PIECE
        assert sum(tree.read[before:]) == tree.n + 1
        assert len(pauses) >= 5  # the program's threads may run
        assert len(spent) <= MAX_CONTEXTS
        assert sum(spent.self_ns) + sum(idle) == sum(1000 + node for node in range(tree.n + 1))
    assert max(tree.described) <= MOST_NEW
    assert len(spent) == MAX_CONTEXTS
    assert len(tree.described) == MAX_CONTEXTS // MOST_NEW


def test_a_tree_that_is_too_large_is_read_no_more() -> None:
    tree = Tree(100)
    run = RunContexts(tree)  # type: ignore[arg-type]
    run.skip()
    tree.step, tree.n = 1, MOST_NODES
    run.spent(0)
    tree.read.clear()
    assert run.spent(0)[1] == ()
    assert tree.read == []


def test_small_contexts_count_to_their_caller_until_they_are_not_small() -> None:
    tree = Tree(3)
    run = RunContexts(tree)  # type: ignore[arg-type]
    run.skip()
    tree.step = 1
    spent, idle = run.spent(1002)
    assert [run.keys[run.table(range(9)).key[at]][3] for at in spent.context] == ["f2", "f3"]
    assert list(spent.self_ns) == [1002, 1003]
    assert list(spent.calls) == [1, 1]
    assert idle[0] == 1000 + 1001
    tree.step = 2
    spent, idle = run.spent(1000)
    assert list(spent.self_ns) == [1002, 1003, 1001]
    assert idle[0] == 1000


@pytest.mark.parametrize("sections", [3, 60])
def test_the_times_of_steps_that_are_read_are_bounded(sections: int) -> None:
    asked: list[int] = []

    class Steps(Tree):
        def window(self, first: int, plain: bool = False) -> dict[str, Any]:
            asked.append(first)
            rows = range(max(first, 96_000), 100_000)
            column = array("q", [10**6] * len(rows)).tobytes()
            names = ("wall_ns", "cpu_ns", "gc_ns", "cpu_wait_ns", "faults")
            number = array("q", rows).tobytes()
            return {
                "steps": 100_000,
                "number": b"" if plain else number,
                "phases_ns": [0],
                "waits": [],
                "sections": [(f"s{i}", column) for i in range(sections)],
            } | dict.fromkeys(names, column)

    tree: Any = Steps(10)
    meanwhile = Meanwhile(tree, lambda: (-1, None), lambda: None)
    run = Segments(tree, lambda: None, meanwhile, 0)
    made = run.take(8)
    assert made is not None
    assert made.steps == 100_000
    assert made.full.count == MOST_TIMES // (8 + sections) < 4096
    assert made.plain.count == 0
    assert min(asked) == 100_000 - made.full.count
