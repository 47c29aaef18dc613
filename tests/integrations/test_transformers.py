"""transformers' Trainer: sections and their times, against planted sleeps."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import fastprof  # noqa: E402
from fastprof.integrations.transformers import FastprofCallback, attach  # noqa: E402
from helpers import run_command  # noqa: E402
from trainer_kit import (  # noqa: E402
    DictItems,
    Net,
    Planted,
    SlowSGD,
    mean_loss,
    rows_add_up,
)
from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

PHASES = ("data", "forward", "backward", "optimizer")
TRAIN = [f"profile/train/dl_loader0/time_{p}_ms" for p in (*PHASES, "batch_wait")]
TRAIN += ["profile/train/time_batch_wait_ms"]
VAL = [f"profile/val/dl_loader0/time_{p}_ms" for p in ("data", "forward")]


class Model(torch.nn.Module):
    """Computes its loss itself, like transformers' models."""

    def __init__(self, planted: Planted) -> None:
        super().__init__()
        self.net, self.planted = Net(planted), planted

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        out = self.net(x)
        loss = mean_loss(out, self.planted, what="loss" if self.training else "val_loss")
        return {"loss": loss, "out": out}


class Slow(TrainerCallback):
    """Sleeps at one event."""

    def __init__(self, planted: Planted, event: str, ms: float = 10) -> None:
        self.planted, self.ms = planted, ms
        setattr(self, event, self.wait)

    def wait(self, *args: Any, **kwargs: Any) -> None:
        self.planted.sleep("callback", self.ms)


@pytest.fixture
def planted() -> Planted:
    return Planted()


def trainer(
    planted: Planted,
    tmp_path: Any,
    batches: int,
    *,
    callbacks: Any = (),
    val: Any = None,
    kind: Any = Trainer,
    **arguments: Any,
) -> Any:
    quiet: dict[str, Any] = {
        "output_dir": str(tmp_path / "out"),
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "per_device_train_batch_size": 1,
        "per_device_eval_batch_size": 1,
        "num_train_epochs": 1,
        "save_strategy": "no",
        "logging_steps": 1,
        "max_grad_norm": 0,
        "remove_unused_columns": False,
        "dataloader_pin_memory": False,
    }
    model = Model(planted)
    return kind(
        model=model,
        args=TrainingArguments(**{**quiet, **arguments}),
        train_dataset=DictItems(planted, batches, 10),
        eval_dataset=val,
        optimizers=(SlowSGD(model.parameters(), planted), None),
        callbacks=list(callbacks),
    )


def options(**more: Any) -> dict[str, Any]:
    return {"functions": False, "skip_first": 0, **more}


def emitted(trainer: Any, split: str = "train") -> list[tuple[int, list[str]]]:
    """Return (step, keys) of every history entry with metrics of that split."""
    found = []
    for entry in trainer.state.log_history:
        keys = sorted(k for k in entry if k.startswith(f"profile/{split}/"))
        if keys:
            found.append((entry["step"], keys))
    return found


def test_s4_02_each_phase_has_the_time_planted_in_it(planted, tmp_path) -> None:
    t = trainer(planted, tmp_path, 6, callbacks=[Slow(planted, "on_log")])
    objects = (t, t.accelerator, t.callback_handler)
    before = [set(vars(x)) for x in objects]
    profiling = attach(t, loader_name="main", **options())
    t.train()
    report = profiling.report().in_phase("all")
    assert not profiling.profiler.running
    assert report.section("data").count == 6
    assert report.section("data").total_ms >= planted.total("data") * 0.999
    planted.check(report.section("forward"), "forward", "loss", count=6)
    planted.check(report.section("backward"), "backward", count=6)
    planted.check(report.section("optimizer"), "optimizer", count=6)
    assert report.section("h2d").count == 6
    assert report.section("callbacks").total_ms >= planted.total("callback") * 0.999
    assert report.steps.count == 6
    rows_add_up(report)
    assert report.meta["framework"] == "transformers"
    assert [step for step, _ in emitted(t)] == [1, 2, 3, 4, 5, 6]
    assert emitted(t)[1][1] == sorted(k.replace("loader0", "main") for k in TRAIN)
    # In the entry of the trainer's own log, not in a separate one.
    with_loss = [e for e in t.state.log_history if "loss" in e]
    assert len(with_loss) == 6
    assert all("profile/train/dl_main/time_forward_ms" in e for e in with_loss)
    # Put back exactly.
    assert [
        set(vars(x)) & {"log", "backward", "call_event", "_inner_training_loop"} for x in objects
    ] == [set(), set(), set()]
    assert set(vars(t.accelerator)) <= before[1] | {"step"}


