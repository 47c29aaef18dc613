"""Phases of the run in integrations: the phases of planted sleeps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fastprof import profile_section  # noqa: E402
from fastprof.integrations import torch_loop  # noqa: E402
from programs.run_phases import RunPhases  # noqa: E402
from trainer_kit import DictItems, Items, Net, Planted, SlowSGD, mean_loss  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

OPTIONS: dict[str, Any] = {"functions": False, "skip_first": 0, "gpu": False}


@pytest.fixture
def run(monkeypatch) -> RunPhases:
    phases = RunPhases()
    sleep = Planted.sleep

    def noted(planted: Planted, what: str, ms: float) -> None:
        phases.note(what)
        sleep(planted, what, 1)

    monkeypatch.setattr(Planted, "sleep", noted)
    return phases


def loader(planted: Planted, batches: int, what: str = "data") -> Any:
    return torch.utils.data.DataLoader(Items(planted, batches, 1, what), batch_size=1)


def hf_trainer(planted: Planted, tmp_path: Any) -> Any:
    transformers = pytest.importorskip("transformers")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(planted)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
            out = self.net(x)
            return {"loss": mean_loss(out, planted), "out": out}

    class Saves(transformers.Trainer):
        def save_model(self, *args: Any, **kwargs: Any) -> None:
            planted.sleep("save", 1)
            super().save_model(*args, **kwargs)

    class Between(transformers.TrainerCallback):
        def on_epoch_end(self, *args: Any, **kwargs: Any) -> None:
            planted.sleep("epoch_end", 1)

        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            planted.sleep("train_begin", 1)

    model = Model()
    return Saves(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path),
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            per_device_train_batch_size=1,
            per_device_eval_batch_size=1,
            num_train_epochs=2,
            eval_strategy="steps",
            eval_steps=2,
            save_strategy="steps",
            save_steps=2,
            max_grad_norm=0,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        ),
        train_dataset=DictItems(planted, 4, 1),
        eval_dataset=DictItems(planted, 3, 1, "val_data"),
        optimizers=(SlowSGD(model.parameters(), planted), None),
        callbacks=[Between()],
    )


def test_transformers(run, tmp_path) -> None:
    pytest.importorskip("accelerate")
    from fastprof.integrations.transformers import attach

    t = hf_trainer(Planted(), tmp_path)
    profiling = attach(t, **OPTIONS)
    t.train()
    assert profiling.report().steps.count == 8
    assert run.seen == Counter(
        {
            ("setup", "train_begin"): 1,
            ("steps", "data"): 8,
            ("steps", "forward"): 8,
            ("steps", "loss"): 8,
            ("steps", "backward"): 8,
            ("steps", "optimizer"): 8,
            ("validation", "val_data"): 12,
            ("validation", "val_forward"): 12,
            ("validation", "loss"): 12,
            ("checkpoint", "save"): 4,
            ("outside", "epoch_end"): 2,
        }
    )


def test_a_trainer_that_nobody_attached_to(run, tmp_path) -> None:
    pytest.importorskip("accelerate")
    t = hf_trainer(Planted(), tmp_path)
    with torch_loop.attach(**OPTIONS) as loop:
        t.train()
    report = loop.report().in_phase("all")
    assert report.steps.count == 8
    assert report.section("forward").count == 8 + 12
    assert report.section("eval").count == 4
    loaders = {(row.split, row.name): row.batches for row in report.loaders if row.batches}
    assert loaders == {("train", "loader0"): 8, ("val", "loader0"): 12}
    assert run.seen["validation", "val_forward"] == 12
    assert run.seen["validation", "val_data"] == 12
    for what in ("data", "forward", "backward", "optimizer"):
        assert run.seen["steps", what] == 8
    assert run.seen["setup", "train_begin"] == 1
    assert run.seen["outside", "epoch_end"] + run.seen["validation", "epoch_end"] == 2


def test_lightning(run, tmp_path) -> None:
    pl = pytest.importorskip("lightning.pytorch")
    from fastprof.integrations.lightning import FastprofProfiler

    planted = Planted()

    class Job(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(planted)

        def training_step(self, batch: Any, index: int) -> Any:
            return mean_loss(self.net(batch), planted)

        def validation_step(self, batch: Any, index: int) -> None:
            self.net(batch)

        def on_save_checkpoint(self, checkpoint: Any) -> None:
            planted.sleep("save", 1)

        def on_train_epoch_end(self) -> None:
            planted.sleep("epoch_end", 1)

        def on_fit_start(self) -> None:
            planted.sleep("fit_start", 1)

        def configure_optimizers(self) -> Any:
            return SlowSGD(self.parameters(), planted)

    t = pl.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=1,
        default_root_dir=tmp_path,
        profiler=FastprofProfiler(**OPTIONS),
        val_check_interval=2,
    )
    t.fit(Job(), loader(planted, 4), loader(planted, 3, "val_data"))
    assert t.profiler.report().steps.count == 8
    assert run.seen.pop(("outside", "epoch_end")) == 2
    saved = {key: n for key, n in run.seen.items() if key[1] == "save"}
    assert set(saved) == {("checkpoint", "save")}
    del run.seen["checkpoint", "save"]
    assert run.seen == Counter(
        {
            ("setup", "fit_start"): 1,
            ("steps", "data"): 8,
            ("steps", "forward"): 8,
            ("steps", "loss"): 8,
            ("steps", "backward"): 8,
            ("steps", "optimizer"): 8,
            ("validation", "val_data"): 1 + 12,
            ("validation", "val_forward"): 1 + 12,
        }
    )


def test_accelerate(run, tmp_path) -> None:
    accelerate = pytest.importorskip("accelerate")
    from fastprof.integrations.accelerate import attach

    planted = Planted()
    accelerator = accelerate.Accelerator(cpu=True)
    net = Net(planted)
    model, optimizer, batches, held_out = accelerator.prepare(
        net, SlowSGD(net.parameters(), planted), loader(planted, 4), loader(planted, 3, "val_data")
    )
    with attach(accelerator, **OPTIONS) as profiling:
        planted.sleep("prepare", 1)
        for _ in range(2):
            for batch in batches:
                accelerator.backward(mean_loss(model(batch), planted))
                optimizer.step()
                optimizer.zero_grad()
            planted.sleep("epoch_end", 1)
            model.eval()
            with torch.no_grad():
                for batch in held_out:
                    model(batch)
            model.train()
            accelerator.save_state(str(tmp_path / "state"))
            accelerator.save(net.state_dict(), str(tmp_path / "model.pt"))
    assert profiling.report().steps.count == 8
    assert profiling.report().in_phase("all").section("checkpoint").count == 4
    assert run.seen == Counter(
        {
            ("setup", "prepare"): 1,
            ("steps", "data"): 8,
            ("steps", "forward"): 8,
            ("steps", "loss"): 8,
            ("steps", "backward"): 8,
            ("steps", "optimizer"): 8,
            ("outside", "epoch_end"): 2,
            ("validation", "val_data"): 6,
            ("validation", "val_forward"): 6,
        }
    )
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()


def test_what_follows_a_model_that_returns_its_loss_is_not_forward(run) -> None:
    accelerate = pytest.importorskip("accelerate")
    from fastprof.integrations.accelerate import attach

    planted = Planted()

    class WithLoss(Net):
        def forward(self, x: torch.Tensor) -> Any:
            return {"loss": super().forward(x).mean()}

    accelerator = accelerate.Accelerator(cpu=True)
    net = WithLoss(planted)
    model, optimizer, batches = accelerator.prepare(
        net, SlowSGD(net.parameters(), planted), loader(planted, 4)
    )
    with attach(accelerator, **OPTIONS) as profiling:
        for batch in batches:
            loss = model(batch)["loss"]
            assert not profile_section("forward").phase_is_open()
            accelerator.backward(loss)
            optimizer.step()
    assert profiling.report().in_phase("all").section("forward").count == 4
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()


def test_a_loader_for_validation_that_is_read_beside_training(run) -> None:
    import fastprof

    with fastprof.Profiler(**OPTIONS) as prof:
        held_out = iter(prof.loader([1, 2, 3, 4], "held_out", split="val"))
        for _ in prof.loader([1, 2, 3], "main"):
            run.note("train")
            next(held_out)
            run.note("evaluate")
            prof.step()
    assert run.seen["validation", "evaluate"] == 3
    assert run.seen["validation", "train"] == 0


def test_batches_that_were_collected_before_training_are_worked_on_in_steps(run) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch_loop.attach(**OPTIONS) as loop:
        batches = list(torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=1))
        for _ in range(2):
            for batch in batches:
                run.note("get_batch")
                model(batch).sum().backward()
                optimizer.step()
    assert loop.profiler.steps == 8
    # The first batch may be read ahead at the end of an epoch, and so may the next.
    assert run.seen["steps", "get_batch"] == 6
    assert run.seen["outside", "get_batch"] == 2


@pytest.mark.parametrize("ends", ["in validation", "between epochs"])
def test_a_run_that_goes_on_without_the_hooks_is_in_steps(run, ends) -> None:
    import fastprof

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=1)
    with fastprof.Profiler(**OPTIONS) as prof:
        loop = torch_loop.attach(prof)
        for batch in data:
            model(batch).sum().backward()
            optimizer.step()
        if ends == "in validation":
            model.eval()
            with torch.no_grad():
                model(next(iter(data)))
        loop.detach()
        run.note("program")
        prof.step()
    assert run.seen["steps", "program"] == 1
