"""Steps without automatic sections: everything else is recorded as with them."""

from __future__ import annotations

import copy
import gc
import os
import sys
import threading
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import fastprof
import pytest

torch = pytest.importorskip("torch")

from fastprof.integrations import torch_loop  # noqa: E402
from fastprof.integrations._torch import data as torch_data  # noqa: E402
from fastprof.integrations._torch import owner as torch_owner  # noqa: E402
from fastprof.integrations._torch import phase_state  # noqa: E402
from fastprof.integrations._torch.phases import Phases  # noqa: E402
from fastprof.session import current, own_time  # noqa: E402
from fastprof.session.loaders import worker_stats  # noqa: E402
from fastprof.session.own_time import OwnTime  # noqa: E402
from fastprof.session.part import Part  # noqa: E402
from fastprof.session.profiler import run_of  # noqa: E402
from torch_programs import Items, counted_calls, loader  # noqa: E402

SWITCHED = ("forward", "backward", "optimizer")


class Switches(Part):
    """Asks for sections in the steps that ``wanted`` names."""

    def __init__(self, run: Any, wanted: Any) -> None:
        self.run, self.wanted = run, wanted
        self.done: list[bool] = []
        #: Number of hooks on modules after each switch.
        self.hooks: list[int] = []

    def next_step(self, count: int) -> int:
        return count + 1

    def at_step(self, count: int) -> None:
        self.done.append(self.run.switch_sections(self.wanted(count)))
        modules = sys.modules["torch.nn.modules.module"]
        self.hooks.append(len(modules._global_forward_pre_hooks))


def network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.1), torch.nn.Linear(4, 1))


def made() -> tuple[Any, Any]:
    model = network()
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def data(items: int = 12) -> Any:
    return loader(Items(None, items))


def train_by_closure(model: Any, optimizer: Any, batches: Any) -> None:
    for batch in batches:

        def closure(batch: Any = batch) -> Any:
            loss = model(batch).sum()
            loss.backward()
            return loss

        optimizer.step(closure=closure)
        optimizer.zero_grad()


def train(model: Any, optimizer: Any, batches: Any) -> None:
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def epochs(tmp_path: Path) -> None:
    model, optimizer = made()
    held_out = data(4)
    for _ in range(3):
        model.train()
        train(model, optimizer, data())
        model.eval()
        with torch.no_grad():
            for batch in held_out:
                model(batch)
        torch.save(model.state_dict(), tmp_path / "model.pt")


def mode_after_the_fetch(tmp_path: Path) -> None:
    model, optimizer = made()
    for _ in range(3):
        train(model, optimizer, data())
        for batch in data(4):
            model.train(False)
            with torch.no_grad():
                model(batch)
            model.train()


def no_loader(tmp_path: Path) -> None:
    model, optimizer = made()
    batches = [torch.ones(2, 4)] * 9
    for _ in range(3):
        train(model, optimizer, batches)
        model.train(False)
        with torch.no_grad():
            for batch in batches:
                model(batch)
        for module in model.modules():
            module.training = True  # and nobody calls train()


def evaluation_in_the_loop(tmp_path: Path) -> None:
    model, optimizer = made()
    for i, batch in enumerate(islice(data(60), 30)):
        if i % 4 == 3:
            model.eval()
            with torch.no_grad():
                for other in data(4):
                    model(other)
            model.train()
        train(model, optimizer, [batch])


def two_optimizers(tmp_path: Path) -> None:
    (painter, first), (judge, second) = made(), made()
    for batch in data(24):
        (judge(batch).sum() + painter(batch).sum()).backward()
        second.step()
        judge(batch * painter(batch)).sum().backward()
        first.step()


def closures(tmp_path: Path) -> None:
    model, optimizer = made()
    for batch in data(24):

        def closure(batch: Any = batch) -> Any:
            optimizer.zero_grad()
            loss = model(batch).sum()
            loss.backward()
            return loss

        optimizer.step(closure)