def test_s4_10_accumulation_with_an_uneven_last_step(planted, tmp_path) -> None:
    t = trainer(planted, tmp_path, 5, gradient_accumulation_steps=2)  # 2 + 2 + 1
    profiling = attach(t, **options())
    t.train()
    report = profiling.report().in_phase("all")
    assert report.steps.count == 3
    assert [step for step, _ in emitted(t)] == [1, 2, 3]
    planted.check(report.section("forward"), "forward", "loss", count=5)
    planted.check(report.section("backward"), "backward", count=5)
    planted.check(report.section("optimizer"), "optimizer", count=3)
    last = profiling.profiler.last_metrics
    assert last["profile/train/dl_loader0/time_backward_ms"].count == 1
    # The look-ahead: two steps of two batches have read five, so the last reads none.
    assert report.section("data").count == 5
    rows_add_up(report)


def test_s4_09_by_default_metrics_come_as_the_trainer_logs(planted, tmp_path) -> None:
    t = trainer(planted, tmp_path, 5, logging_steps=2)
    attach(t, **options())
    t.train()
    assert [step for step, _ in emitted(t)] == [2, 4]


def test_s4_09_another_rhythm_has_separate_entries(planted, tmp_path) -> None:
    t = trainer(planted, tmp_path, 6, logging_steps=4)
    attach(t, **options(log_every=3))
    t.train()
    assert [step for step, _ in emitted(t)] == [3, 6]
    alone = next(e for e in t.state.log_history if e["step"] == 3)
    assert sorted(alone) == sorted([*TRAIN, "epoch", "step"])


def test_s4_03_evaluation_checkpoint_and_clipping_are_apart(planted, tmp_path) -> None:
    class Saves(Trainer):
        def save_model(self, *args: Any, **kwargs: Any) -> None:
            planted.sleep("checkpoint", 20)
            super().save_model(*args, **kwargs)

    t = trainer(
        planted,
        tmp_path,
        4,
        kind=Saves,
        val=DictItems(planted, 3, 15, "val_data"),
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        max_grad_norm=1.0,
    )
    profiling = attach(t, **options())
    t.train()
    report = profiling.report().in_phase("all")
    assert report.section("eval").count == 2
    assert report.section("eval").total_ms >= planted.total("val_data", "val_forward", "val_loss")
    assert report.section("checkpoint").count == 2
    assert report.section("checkpoint").total_ms >= planted.total("checkpoint") * 0.999
    assert report.section("clip_grad").count == 4
    assert emitted(t, "val") == [(2, VAL), (4, VAL)]
    # In the evaluation's own entry, but not in evaluate()'s result for callbacks.
    assert all("eval_loss" in e for e in t.state.log_history if VAL[0] in e)
    assert report.steps.count == 4
    assert "eval" not in {row.name for row in report.steps.rows}
    rows_add_up(report)
    loaders = {(row.split, row.name): row for row in report.loaders}
    assert loaders["val", "loader0"].batches == 6
    assert loaders["val", "loader0"].forward_ms >= 16
    assert loaders["train", "loader0"].batches == 4


def test_s4_12_several_evaluation_sets_have_their_names(planted, tmp_path) -> None:
    t = trainer(
        planted,
        tmp_path,
        2,
        val={"main": DictItems(planted, 2, 5, "val"), "aux": DictItems(planted, 1, 5, "val")},
        eval_strategy="epoch",
    )
    profiling = attach(t, **options())
    t.train()
    loaders = {
        (row.split, row.name): row.batches for row in profiling.report().in_phase("all").loaders
    }
    assert loaders == {("train", "loader0"): 2, ("val", "main"): 2, ("val", "aux"): 1}


def test_several_epochs_and_what_lies_between_them(planted, tmp_path) -> None:
    t = trainer(
        planted, tmp_path, 3, num_train_epochs=2, callbacks=[Slow(planted, "on_epoch_end", 40)]
    )
    profiling = attach(t, **options())
    t.train()
    report = profiling.report().in_phase("all")
    assert report.steps.count == 6
    rows_add_up(report)
    # Both waits are in a section, but outside of steps.
    assert report.section("callbacks").total_ms >= planted.total("callback") * 0.999
    rows = {row.name: row for row in report.steps.rows}
    assert rows["callbacks"].total_ns / 1e6 < planted.total("callback")


def test_s4_06_the_loss_is_part_of_forward(planted, tmp_path) -> None:
    class OwnLoss(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **kwargs: Any) -> Any:
            planted.sleep("own_loss", 15)
            return model(**inputs)["loss"]

    t = trainer(planted, tmp_path, 3, kind=OwnLoss)
    profiling = attach(t, **options())
    t.train()
    planted.check(
        profiling.report().in_phase("all").section("forward"),
        "forward",
        "loss",
        "own_loss",
        count=3,
    )


