"""The function in C that fetches the batches of plain steps, without torch."""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from fastprof._core import PlainFetch, PlainSteps, profile_section
from fastprof.capture.convert import take_snapshot
from fastprof.capture.options import RecorderOptions

DATA = profile_section("data")


class Fetches:
    """A loop with plain steps; what is called goes to ``calls``."""

    def __init__(self, batches: int = 40) -> None:
        self.calls: list[str] = []
        self.recorder = RecorderOptions().create(skip_steps=0)
        self.recorder.start_sections()
        self.recorder.mark()
        self.loading = SimpleNamespace(train_tag=-1, counting=True)
        self.claims: list[Any] = []
        self.leaders = SimpleNamespace(fetched=False, backward=True)
        self.phases = SimpleNamespace(fetching=False)
        self.entry = SimpleNamespace(batches=5)
        self.iterator = iter(range(batches))
        self.optimizer = object()
        self.steps = PlainSteps(
            lambda *_: None, lambda *_: None, lambda: self.steps.end(), lambda _: None,
            self.loading, self.claims, self.leaders, self.recorder,
        )  # fmt: skip
        self.core = PlainFetch(
            self.steps, self._slow, lambda: self.calls.append("over"), self._original,
            self.phases, DATA,
        )  # fmt: skip
        assert not self.core.begin(self.iterator, self.entry, 3, 30)
        self.steps.begin(self.optimizer, 3)
        assert self.core.begin(self.iterator, self.entry, 3, 30)

    def _slow(self, iterator: Any) -> Any:
        self.calls.append("slow")
        return next(iterator)

    def _original(self, iterator: Any) -> Any:
        assert self.phases.fetching
        return next(iterator)

    def step(self) -> Any:
        batch = self.core.next(self.iterator)
        self.steps.before(self.optimizer, (None,), {})
        self.steps.after(self.optimizer, (None,), {})
        return batch


@pytest.fixture
def fetches() -> Any:
    made = Fetches()
    yield made
    made.recorder.stop_sections()


def test_batches_are_fetched_in_their_section_without_a_call(fetches: Fetches) -> None:
    assert [fetches.step() for _ in range(12)] == list(range(12))
    assert not fetches.calls
    assert fetches.recorder.steps == 12
    assert fetches.entry.batches == 17
    assert fetches.loading.train_tag == 3
    assert not fetches.phases.fetching
    snapshot = take_snapshot(fetches.recorder)
    names = [snapshot.keys[section.key].name for section in snapshot.sections]
    assert snapshot.sections[names.index("data")].count == 12
    steps, ns, _ = fetches.steps.take()
    assert steps == 12
    assert ns > 0


def test_batches_are_not_counted_where_the_run_counts_none(fetches: Fetches) -> None:
    fetches.loading.counting = False
    fetches.step()
    assert fetches.entry.batches == 5


def test_anything_else_is_handed_over(fetches: Fetches) -> None:
    def in_section() -> None:
        with DATA:
            fetches.core.next(fetches.iterator)

    def in_a_thread() -> None:
        thread = threading.Thread(target=fetches.core.next, args=(fetches.iterator,))
        thread.start()
        thread.join()

    other = iter("abc")
    cases: list[tuple[str, Any]] = [
        ("another iterator", lambda: fetches.core.next(other)),
        ("a claim", lambda: (fetches.claims.append(1), fetches.core.next(fetches.iterator))),
        ("an open section", in_section),
        ("another thread", in_a_thread),
        ("in the optimizer's step", lambda: (
            fetches.steps.before(fetches.optimizer, (None,), {}),
            fetches.core.next(fetches.iterator),
        )),
        ("after its end", lambda: (fetches.core.end(), fetches.core.next(fetches.iterator))),
        ("no plain steps", lambda: (fetches.steps.end(), fetches.core.next(fetches.iterator))),
        ("later plain steps", lambda: (
            fetches.steps.end(), fetches.steps.begin(fetches.optimizer, 3),
            fetches.core.next(fetches.iterator),
        )),
    ]  # fmt: skip
    for name, differs in cases:
        fetches.calls.clear()
        fetches.claims.clear()
        fetches.steps.begin(fetches.optimizer, 3)
        fetches.core.begin(fetches.iterator, fetches.entry, 3, 2)
        differs()
        assert fetches.calls == ["slow"], name
        assert not fetches.phases.fetching, name


def test_no_more_batches_are_fetched_than_allowed(fetches: Fetches) -> None:
    fetches.core.begin(fetches.iterator, fetches.entry, 3, 2)
    for _ in range(3):
        fetches.step()
    assert fetches.calls == ["slow"]


def test_the_end_of_the_loader_is_reported_once() -> None:
    fetches = Fetches(batches=2)
    fetches.step()
    fetches.step()
    with pytest.raises(StopIteration):
        fetches.core.next(fetches.iterator)
    assert fetches.calls == ["over"]
    assert not fetches.phases.fetching
    assert fetches.entry.batches == 7
    fetches.recorder.stop_sections()


def test_an_exception_of_the_loader_reaches_the_program(fetches: Fetches) -> None:
    def fails(_: Any) -> Any:
        raise OSError("disk")

    core = PlainFetch(
        fetches.steps, fails, fails, fails, fetches.phases, DATA,
    )  # fmt: skip
    core.begin(fetches.iterator, fetches.entry, 3, 2)
    with pytest.raises(OSError, match="disk"):
        core.next(fetches.iterator)
    assert not fetches.phases.fetching
    assert fetches.entry.batches == 5


def test_a_fetch_within_a_fetch_is_part_of_it(fetches: Fetches) -> None:
    def original(iterator: Any) -> Any:
        return core.next(iterator)

    core = PlainFetch(
        fetches.steps, fetches._slow, fetches._slow, original, fetches.phases, DATA,
    )  # fmt: skip
    core.begin(fetches.iterator, fetches.entry, 3, 2)
    assert core.next(fetches.iterator) == 0
    assert fetches.calls == ["slow"]
    assert fetches.entry.batches == 6


def test_objects_without_the_attributes_lose_no_batch(fetches: Fetches) -> None:
    bare = PlainSteps(next, next, next, next, object(), [], object(), fetches.recorder)
    bare.begin(fetches.optimizer, 3)
    core = PlainFetch(bare, fetches._slow, fetches._slow, next, object(), DATA)
    core.begin(fetches.iterator, object(), 3, 9)
    assert [core.next(fetches.iterator) for _ in range(3)] == [0, 1, 2]


def test_wrong_arguments_and_cycles() -> None:
    made = Fetches()
    for args in ((), (1,) * 6, (made.steps, *(None,) * 5)):
        with pytest.raises(TypeError):
            PlainFetch(*args)
    with pytest.raises(TypeError, match="begin"):
        made.core.begin(1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="loader tag"):
        made.core.begin(made.iterator, made.entry, -2, 1)
    alive = weakref.ref(made)
    made.recorder.stop_sections()
    del made, args
    gc.collect()
    assert alive() is None
