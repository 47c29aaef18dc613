"""Replaced attributes are restored in any order, and other people's are left alone."""

from __future__ import annotations

import gc
import itertools
import types
from collections.abc import Callable
from typing import Any

import pytest
from fastprof.session.patching import replaced
from fastprof.session.patching.replaced import Replaced


def wrapper(original: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: original()


class Base:
    def method(self) -> str:
        return "own"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("inherited", [False, True])
def test_three_runs_end_in_any_order(order: tuple[int, ...], inherited: bool) -> None:
    class Owner(Base):
        if not inherited:

            @staticmethod
            def method() -> str:  # type: ignore[override]
                return "own"

    before = dict(vars(Owner))
    runs = [Replaced() for _ in order]
    for run in runs:
        run.put(Owner, "method", wrapper(Owner.method))
    for i in order:
        runs[i].restore()
        assert not runs[i]
    assert dict(vars(Owner)) == before


def test_what_somebody_else_has_put_there_since_stays() -> None:
    module = types.ModuleType("module")
    module.call = lambda: "own"
    ours = Replaced()
    ours.put(module, "call", wrapper(module.call))
    module.call = theirs = wrapper(module.call)
    ours.restore()
    assert module.call is theirs
    assert theirs() == "own"
    # A later run is not the one that left its wrapper there.
    later = Replaced()
    later.put(module, "call", wrapper(module.call))
    later.restore()
    assert module.call is theirs


def test_a_wrapper_that_somebody_else_puts_back_goes_with_the_next_run() -> None:
    module = types.ModuleType("module")
    module.call = original = lambda: "own"
    ours = Replaced()
    ours.put(module, "call", wrapper(module.call))
    kept = module.call
    module.call = wrapper(kept)
    ours.restore()
    module.call = kept
    later = Replaced()
    later.put(module, "call", wrapper(module.call))
    later.restore()
    assert module.call is original


def test_wrappers_that_are_gone_are_forgotten() -> None:
    module = types.ModuleType("module")
    module.call = lambda: "own"
    count = len(replaced._left)
    for _ in range(3):
        ours = Replaced()
        ours.put(module, "call", wrapper(module.call))
        module.call = lambda: "theirs"
        ours.restore()
    gc.collect()
    assert len(replaced._left) == count
