"""The functions in C that end plain steps of an optimizer, without torch."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from fastprof._core import PlainSteps
from fastprof.capture.options import RecorderOptions


class Ends:
    """What the type calls, with what it was called with."""

    def __init__(self, next_event: int = 10) -> None:
        self.calls: list[Any] = []
        self.recorder = RecorderOptions().create(skip_steps=0)
        self.recorder.start_sections()
        self.recorder.mark()
        self.recorder.next_event = next_event
        self.loading = SimpleNamespace(train_tag=3)
        self.claims: list[Any] = []
        self.flags = SimpleNamespace(fetched=True, backward=True)
        self.core = PlainSteps(
            self._named("before"), self._named("after"), self._left, self._named("due"),
            self.loading, self.claims, self.flags, self.recorder,
        )  # fmt: skip
        self.optimizer = object()

    def _named(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, len(args)))

    def _left(self) -> None:
        self.calls.append(("left", self.core.end()))

    def step(self, optimizer: object | None = None, args: Any = (None,), **keywords: Any) -> None:
        of = self.optimizer if optimizer is None else optimizer
        self.core.before(of, args, keywords)
        self.core.after(of, args, keywords)


@pytest.fixture
def ends() -> Any:
    made = Ends()
    made.core.begin(made.optimizer, 3)
    yield made
    made.recorder.stop_sections()


def test_steps_end_without_a_call_until_work_is_due(ends: Ends) -> None:
    for _ in range(12):
        ends.step()
    assert ends.recorder.steps == 12
    assert ends.calls == [("due", 1)] * 3
    assert not ends.flags.fetched
    steps, ns, seen = ends.core.take()
    assert (steps, seen) == (12, 12)
    assert ns >= 0
    assert ends.core.take()[0] == 0


class Waits(SimpleNamespace):
    """Flags whose change takes as long as a wait for a CPU, one time in eight."""

    changes = 0

    def __setattr__(self, name: str, value: bool) -> None:
        Waits.changes += 1
        if Waits.changes % 16 == 0:
            time.sleep(0.02)
        super().__setattr__(name, value)


def test_a_wait_for_a_cpu_in_the_end_of_a_step_is_not_its_time() -> None:
    ends = Ends(next_event=1000)
    waits = PlainSteps(
        *[lambda *_: None] * 4, ends.loading, [], Waits(fetched=True), ends.recorder
    )  # fmt: skip
    waits.begin(ends.optimizer, 3)
    for _ in range(64):
        waits.before(ends.optimizer, (None,), {})
        waits.after(ends.optimizer, (None,), {})
    steps, ns, _ = waits.take()
    ends.recorder.stop_sections()
    assert Waits.changes >= 128
    assert steps == 64
    assert 0 < ns < 64 * 1_000_000


def test_a_step_may_have_a_closure(ends: Ends) -> None:
    ends.step(args=(None, lambda: 0.0))
    ends.step(closure=lambda: 0.0)
    assert ends.recorder.steps == 2
    assert not ends.calls


def test_anything_else_is_handed_over_once_and_for_all(ends: Ends) -> None:
    other: list[tuple[str, Any]] = [
        ("another optimizer", lambda: ends.step(object())),
        ("two arguments", lambda: ends.step(args=(None, lambda: 0.0), scale=2)),
        ("another argument", lambda: ends.step(scale=2)),
        ("a claim", lambda: (ends.claims.append(1), ends.step(), ends.claims.clear())),
        ("another loader", lambda: (setattr(ends.loading, "train_tag", 4), ends.step())),
        ("a lost attribute", lambda: (delattr(ends.loading, "train_tag"), ends.step())),
    ]
    for name, differs in other:
        ends.calls.clear()
        ends.loading.train_tag = 3
        ends.core.begin(ends.optimizer, 3)
        steps = ends.recorder.steps
        differs()
        called = [call[0] for call in ends.calls]
        assert called.count("left") == 1, name
        assert called[-1] == "after", name
        assert ends.recorder.steps == steps, name
        assert not ends.core.on, name


def test_another_thread_is_handed_over_and_the_loop_goes_on(ends: Ends) -> None:
    thread = threading.Thread(target=ends.step)
    thread.start()
    thread.join()
    assert [call[0] for call in ends.calls] == ["before", "after"]
    assert ends.core.on
    ends.step()
    assert ends.recorder.steps == 1


def test_a_step_that_the_program_ended_itself_is_not_ended_again(ends: Ends) -> None:
    ends.core.before(ends.optimizer, (None,), {})
    ends.recorder.step()
    ends.core.after(ends.optimizer, (None,), {})
    assert ends.recorder.steps == 1


def test_exceptions_of_what_is_called_reach_the_caller_once(ends: Ends) -> None:
    def raises(*_: Any) -> None:
        raise KeyError("due")

    core = PlainSteps(
        raises, raises, raises, raises, ends.loading, [], ends.flags, ends.recorder,
    )  # fmt: skip
    ends.recorder.next_event = 1
    core.begin(ends.optimizer, 3)
    core.before(ends.optimizer, (None,), {})
    with pytest.raises(KeyError, match="due"):
        core.after(ends.optimizer, (None,), {})
    with pytest.raises(KeyError, match="due"):
        core.before(None, (), {})


def test_wrong_arguments_and_cycles() -> None:
    made = Ends()
    for args in ((), (1,) * 8, (None,) * 7 + (made.recorder,)):
        with pytest.raises(TypeError):
            PlainSteps(*args)
    with pytest.raises(TypeError):
        made.core.begin(1)  # type: ignore[call-arg]
    assert made.core.end() == (False, False)
    made.core.before()  # type: ignore[call-arg]
    alive = weakref.ref(made)
    made.recorder.stop_sections()
    del made
    gc.collect()
    assert alive() is None