def a_closure_by_name(tmp_path: Path) -> None:
    """Lightning's: it also changes the mode of the model now and then."""
    model, optimizer = made()
    held_out = data(4)
    for i, batch in enumerate(data(40)):

        def closure(batch: Any = batch, i: int = i) -> Any:
            if i % 7 == 6:
                model.eval()
                model.train()
            loss = model(batch).sum()
            optimizer.zero_grad()
            loss.backward()
            return loss

        optimizer.step(closure=closure)
        if i % 9 == 8:
            model.eval()
            with torch.no_grad():
                for other in held_out:
                    model(other)
            model.train()


def a_closure_that_raises(tmp_path: Path) -> None:
    model, optimizer = made()
    other, second = made()
    for i, batch in enumerate([torch.ones(2, 4)] * 40):

        def closure(batch: Any = batch, i: int = i) -> Any:
            loss = model(batch).sum()
            loss.backward()
            if i % 8 == 7:
                raise ValueError(i)
            return loss

        try:
            optimizer.step(closure=closure)
        except ValueError:
            train(other, second, [batch])
    train(other, second, data(20))


def an_optimizer_in_a_closure(tmp_path: Path) -> None:
    model, optimizer = made()
    other, second = made()
    for i, batch in enumerate(data(40)):

        def closure(batch: Any = batch, i: int = i) -> Any:
            if i % 6 == 5:
                train(other, second, [batch])
            loss = model(batch).sum()
            loss.backward()
            return loss

        optimizer.step(closure)


def accumulation(tmp_path: Path) -> None:
    model, optimizer = made()
    for i, batch in enumerate(data(24)):
        model(batch).sum().backward()
        if i % 3 == 2:
            optimizer.step()


def read_ahead(tmp_path: Path) -> None:
    model, optimizer = made()
    for _ in range(3):
        batches = iter(data())
        following = next(batches)
        while following is not None:
            batch, following = following, next(batches, None)
            train(model, optimizer, [batch])


