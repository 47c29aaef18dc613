"""Steps of trainers without automatic sections: everything else is recorded as with them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fastprof.session import current  # noqa: E402
from fastprof.session.part import Part  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torch_programs import counted_calls  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

#: Sections that steps have only where they are wanted.
SWITCHED = {"forward", "backward", "optimizer", "callbacks", "clip_grad", "h2d", "logging"}

#: The first steps, and those of the test that counts calls.
STEPS = (*range(1, 31), 70)

AtStep = Callable[[int], None]


class Watcher(Part):
    """Calls a function after these steps, as the run calls its parts."""

    def __init__(self, at_step: AtStep) -> None:
        self.call = at_step

    def next_step(self, count: int) -> int:
        return next((step for step in STEPS if step > count), sys.maxsize)

    def at_step(self, count: int) -> None:
        self.call(count)


def options(**more: Any) -> dict[str, Any]:
    return {"functions": False, "gpu": False, "skip_first": 0, "log_every": 0, **more}


def watch(at_step: AtStep) -> None:
    running: Any = current.running()
    running.parts.append(Watcher(at_step))


def lightning(at_step: AtStep, steps: int, tmp_path: Path) -> Any:
    pl = pytest.importorskip("lightning.pytorch")
    from fastprof.integrations.lightning import FastprofProfiler

    class Job(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.net(batch).sum()

        def validation_step(self, batch: Any, index: int) -> None:
            self.net(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    class Begins(pl.Callback):  # type: ignore[misc, name-defined]
        def on_train_start(self, *_: Any) -> None:
            watch(at_step)

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step in (5, 12, 19):
                trainer.save_checkpoint(tmp_path / "model.ckpt")

    profiler = FastprofProfiler(**options())
    data = DataLoader(torch.ones(steps // 3, 4), batch_size=1)
    pl.Trainer(
        profiler=profiler, callbacks=[Begins()], accelerator="cpu", max_epochs=3, logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        num_sanity_val_steps=0, default_root_dir=tmp_path,
    ).fit(Job(), data, DataLoader(torch.ones(3, 4), batch_size=1))  # fmt: skip
    return profiler.profiler


class Pairs(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Any:
        return {"x": torch.ones(4), "labels": torch.ones(1)}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def forward(self, x: Any, labels: Any) -> Any:
        out = self.net(x)
        return {"loss": (out - labels).pow(2).mean(), "out": out}


def made_by_transformers(at_step: AtStep, steps: int, tmp_path: Path, callbacks: Any) -> Any:
    transformers = pytest.importorskip("transformers")

    class Begins(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 0:
                watch(at_step)

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), use_cpu=True, report_to="none", disable_tqdm=True,
        per_device_train_batch_size=1, num_train_epochs=3, logging_steps=1000,
        eval_strategy="steps", eval_steps=steps // 2, save_strategy="steps",
        save_steps=steps // 2 + 1, remove_unused_columns=False,
        dataloader_pin_memory=False,
    )  # fmt: skip
    return transformers.Trainer(
        model=Model(), args=arguments, train_dataset=Pairs(steps // 3), eval_dataset=Pairs(3),
        callbacks=[Begins(), *callbacks],
    )  # fmt: skip


def attached_transformers(at_step: AtStep, steps: int, tmp_path: Path) -> Any:
    trainer = made_by_transformers(at_step, steps, tmp_path, [])
    from fastprof.integrations.transformers import attach

    attached = attach(trainer, **options())
    trainer.train()
    return attached.profiler


def transformers_callback(at_step: AtStep, steps: int, tmp_path: Path) -> Any:
    pytest.importorskip("transformers")
    from fastprof.integrations.transformers import FastprofCallback

    callback = FastprofCallback(**options())
    made_by_transformers(at_step, steps, tmp_path, [callback]).train()
    return callback.profiler


def accelerated(at_step: AtStep, steps: int, tmp_path: Path) -> Any:
    accelerate = pytest.importorskip("accelerate")
    from fastprof.integrations.accelerate import attach

    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model, optimizer, data, held_out = accelerator.prepare(
        model, optimizer,
        DataLoader(torch.ones(steps // 3, 4), batch_size=1),
        DataLoader(torch.ones(3, 4), batch_size=1),
    )  # fmt: skip
    with attach(accelerator, val_loaders={"held": held_out}, **options()) as attached:
        watch(at_step)
        for _ in range(3):
            model.train()
            for batch in data:
                accelerator.backward(model(batch).sum())
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                for batch in held_out:
                    model(batch)
            accelerator.save(model.state_dict(), tmp_path / "model.pt")
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()
    return attached.profiler


TRAINERS = (lightning, attached_transformers, transformers_callback, accelerated)


def recorded(trainer: Any, wanted: Callable[[int], bool], tmp_path: Path) -> tuple[Any, Any]:
    """Return the report of the run, and all that must not depend on ``wanted``."""
    done: list[bool] = []

    def at_step(count: int) -> None:
        run: Any = current.running()
        done.append(run.switch_sections(wanted(count)))

    profiler = trainer(at_step, 30, tmp_path)
    assert done
    assert all(done)
    report, snapshot = profiler.report(), profiler.snapshot()
    assert snapshot.counters == {}
    phases = {
        phase.name: {row.name: row.count for row in report.in_phase(phase.name).sections}
        for phase in report.phases
    }
    for row in phases.values():
        # A callback that saves goes on when the checkpoint ends.
        for name in {"callbacks"} if {"eval", "checkpoint"} & set(row) else SWITCHED:
            row.pop(name, None)
    same = {
        "steps": snapshot.steps.count,
        "loaders": {(row.name, row.split): row.batches for row in snapshot.loaders},
        "phases": phases,
    }
    return report, same


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("every", [0, 2, 5])
def test_what_is_no_automatic_section_does_not_depend_on_the_switch(
    trainer, every, tmp_path
) -> None:
    (tmp_path / "first").mkdir()
    whole, expected = recorded(trainer, lambda count: True, tmp_path / "first")
    report, found = recorded(trainer, lambda count: bool(every) and count % every == 0, tmp_path)
    assert found == expected
    assert found["steps"] == 30
    steps = report.in_phase("all").steps
    for name in ("forward", "backward", "optimizer"):
        rows = [r.steps for r in steps.rows if r.name == name]
        # The first step, and those that begin where sections are wanted.
        assert rows == [1 + (len(range(every, 30, every)) if every else 0)], name
        assert [r.steps for r in whole.in_phase("all").steps.rows if r.name == name] == [30]


#: Calls of fastprof's functions in a plain step: measured, and some to spare.
MOST = {
    lightning: 24, attached_transformers: 52, transformers_callback: 52, accelerated: 52,
}  # fmt: skip


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_plain_step_makes_few_calls_of_fastprof(trainer, tmp_path) -> None:
    """Calls are most of its cost."""
    calls, count = counted_calls()

    def at_step(number: int) -> None:
        if number == 10:
            run: Any = current.running()
            assert run.switch_sections(False)
        elif number == 30:
            sys.setprofile(count)
        elif number == 70:
            sys.setprofile(None)

    trainer(at_step, 300, tmp_path)
    calls.pop("call", None)
    assert not {"_switch", "section", "__enter__"} & {name for name, n in calls.items() if n > 25}
    assert sum(calls.values()) / 40 < MOST[trainer], calls.most_common(50)