def test_an_exception_in_the_loop_passes_and_everything_is_put_back(planted, tmp_path) -> None:
    class Fails(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, *rest: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                raise ZeroDivisionError("planted")

    t = trainer(planted, tmp_path, 4, callbacks=[Fails()])
    profiling = attach(t, **options(output=tmp_path / "run.fprof"))
    with pytest.raises(ZeroDivisionError, match="planted"):
        t.train()
    assert not profiling.profiler.running
    assert fastprof.load(tmp_path / "run.fprof").in_phase("all").section("backward").count == 2
    assert {"log", "_inner_training_loop", "compute_loss"}.isdisjoint(vars(t))
    assert "backward" not in vars(t.accelerator)


def test_a_batch_size_that_is_found_by_trying_is_recorded_from_its_start(planted, tmp_path) -> None:
    class Tight(Trainer):
        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if len(inputs["x"]) > 2:
                raise RuntimeError("CUDA out of memory. planted")
            return super().training_step(model, inputs, *args, **kwargs)

    t = trainer(
        planted,
        tmp_path,
        8,
        kind=Tight,
        auto_find_batch_size=True,
        per_device_train_batch_size=8,
    )
    before = inspect.signature(t._inner_training_loop)
    profiling = attach(t, **options())
    assert inspect.signature(t._inner_training_loop) == before
    t.train()
    assert profiling.profiler.steps == t.state.global_step >= 4
    assert profiling.report().in_phase("all").section("forward").count == t.state.global_step


def test_the_look_ahead_is_paid_for_by_the_step_that_makes_it(planted, tmp_path) -> None:
    class OneSlow(DictItems):
        def __getitem__(self, i: int) -> Any:
            self.planted.sleep("data", 80 if i == 3 else 1)
            return {"x": torch.ones(4), "labels": torch.ones(1)}

    from torch.utils.data import SequentialSampler

    class InOrder(Trainer):
        def _get_train_sampler(self, *args: Any) -> Any:
            return SequentialSampler(self.train_dataset)

    t = trainer(planted, tmp_path, 6, kind=InOrder)
    t.train_dataset = OneSlow(planted, 6, 0)
    attach(t, **options())
    t.train()
    data = [e[TRAIN[0]] for e in t.state.log_history if TRAIN[0] in e]
    # The fourth sample is read ahead, in the third step.
    assert data[2] >= 80
    assert len(data) == 6


def test_s4_01_switched_off_there_are_no_keys_and_nothing_is_touched(planted, tmp_path) -> None:
    for off in ({"enabled": False}, {"profile_training": False}):
        t = trainer(planted, tmp_path, 2)
        before = dict(vars(t))
        attach(t, **options(**off))
        assert vars(t) == before
        t.train()
        assert not emitted(t)


def test_s4_08_only_the_primary_rank_logs(planted, tmp_path, monkeypatch) -> None:
    from fastprof.integrations._session import session

    new = session._new_profiler
    monkeypatch.setattr(session, "_new_profiler", lambda options: new({**options, "rank": 1}))
    t = trainer(planted, tmp_path, 2)
    profiling = attach(t, **options())
    t.train()
    assert not emitted(t)
    assert profiling.profiler.last_metrics


def test_s4_18_a_failing_hook_does_not_stop_training(
    planted, tmp_path, monkeypatch, caplog
) -> None:
    t = trainer(planted, tmp_path, 3)
    profiling = attach(t, **options())
    monkeypatch.setattr(profiling, "_time", lambda iterator: 1 / 0)
    t.train()
    assert t.state.global_step == 3
    assert len([r for r in caplog.records if "ZeroDivisionError" in r.getMessage()]) == 1
    assert any("ZeroDivisionError" in note for note in profiling.report().in_phase("all").notes)


def test_s4_18_a_logger_that_raises_is_switched_off(planted, tmp_path, caplog) -> None:
    def broken(values: Any, step: int) -> None:
        raise ZeroDivisionError("planted")

    t = trainer(planted, tmp_path, 3)
    attach(t, **options(logger=broken))
    t.train()
    assert t.state.global_step == 3
    assert len([r for r in caplog.records if "ZeroDivisionError" in r.getMessage()]) == 1


def test_reporters_get_the_keys_with_their_prefix(planted, tmp_path) -> None:
    from transformers.integrations import rewrite_logs

    seen: list[dict[str, Any]] = []

    class Reporter(TrainerCallback):
        def on_log(self, *args: Any, logs: Any = None, **kwargs: Any) -> None:
            seen.append(rewrite_logs(dict(logs)))

    t = trainer(planted, tmp_path, 2, callbacks=[Reporter()])
    attach(t, **options())
    t.train()
    assert "train/profile/train/dl_loader0/time_forward_ms" in seen[0]


def test_a_run_of_the_program_is_joined(planted, tmp_path) -> None:
    t = trainer(planted, tmp_path, 3)
    with fastprof.Profiler(functions=False) as prof:
        profiling = attach(t, **options())
        t.train()
        assert prof.running
        assert profiling.profiler is prof
    assert prof.steps == 3


def test_a_real_small_model_trains(planted, tmp_path) -> None:
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
    )
    rows = [{"input_ids": torch.arange(4), "labels": torch.tensor(i % 2)} for i in range(6)]
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        per_device_train_batch_size=2,
        num_train_epochs=1,
        logging_steps=1,
        save_strategy="no",
    )
    t = Trainer(
        model=transformers.BertForSequenceClassification(config),
        args=arguments,
        train_dataset=rows,
    )
    profiling = attach(t, **options())
    t.train()
    report = profiling.report().in_phase("all")
    assert [report.section(p).count for p in PHASES] == [3, 3, 3, 3]
    rows_add_up(report)


