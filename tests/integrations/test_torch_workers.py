"""Loaders that are not wrapped: the automatic sections observe their workers, too."""

from __future__ import annotations

import time

import fastprof
import pytest
from fastprof.integrations import torch_loop
from fastprof.integrations._torch.data import Loaders

torch = pytest.importorskip("torch")
# Here more workers than processors are no fault.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
data = torch.utils.data


class Sleepy(data.Dataset):
    def __init__(self, length: int, ms: float = 2) -> None:
        self.length, self.ms = length, ms

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        time.sleep(self.ms / 1e3)
        return slowly_made(index)


def slowly_made(index: int):
    return torch.ones(4)


def loader(count: int, length: int = 24, **options):
    if count:
        options["multiprocessing_context"] = "fork"
    return data.DataLoader(Sleepy(length), batch_size=2, num_workers=count, **options)


def train(batches, model, optimizer) -> None:
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()


def recorded(batches, passes: int = 1, **options):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"functions": False, "gpu": False, "skip_first": 0, **options}
    with torch_loop.attach(**options) as loop:
        for _ in range(passes):
            train(batches, model, optimizer)
    return loop.profiler.snapshot()


def test_p9_batches_stay_timed_where_the_program_is_at_its_recursion_limit(monkeypatch) -> None:
    real, deep = Loaders._before, [True]

    def first_too_deep(self, iterator):
        if deep and deep.pop():
            raise RecursionError("maximum recursion depth exceeded")
        return real(self, iterator)

    monkeypatch.setattr(Loaders, "_before", first_too_deep)
    assert recorded(loader(0), 2).loaders[0].batches > 12


@pytest.mark.parametrize("count", [0, 2])
def test_s4_05_batches_are_ready_or_waited_for_without_a_wrapper(count: int) -> None:
    snapshot = recorded(loader(count, 48))
    seen = snapshot.loaders[0].workers
    assert (seen.workers, seen.batch_size, seen.processes) == (count, 2, count)
    assert seen.starts[0] == seen.firsts[0] == 1
    assert seen.ready + seen.blocked == sum(seen.depth) == (23 if count else 0)
    assert 0 <= seen.blocked_ns <= snapshot.duration_ns
    assert seen.shutdowns[0] == (1 if count else 0)
    assert snapshot.counters == {}


def test_persistent_workers_are_started_once_and_others_every_pass() -> None:
    kept = recorded(loader(1, persistent_workers=True), passes=3).loaders[0].workers
    assert (kept.starts[0], kept.resumes[0], kept.processes) == (1, 2, 1)
    again = recorded(loader(1), passes=3).loaders[0].workers
    assert (again.starts[0], again.resumes[0], again.processes) == (3, 0, 3)
    assert again.shutdowns[0] == 3


def test_f20_the_functions_of_workers_are_recorded_without_a_wrapper() -> None:
    batches = loader(2)
    snapshot = recorded(batches, functions=True, recorder={"worker_functions": True})
    assert batches.worker_init_fn is None
    (tree,) = snapshot.worker_threads
    calls = {snapshot.keys[k].name: n for k, n in zip(tree.nodes.key, tree.nodes.calls)}
    assert calls["slowly_made"] == 24


def test_a_loader_that_is_wrapped_is_watched_once() -> None:
    batches = loader(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with fastprof.Profiler(functions=False, gpu=False, skip_first=0) as prof:
        with torch_loop.attach(profiler=prof):
            train(prof.loader(batches, "main"), model, optimizer)
    (row,) = prof.snapshot().loaders
    assert row.workers.starts[0] == row.workers.firsts[0] == 1
    assert row.batches == row.workers.ready + row.workers.blocked + 1 == 12


def test_each_loader_is_compared_with_its_own_steps() -> None:
    def stage(batches, ms: float) -> None:
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in batches:
            model(batch).sum().backward()
            time.sleep(ms / 1e3)
            optimizer.step()

    short, long = loader(0, 60, shuffle=False), loader(0, 60)
    with torch_loop.attach(functions=False, gpu=False, skip_first=0) as loop:
        stage(short, 0)
        stage(long, 40)
    first, second = (row.workers for row in loop.profiler.report().loaders)
    # Divided by all steps of the run, both had the same.
    assert second.step_ms >= 40
    assert first.step_ms < second.step_ms / 2


def test_metrics_have_the_number_of_the_stage() -> None:
    seen: list[dict[str, float]] = []

    def log(values: dict[str, float], step: int) -> None:
        seen.append(values)

    def stage() -> None:
        model = torch.nn.Linear(4, 1)
        train(loader(0), model, torch.optim.SGD(model.parameters(), lr=0.1))

    with torch_loop.attach(functions=False, gpu=False, logger=log, log_every=4):
        stage()
        stage()
    numbers = [values.get("profile/train/stage") for values in seen if values]
    assert numbers[0] is None
    assert 2 in numbers
