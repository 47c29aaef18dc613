"""The steps are those of the thread that trains, whichever thread started the run."""

from __future__ import annotations

import threading
from collections.abc import Callable

import fastprof
import pytest

torch = pytest.importorskip("torch")

from fastprof.integrations import torch_loop  # noqa: E402
from fastprof.integrations._session.session import Session  # noqa: E402
from fastprof.report.threads import training_thread  # noqa: E402

BATCHES = 5


def train(steps: int = BATCHES, between: Callable[[], object] = lambda: None) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(2, 4)).square().mean().backward()
        between()
        optimizer.step()
        optimizer.zero_grad()


def begin(target: Callable[[], object], name: str = "training") -> threading.Thread:
    thread = threading.Thread(target=target, name=name)
    thread.start()
    return thread


def in_thread(target: Callable[[], object], name: str = "training") -> None:
    begin(target, name).join()


def attach() -> torch_loop.TorchLoop:
    return torch_loop.attach(functions=True, skip_first=0, gpu=False)


def facts(loop: torch_loop.TorchLoop) -> tuple[int, str, bool]:
    """Return the number of steps, their thread, and whether others stepped; nothing failed."""
    snapshot = loop.profiler.snapshot()
    assert not snapshot.counters
    name = snapshot.threads[training_thread(snapshot)].name
    return loop.profiler.steps, name, bool(snapshot.meta.get("torch_stepped_elsewhere"))


def counts(loop: torch_loop.TorchLoop) -> dict[str, int]:
    return {row.name: row.count for row in loop.report().in_phase("all").sections}


def test_a_thread_that_trains_has_the_steps_and_sections() -> None:
    with attach() as loop:
        in_thread(train)
    assert facts(loop) == (BATCHES, "training", False)
    # Backward shows that it trains; the first forward was before.
    assert counts(loop) == {"forward": BATCHES - 1, "backward": BATCHES, "optimizer": BATCHES}
    # The first step counts as set-up, because its begin is not known.
    assert loop.report().steps.measured == BATCHES - 1


def test_what_the_main_thread_did_before_is_in_no_step() -> None:
    data = torch.utils.data.DataLoader(torch.ones(4, 4), batch_size=2)
    model = torch.nn.Linear(4, 1)
    with attach() as loop:
        for batch in data:
            model(batch)
        in_thread(train)
    assert facts(loop) == (BATCHES, "training", False)
    assert loop.report().steps.measured == BATCHES - 1


def test_a_loader_of_a_thread_is_one_loader() -> None:
    data = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2)

    def fit() -> None:
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            for batch in data:
                model(batch).sum().backward()
                optimizer.step()

    with attach() as loop:
        in_thread(fit)
    assert facts(loop) == (8, "training", False)
    # The first batch came before the first backward.
    assert [row.batches for row in loop.report().loaders if row.batches] == [7]


def test_a_loop_without_an_optimizer_of_torch_in_a_thread() -> None:
    def fit() -> None:
        weight = torch.ones(4, requires_grad=True)
        model = torch.nn.Linear(4, 4)
        for _ in range(BATCHES):
            model(weight).sum().backward()
            with torch.no_grad():
                weight -= 0.1 * weight.grad

    with attach() as loop:
        loop._phases._has_optimizers = lambda: False  # other tests have made some
        in_thread(fit)
    assert facts(loop)[:2] == (BATCHES - 1, "training")  # the last one ends with the next forward


def test_the_main_thread_keeps_its_steps() -> None:
    with attach() as loop:
        train(1)
        in_thread(train)
        train(2)
    assert facts(loop) == (3, "MainThread", True)


def test_the_main_thread_that_is_within_its_first_step_keeps_its_steps() -> None:
    with attach() as loop:
        train(2, between=lambda: in_thread(lambda: train(1)))
    assert facts(loop) == (2, "MainThread", True)


def test_of_two_threads_the_one_that_steps_first_has_the_steps() -> None:
    with attach() as loop:
        go, done = threading.Event(), threading.Event()

        def second() -> None:
            go.wait()
            train(7)
            done.set()

        other = begin(second, "second")

        def let_it_train() -> None:
            if loop.profiler.steps == 1:
                go.set()
                done.wait()

        in_thread(lambda: train(BATCHES, let_it_train), "first")
        other.join()
    assert facts(loop) == (BATCHES, "first", True)


def test_a_thread_that_only_explains_gives_way_to_one_that_steps() -> None:
    with attach() as loop:
        in_thread(lambda: torch.nn.Linear(4, 1)(torch.ones(2, 4)).sum().backward(), "explaining")
        in_thread(train)
    assert facts(loop) == (BATCHES, "training", False)


def test_a_later_thread_with_the_same_ident_is_another_one() -> None:
    seen: set[int] = set()

    def epoch() -> None:
        seen.add(threading.get_ident())
        train()

    with attach() as loop:
        for i in range(20):
            in_thread(epoch, f"epoch{i}")
    assert facts(loop) == (BATCHES, "epoch0", True)
    assert counts(loop)["backward"] == BATCHES
    if len(seen) == 20:
        pytest.skip("the system gave each thread its own ident")


def test_attach_in_a_thread_to_a_run_of_the_main_thread() -> None:
    with fastprof.Profiler(functions=False, gpu=False, skip_first=0) as profiler:

        def fit() -> None:
            with torch_loop.attach(profiler):
                train()

        in_thread(fit)
    assert profiler.steps == BATCHES
    assert not profiler.snapshot().counters


def test_a_trainer_in_a_thread_has_the_steps_of_a_run_of_the_main_thread() -> None:
    with fastprof.Profiler(functions=False, gpu=False, skip_first=0) as profiler:

        def fit() -> None:
            session = Session({}, {}, trainer="test")
            session.start()
            for _ in range(BATCHES):
                session.begin_step()
                session.step()
            session.stop()

        in_thread(fit)
    assert profiler.steps == BATCHES
    assert not profiler.snapshot().counters


def test_operators_are_left_out_where_torch_would_print_an_error(capfd) -> None:
    schedule = fastprof.Schedule(wait=1, warmup=0, active=1)
    operators = fastprof.OperatorProfile(
        enable_cpu_profiling=True, schedule=schedule, save_dir=None
    )
    with torch_loop.attach(operators=operators, gpu=False) as loop:
        in_thread(train)
    assert capfd.readouterr().err == ""
    assert any("No operators were recorded" in note for note in loop.report().notes)