# -- the callback


def test_s4_02_the_callback_measures_the_four_phases(planted, tmp_path) -> None:
    import accelerate

    callback = FastprofCallback(**options())
    backward = accelerate.Accelerator.backward
    t = trainer(planted, tmp_path, 5, gradient_accumulation_steps=2, callbacks=[callback])
    t.train()
    report = callback.report().in_phase("all")
    assert not callback.profiler.running
    assert report.section("data").count == 5
    planted.check(report.section("forward"), "forward", "loss", count=5)
    planted.check(report.section("backward"), "backward", count=5)
    planted.check(report.section("optimizer"), "optimizer", count=3)
    assert report.steps.count == 3
    rows_add_up(report)
    assert [step for step, _ in emitted(t)] == [1, 2, 3]
    assert emitted(t)[1][1] == sorted(TRAIN)
    assert accelerate.Accelerator.backward is backward
    assert not t.model._forward_hooks


def test_s4_03_the_callback_sees_evaluation(planted, tmp_path) -> None:
    callback = FastprofCallback(**options())
    t = trainer(
        planted,
        tmp_path,
        2,
        callbacks=[callback],
        val=DictItems(planted, 3, 15, "val_data"),
        eval_strategy="epoch",
    )
    t.train()
    report = callback.report().in_phase("all")
    assert report.section("eval").count == 1
    assert emitted(t, "val") == [(2, VAL)]
    loaders = {(row.split, row.name): row.batches for row in report.loaders}
    assert loaders == {("train", "loader0"): 2, ("val", "loader0"): 3}
    rows_add_up(report)


def test_the_callback_records_each_train_anew(planted, tmp_path) -> None:
    callback = FastprofCallback(**options())
    t = trainer(planted, tmp_path, 2, callbacks=[callback])
    t.train()
    first = callback.profiler
    t.train()
    assert callback.profiler is not first
    assert callback.profiler.steps == first.steps == 2


def test_s4_01_the_callback_switched_off(planted, tmp_path) -> None:
    callback = FastprofCallback(**options(enabled=False))
    t = trainer(planted, tmp_path, 2, callbacks=[callback])
    t.train()
    assert not emitted(t)
    assert callback.profiler.steps == 0


@pytest.mark.slow
def test_the_example_runs(tmp_path) -> None:
    script = Path(__file__).parents[2] / "examples" / "transformers_trainer.py"
    command = [sys.executable, "-W", "ignore", str(script), "--out", str(tmp_path)]
    out = run_command(command, timeout=300, cwd=tmp_path).check().stdout
    assert "13 steps of " in out
    # The text leaves out sections with almost no time, which the others may be on a busy machine.
    for name in ("forward", "backward"):
        assert re.search(rf"^{name} +[0-9.]+ ", out, re.MULTILINE), out


def test_an_output_is_where_it_was_when_attached(planted, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    t = trainer(planted, tmp_path, 1)
    attach(t, **options(output="run.fprof"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    t.train()
    assert (tmp_path / "run.fprof").exists()


def test_an_output_directory_that_has_gone_does_not_stop_training(planted, tmp_path) -> None:
    (tmp_path / "gone").mkdir()
    t = trainer(planted, tmp_path, 1)
    profiling = attach(t, **options(output=tmp_path / "gone" / "run.fprof"))
    (tmp_path / "gone").rmdir()
    t.train()
    assert profiling.profiler.steps == 1
    assert any(
        "will not be saved" in note for note in profiling.report().in_phase("all").snapshot.notes
    )
