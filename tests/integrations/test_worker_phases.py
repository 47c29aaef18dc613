"""The start and the end of a loader's worker processes are in no step, whoever trains."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import fastprof
import pytest

torch = pytest.importorskip("torch")

from fastprof.integrations import torch_loop  # noqa: E402
from fastprof.session import current  # noqa: E402
from programs.run_phases import RunPhases  # noqa: E402
from torch.utils.data import dataloader  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

OPTIONS: dict[str, Any] = {"functions": False, "skip_first": 0, "gpu": False}
EPOCHS, BATCHES = 3, 4

#: Far more than the work of a step.
SLOW_S = 0.3


class Rows(torch.utils.data.Dataset):
    def __init__(self, length: int, row: Any) -> None:
        self.length, self.row = length, row

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Any:
        return self.row


def loader(length: int = BATCHES, workers: int = 1) -> Any:
    return torch.utils.data.DataLoader(
        Rows(length, torch.ones(4)), batch_size=1, num_workers=workers
    )


def model_and_optimizer() -> tuple[Any, Any]:
    net = torch.nn.Linear(4, 1)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


class Workers:
    """Notes the phase of each start and each end of workers; may make them slow."""

    def __init__(self, monkeypatch: Any) -> None:
        self.phases = RunPhases()
        self.sleep_s = 0.0
        kind = dataloader._MultiProcessingDataLoaderIter
        starts, ends = kind.__init__, kind._shutdown_workers

        def slow_start(it: Any, *args: Any, **kwargs: Any) -> None:
            self._note("start")
            starts(it, *args, **kwargs)

        def slow_end(it: Any) -> None:
            if not it._shutdown:
                self._note("end")
            ends(it)

        monkeypatch.setattr(kind, "__init__", slow_start)
        monkeypatch.setattr(kind, "_shutdown_workers", slow_end)

    def _note(self, what: str) -> None:
        if current.running() is not None:
            self.phases.note(what)
            time.sleep(self.sleep_s)

    def seen(self, what: str) -> int:
        return sum(n for (_, name), n in self.phases.seen.items() if name == what)

    def in_steps(self, what: str) -> int:
        return self.phases.seen["steps", what]


@pytest.fixture
def workers(monkeypatch: Any) -> Workers:
    return Workers(monkeypatch)


def plain_loop() -> None:
    net, optimizer = model_and_optimizer()
    batches = loader()
    for _ in range(EPOCHS):
        for batch in batches:
            net(batch).mean().backward()
            optimizer.step()


def loop_with_break() -> None:
    net, optimizer = model_and_optimizer()
    batches = loader(2 * BATCHES)
    for _ in range(EPOCHS):
        for i, batch in enumerate(batches):
            net(batch).mean().backward()
            optimizer.step()
            if i + 1 == BATCHES:
                break


def loop_over_a_part() -> None:
    net, optimizer = model_and_optimizer()
    batches = loader(2 * BATCHES)
    for _ in range(EPOCHS):
        for batch in itertools.islice(batches, BATCHES):
            net(batch).mean().backward()
            optimizer.step()


def lightning_fit(*, manual: bool = False, part: bool = False, plugin: Any = None) -> Any:
    pl = pytest.importorskip("lightning.pytorch")

    class Job(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = not manual
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self.net(batch).mean()
            if manual:
                self.optimizers().zero_grad()
                self.manual_backward(loss)
                self.optimizers().step()
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        limit_train_batches=BATCHES if part else None,
        profiler=plugin,
    )
    trainer.fit(Job(), loader(2 * BATCHES if part else BATCHES))


def transformers_train(folder: Any, attach: Callable[..., Any] | None = None) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
            return {"loss": (self.net(x) - labels).mean()}

    trainer = transformers.Trainer(
        model=Model(),
        args=transformers.TrainingArguments(
            output_dir=str(folder),
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            per_device_train_batch_size=1,
            num_train_epochs=EPOCHS,
            save_strategy="no",
            dataloader_num_workers=1,
            dataloader_pin_memory=False,
            remove_unused_columns=False,
        ),
        train_dataset=Rows(BATCHES, {"x": torch.ones(4), "labels": torch.ones(1)}),
    )
    if attach is not None:
        attach(trainer, **OPTIONS)
    trainer.train()


def accelerate_loop(attach: Callable[..., Any] | None = None) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    try:
        net, optimizer, batches = accelerator.prepare(*model_and_optimizer(), loader())
        attached = None if attach is None else attach(accelerator, **OPTIONS)
        for _ in range(EPOCHS):
            for batch in batches:
                accelerator.backward(net(batch).mean())
                optimizer.step()
                optimizer.zero_grad()
        if attached is not None:
            attached.detach()
    finally:
        accelerate.state.AcceleratorState._reset_state(True)
        accelerate.state.GradientState._reset_state()


@pytest.mark.parametrize(
    "who",
    [
        "plain", "break", "part", "Lightning", "Lightning, manual", "Lightning, part",
        "transformers", "Accelerate",
    ],
)  # fmt: skip
def test_no_step_starts_or_ends_workers(workers: Workers, who: str, tmp_path: Any) -> None:
    trains = {
        "plain": plain_loop,
        "break": loop_with_break,
        "part": loop_over_a_part,
        "Lightning": lightning_fit,
        "Lightning, manual": lambda: lightning_fit(manual=True),
        "Lightning, part": lambda: lightning_fit(part=True),
        "transformers": lambda: transformers_train(tmp_path),
        "Accelerate": accelerate_loop,
    }[who]
    with torch_loop.attach(**OPTIONS) as loop:
        trains()
    assert loop.profiler.steps == EPOCHS * BATCHES
    assert workers.seen("start") == workers.seen("end") == EPOCHS
    assert workers.in_steps("start") == workers.in_steps("end") == 0
    assert "data_startup" not in {row.name for row in loop.report().steps.rows}


@pytest.mark.parametrize("who", ["Profiler.loader", "Lightning", "transformers", "Accelerate"])
def test_no_step_of_an_integration_does(workers: Workers, who: str, tmp_path: Any) -> None:
    if who == "Profiler.loader":
        net, optimizer = model_and_optimizer()
        batches = loader()
        with fastprof.Profiler(**OPTIONS) as prof:
            for _ in range(EPOCHS):
                for batch in prof.loader(batches, "main"):
                    net(batch).mean().backward()
                    optimizer.step()
                    prof.step()
    elif who == "Lightning":
        pytest.importorskip("lightning.pytorch")
        from fastprof.integrations.lightning import FastprofProfiler

        lightning_fit(plugin=FastprofProfiler(**OPTIONS))
    elif who == "transformers":
        pytest.importorskip("transformers")
        pytest.importorskip("accelerate")
        from fastprof.integrations import transformers

        transformers_train(tmp_path, transformers.attach)
    else:
        pytest.importorskip("accelerate")
        from fastprof.integrations import accelerate

        accelerate_loop(accelerate.attach)
    assert workers.seen("start") == workers.seen("end") == EPOCHS
    assert workers.in_steps("start") == workers.in_steps("end") == 0


def test_the_steps_at_the_ends_of_lightnings_epochs_are_not_longer(workers: Workers) -> None:
    workers.sleep_s = SLOW_S
    with torch_loop.attach(**OPTIONS) as loop:
        lightning_fit()
    steps = loop.report().steps
    assert steps.measured == EPOCHS * BATCHES
    assert steps.max_ms < SLOW_S * 1e3
    outside = next(row for row in loop.report().phases if row.name == "outside")
    assert outside.wall_ms > (2 * EPOCHS - 2) * SLOW_S * 1e3


def test_workers_that_every_step_starts_are_part_of_it(workers: Workers) -> None:
    workers.sleep_s = 0.05
    net, optimizer = model_and_optimizer()
    batches = loader()
    with torch_loop.attach(**OPTIONS) as loop:
        for _ in range(6):
            net(next(iter(batches))).mean().backward()
            optimizer.step()
    assert workers.in_steps("start") >= 4
    assert workers.in_steps("end") >= 4
    assert loop.report().steps.p50_ms > 100


def test_the_end_of_a_validation_loaders_workers_is_validation(workers: Workers) -> None:
    net, optimizer = model_and_optimizer()
    batches, held_out = loader(workers=0), loader()
    with torch_loop.attach(**OPTIONS):
        for _ in range(EPOCHS):
            for batch in batches:
                net(batch).mean().backward()
                optimizer.step()
            net.eval()
            with torch.no_grad():
                for batch in held_out:
                    net(batch)
            net.train()
    assert workers.phases.seen["validation", "start"] == EPOCHS
    assert workers.phases.seen["validation", "end"] == EPOCHS


def test_the_loaders_methods_are_torchs_own_after_the_run(workers: Workers) -> None:
    kind = dataloader._MultiProcessingDataLoaderIter
    before = kind.__init__, kind._shutdown_workers, kind._get_data
    with torch_loop.attach(**OPTIONS):
        plain_loop()
        assert kind._shutdown_workers is not before[1]
    assert (kind.__init__, kind._shutdown_workers, kind._get_data) == before
