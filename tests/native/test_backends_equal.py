"""Both hook backends record the same tree, of random and of real programs."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from cprofile_programs import PROGRAMS, warm
from helpers import BACKENDS
from trees import paths, record

pytest.importorskip("hypothesis")
import contextlib

from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.skipif(len(BACKENDS) < 2, reason="this Python has one backend")

#: A program is a list of operations; operations that contain a program call it.
Program = list[tuple[str, "Program"]]

_leaves = st.sampled_from(["c", "method", "raise_c", "nothing"]).map(lambda op: (op, []))
_programs = st.recursive(
    st.lists(_leaves, max_size=4),
    lambda inner: st.lists(
        st.one_of(
            _leaves,
            st.tuples(
                st.sampled_from(
                    ["call", "bound", "raise", "generate", "abandon", "throw", "sort", "star"]
                ),
                inner,
            ),
        ),
        max_size=4,
    ),
    max_leaves=25,
)


class _Machine:
    """Runs a program with calls of many kinds."""

    def run(self, program: Program) -> None:
        for op, inner in program:
            getattr(self, "do_" + op)(inner)

    def do_nothing(self, inner: Program) -> None:
        pass

    def do_c(self, inner: Program) -> None:
        len(inner)

    def do_method(self, inner: Program) -> None:
        [1].append(2)
        "a".join(["b"])

    def do_raise_c(self, inner: Program) -> None:
        with contextlib.suppress(ZeroDivisionError):
            divmod(1, 0)

    def do_call(self, inner: Program) -> None:
        _Machine.run(self, inner)

    def do_bound(self, inner: Program) -> None:
        run = self.run
        run(inner)

    def do_raise(self, inner: Program) -> None:
        with contextlib.suppress(KeyError):
            self.fail(inner)

    def fail(self, inner: Program) -> None:
        self.run(inner)
        raise KeyError

    def values(self, inner: Program) -> Iterator[int]:
        try:
            for i in range(3):
                self.run(inner)
                yield i
        except KeyError:
            yield 3

    def do_generate(self, inner: Program) -> None:
        for _ in self.values(inner):
            pass

    def do_abandon(self, inner: Program) -> None:
        for _ in self.values(inner):
            break

    def do_throw(self, inner: Program) -> None:
        values = self.values(inner)
        next(values)
        values.throw(KeyError())

    def do_sort(self, inner: Program) -> None:
        def key(x: int) -> int:
            self.run(inner)
            return x

        sorted([2, 1], key=key)

    def do_star(self, inner: Program) -> None:
        args = (inner,)
        self.run(*args)
        len(*args)


def _equal(run: Callable[[], object]) -> None:
    # A collection may run foreign Python code at any allocation.
    gc.disable()
    try:
        trees = [paths(record(run, backend)) for backend in BACKENDS]
    finally:
        gc.enable()
    # A failure shows only the differences, not the whole trees.
    assert +(trees[0] - trees[1]) == Counter() == +(trees[1] - trees[0])


@given(_programs)
def test_random_programs(program: Program) -> None:
    _equal(lambda: _Machine().run(program))


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_real_programs(name: str) -> None:
    _equal(warm(name))