def step_of_the_base(tmp_path: Path) -> None:
    class Scaled(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    model = network()
    train(model, Scaled(model.parameters(), lr=1e-3), data(24))


def a_step_that_raises(tmp_path: Path) -> None:
    class Raises(torch.optim.SGD):
        count = 0

        def step(self, closure: Any = None) -> Any:
            self.count += 1
            if self.count % 4 == 3:
                raise ValueError(self.count)
            return super().step(closure)

    model = network()
    optimizer = Raises(model.parameters(), lr=1e-3)
    for batch in data(24):
        try:
            train(model, optimizer, [batch])
        except ValueError:
            continue


def the_base_steps_sometimes(tmp_path: Path) -> None:
    class Sometimes(torch.optim.SGD):
        count = 0

        def step(self, closure: Any = None) -> Any:
            self.count += 1
            if self.count % 5 == 4:
                return super().step(closure)
            return None

    model = network()
    train(model, Sometimes(model.parameters(), lr=1e-3), data(40))


def an_optimizer_within_another(tmp_path: Path) -> None:
    class Outer(torch.optim.SGD):
        count = 0
        inner: Any = None

        def step(self, closure: Any = None) -> Any:
            self.count += 1
            if self.count % 6 == 5:
                self.inner.step()

    model, inner = made()
    outer = Outer(model.parameters(), lr=1e-3)
    outer.inner = inner
    train(model, outer, data(40))


def another_after_one_that_raised(tmp_path: Path) -> None:
    class Fails(torch.optim.SGD):
        fails = False

        def step(self, closure: Any = None) -> Any:
            if self.fails:
                raise ValueError
            return None

    model, other = made()
    fails = Fails(model.parameters(), lr=1e-3)
    train(model, fails, data(20))
    fails.fails = True
    for batch in data(8):
        try:
            train(model, fails, [batch])
        except ValueError:
            train(model, other, [batch])
    fails.fails = False
    train(model, fails, data(20))


def new_optimizers(tmp_path: Path) -> None:
    model = network()
    for i in range(6):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        if i % 2:
            optimizer = copy.deepcopy(optimizer)
        train(model, optimizer, data(20))
        del optimizer


def arguments_of_a_step(tmp_path: Path) -> None:
    model, optimizer = made()
    for i, batch in enumerate(data(40)):
        model(batch).sum().backward()
        optimizer.step(**({"closure": None} if i % 4 == 3 else {}))


def another_thread(tmp_path: Path) -> None:
    model, optimizer = made()
    other, second = made()
    for i, batch in enumerate(data(40)):
        train(model, optimizer, [batch])
        if i % 3 == 0:
            thread = threading.Thread(target=train, args=(other, second, [torch.ones(2, 4)]))
            thread.start()
            thread.join()


def the_program_ends_some_steps(tmp_path: Path) -> None:
    model, optimizer = made()
    for i, batch in enumerate(data(40)):
        train(model, optimizer, [batch])
        if i % 5 == 4:
            current.running().step()


def two_loaders(tmp_path: Path) -> None:
    model, optimizer = made()
    for batches in (data(20), data(12), data(20)):
        for batch, other in zip(batches, data(40), strict=False):
            train(model, optimizer, [batch, other])
        train(model, optimizer, data(12))


def without_optimizer(tmp_path: Path) -> None:
    model = network()
    parameters = list(model.parameters())
    for batch in data(24):
        model(batch).sum().backward()
        with torch.no_grad():
            for parameter in parameters:
                parameter -= 1e-3 * parameter.grad


def inference(tmp_path: Path) -> None:
    model = network().eval()
    with torch.no_grad():
        for batch in data(24):
            model(batch)


#: Programs whose steps end without an optimizer of torch.
HAND_MADE = (without_optimizer, inference)

PROGRAMS = [
    epochs, mode_after_the_fetch, no_loader, evaluation_in_the_loop, two_optimizers, closures,
    a_closure_by_name, a_closure_that_raises, an_optimizer_in_a_closure,
    accumulation, read_ahead, step_of_the_base, a_step_that_raises, the_base_steps_sometimes,
    an_optimizer_within_another, another_after_one_that_raised, new_optimizers,
    arguments_of_a_step, another_thread, the_program_ends_some_steps, two_loaders, *HAND_MADE,
]  # fmt: skip


@pytest.fixture(autouse=True)
def no_optimizers_of_other_tests(request, monkeypatch):
    monkeypatch.setattr(phase_state, "_FIRST_STEPS", 0)  # steps are plain early
    monkeypatch.setattr(torch_loop, "has_compiled", lambda: False)
    if (
        getattr(request.node, "callspec", None)
        and request.node.callspec.params.get("program") in HAND_MADE
    ):
        monkeypatch.setattr(torch_loop, "has_optimizers", lambda: False)


def recorded(program: Any, wanted: Any, tmp_path: Path) -> tuple[Any, Switches, dict[str, Any]]:
    """Return the run's report, its switch, and all that must not depend on it."""
    torch.manual_seed(0)
    with torch_loop.attach(functions=False, gpu=False, skip_first=0) as loop:
        run = run_of(loop.profiler)
        switches = Switches(run, wanted)
        run.parts.append(switches)
        program(tmp_path)
    snapshot = loop.profiler.snapshot()
    assert snapshot.counters == {}
    sections: Counter[tuple[str, int]] = Counter()
    for row in snapshot.sections:
        name = snapshot.keys[row.key].name
        if name not in SWITCHED:
            sections[name, row.phase] += row.count
    same = {
        "steps": snapshot.steps.count,
        "loaders": {(row.name, row.split): row.batches for row in snapshot.loaders},
        "sections": sections,
        "ended by": snapshot.meta.get("steps_ended_by"),
    }
    return loop.report(), switches, same


@pytest.mark.parametrize(
    "wanted", [lambda count: False, lambda count: count % 2 == 0, lambda count: count % 5 == 0]
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_no_automatic_section_does_not_depend_on_the_switch(
    program, wanted, tmp_path
) -> None:
    _, _, expected = recorded(program, lambda count: True, tmp_path)
    _, switches, found = recorded(program, wanted, tmp_path)
    assert found == expected
    assert found["steps"] >= 4
    assert len(switches.done) == found["steps"]


def test_steps_have_sections_only_where_they_are_wanted(tmp_path) -> None:
    report, switches, _ = recorded(two_optimizers, lambda count: count in (0, 5, 6), tmp_path)
    steps = report.in_phase("all").steps
    rows = {row.name: row for row in steps.rows}
    # The first step, and those that begin when 5 and 6 have ended.
    assert {name: report.in_phase("all").section(name).count for name in SWITCHED} == {
        "forward": 6, "backward": 6, "optimizer": 6,
    }  # fmt: skip
    assert rows["data"].steps == steps.count == 12
    assert all(switches.done)
    # Calls of modules are not seen in between.
    assert [hooks > 0 for hooks in switches.hooks] == [n in (5, 6) for n in range(1, 13)]


def test_rows_of_modules_are_switched_too(tmp_path) -> None:
    with torch_loop.attach(functions=False, gpu=False, skip_first=0, modules="0") as loop:
        run = run_of(loop.profiler)
        run.parts.append(Switches(run, lambda count: count >= 4))
        model, optimizer = made()
        train(model, optimizer, data(16))
    assert loop.report().in_phase("all").section("0").count == 1 + 4
    assert loop.profiler.snapshot().counters == {}


@pytest.mark.parametrize("program", HAND_MADE)
def test_sections_stay_where_calls_of_modules_end_the_steps(program, tmp_path) -> None:
    report, switches, found = recorded(program, lambda count: False, tmp_path)
    assert not any(switches.done)
    forward = report.in_phase("all").section("forward").count
    assert forward == 12
    assert found["steps"] >= 11


def test_a_trainers_integration_keeps_its_sections(tmp_path) -> None:
    with torch_loop.attach(functions=False, gpu=False) as loop:
        model, optimizer = made()
        train(model, optimizer, data())
        torch_owner.claim(loop)
        try:
            assert not run_of(loop.profiler).switch_sections(False)
        finally:
            torch_owner.release(loop)
        assert run_of(loop.profiler).switch_sections(False)
        assert run_of(loop.profiler).switch_sections(True)


def test_a_compiled_model_has_its_sections_only_where_they_are_wanted(tmp_path) -> None:
    with torch_loop.attach(functions=False, gpu=False, skip_first=0) as loop:
        run = run_of(loop.profiler)
        run.parts.append(Switches(run, lambda count: count >= 4))
        model, optimizer = made()
        train(torch.compile(model, backend="eager"), optimizer, data(16))
    report = loop.report().in_phase("all")
    assert report.section("forward").count == report.section("optimizer").count == 1 + 4
    assert report.steps.count == 8


@pytest.mark.parametrize("training", [train, train_by_closure])
@pytest.mark.parametrize("loads", [False, True])
def test_a_plain_step_makes_few_calls_of_fastprof(loads, training) -> None:
    """Calls are most of its cost."""
    calls, count = counted_calls()
    with torch_loop.attach(functions=False, gpu=False, skip_first=0, log_every=0) as loop:
        model, optimizer = made()
        batches: Any = [torch.ones(2, 4)] * 200
        if loads:
            batches = torch.utils.data.DataLoader([torch.ones(4)] * 400, batch_size=2)
        batches = iter(batches)
        training(model, optimizer, islice(batches, 20))
        assert run_of(loop.profiler).switch_sections(False)
        training(model, optimizer, islice(batches, 5))
        sys.setprofile(count)
        try:
            training(model, optimizer, islice(batches, 100))
        finally:
            sys.setprofile(None)
    every_step = {"call_through", "is_plain_backward"}
    every_step |= {"next_batch"} if loads else set()
    assert {name for name, n in calls.items() if n >= 100} == every_step
    assert all(calls[name] <= 101 for name in every_step)
    # One step in 50 has other work, and one batch in 16 is watched.
    assert sum(calls.values()) < (600 if loads else 350), calls
    assert loop.report().in_phase("all").steps.count == 125


def validate(model: Any, batches: Any) -> None:
    model.eval()
    with torch.no_grad():
        for batch in batches:
            model(batch)
    model.train()


def test_a_batch_of_a_validation_makes_few_calls_of_fastprof() -> None:
    """A validation may be as long as the training, and counts for the same bound."""
    calls, count = counted_calls()
    with torch_loop.attach(functions=False, gpu=False, skip_first=0, log_every=0) as loop:
        model, optimizer = made()
        held_out = torch.utils.data.DataLoader([torch.ones(4)] * 200, batch_size=2)
        train(model, optimizer, data(24))
        validate(model, held_out)
        assert run_of(loop.profiler).switch_sections(False)
        train(model, optimizer, data(24))
        sys.setprofile(count)
        try:
            validate(model, held_out)
        finally:
            sys.setprofile(None)
        train(model, optimizer, data(24))
    # The first batch, and the end, have other work.
    handled = ("_next", "_before", "before", "after", "becomes_unsure", "fetch_begins")
    assert all(calls[name] <= 4 for name in handled), calls
    assert sum(calls.values()) < 100 * 21, calls
    report = loop.report()
    (val,) = [row for row in report.loaders if row.split == "val"]
    assert val.batches == 200
    assert loop.report().in_phase("validation").section("data").count == 200
    assert report.in_phase("all").steps.count == 36


def test_the_time_of_a_watched_batch_counts_as_often_as_there_are_such(monkeypatch) -> None:
    """Two of 16 batches are watched if no worker loads them; the time of one counted 16 times."""
    now, watched, taken = [0], [0], [0]

    before, took = worker_stats.Pass.before, OwnTime.took

    def slow(watch: Any, iterator: Any) -> None:
        before(watch, iterator)
        watched[0] += 1
        now[0] += 1_000

    def counted(own: OwnTime, began: int, ns: int, *more: int) -> None:
        took(own, began, ns, *more)
        taken[0] += own.ns - ns

    with torch_loop.attach(functions=False, gpu=False, skip_first=0, log_every=0) as loop:
        model, optimizer = made()
        batches = iter(torch.utils.data.DataLoader([torch.ones(4)] * 400, batch_size=2))
        train(model, optimizer, islice(batches, 20))
        assert run_of(loop.profiler).switch_sections(False)
        train(model, optimizer, islice(batches, 12))
        for module in (torch_data, own_time):
            monkeypatch.setattr(module, "clock", lambda: now[0])
        monkeypatch.setattr(worker_stats.Pass, "before", slow)
        monkeypatch.setattr(OwnTime, "took", counted)
        train(model, optimizer, islice(batches, 160))
        monkeypatch.undo()
    assert watched[0] == 20
    assert taken[0] == 20 * 1_000


def hooks_of_optimizers() -> list[Any]:
    module = sys.modules["torch.optim.optimizer"]
    both = (module._global_optimizer_pre_hooks, module._global_optimizer_post_hooks)
    return [type(hook) for hooks in both for hook in hooks.values()]


def test_hooks_in_c_stand_in_only_while_steps_are_plain() -> None:
    built_in, bound = type(len), type(Phases.here.__get__(object()))
    before = hooks_of_optimizers()
    with torch_loop.attach(functions=False, gpu=False, skip_first=0) as loop:
        switch = run_of(loop.profiler).switch_sections
        model, optimizer = made()
        train(model, optimizer, data(20))
        assert hooks_of_optimizers().count(bound) == before.count(bound) + 2
        assert switch(False)
        train(model, optimizer, data(20))
        train(model, optimizer, islice(data(20), 5))
        assert hooks_of_optimizers().count(built_in) == before.count(built_in) + 2
        assert switch(True)
        assert hooks_of_optimizers().count(bound) == before.count(bound) + 2
        assert switch(False)
        train(model, optimizer, islice(data(20), 5))
        del optimizer
        gc.collect()
        assert hooks_of_optimizers().count(bound) == before.count(bound) + 2
    assert hooks_of_optimizers() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_no_plain_steps() -> None:
    with torch_loop.attach(functions=False, gpu=False, skip_first=0) as loop:
        model, optimizer = made()
        train(model, optimizer, data(20))
        assert run_of(loop.profiler).switch_sections(False)
        train(model, optimizer, islice(data(20), 5))
        child = os.fork()
        if not child:
            code = 1
            try:
                train(model, optimizer, data(6))
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        train(model, optimizer, islice(data(20), 5))
    assert loop.report().in_phase("all").steps.count == 20


def test_without_a_run_of_torch_nothing_is_switched() -> None:
    with fastprof.Profiler(functions=False, gpu=False) as profiler:
        assert not run_of(profiler).switch_sections(False)
