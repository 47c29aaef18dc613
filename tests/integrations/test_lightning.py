"""Lightning with both import names: sections and their times, against planted sleeps."""

from __future__ import annotations

import gc
import importlib
import pickle
import re
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import fastprof  # noqa: E402
import fastprof.integrations.lightning as adapter  # noqa: E402
from helpers import run_command  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from trainer_kit import Items, Net, Planted, SlowSGD, mean_loss, rows_add_up  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

TRAIN = [f"profile/train/dl_loader0/time_{p}_ms" for p in ("data", "forward", "backward")]
TRAIN += [
    "profile/train/dl_loader0/time_optimizer_ms",
    "profile/train/dl_loader0/time_batch_wait_ms",
    "profile/train/time_batch_wait_ms",
]
VAL = [f"profile/val/dl_loader0/time_{p}_ms" for p in ("data", "forward")]


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def pl(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


@pytest.fixture
def planted() -> Planted:
    return Planted()


class Recorded:
    """Creates a Lightning logger that keeps its input."""

    def __init__(self, pl: Any) -> None:
        base = importlib.import_module(f"{pl.__name__}.loggers.logger").Logger
        self.calls: list[tuple[dict[str, float], int]] = []

        calls = self.calls

        class Keep(base):  # type: ignore[misc, valid-type]
            name, version = "kept", 0

            def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
                pass

            def log_metrics(self, metrics: dict[str, float], step: int) -> None:
                calls.append((dict(metrics), step))

        self.logger = Keep()

    def profile(self) -> list[tuple[dict[str, float], int]]:
        return [c for c in self.calls if any(k.startswith("profile/") for k in c[0])]


def module(pl: Any, planted: Planted, **methods: Any) -> Any:
    class Job(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(planted)

        def training_step(self, batch: Any, index: int) -> Any:
            return mean_loss(self.net(batch), planted)

        def validation_step(self, batch: Any, index: int, dataloader_idx: int = 0) -> None:
            mean_loss(self.net(batch), planted, what="val_loss")

        def configure_optimizers(self) -> Any:
            return SlowSGD(self.parameters(), planted)

    for name, method in methods.items():
        setattr(Job, name, method)
    return Job()


def trainer(pl: Any, tmp_path: Any, **options: Any) -> Any:
    quiet = {
        "accelerator": "cpu",
        "max_epochs": 1,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "num_sanity_val_steps": 0,
        "default_root_dir": tmp_path,
    }
    return pl.Trainer(**{**quiet, **options})


def loader(planted: Planted, batches: int, ms: float = 10, what: str = "data") -> Any:
    return DataLoader(Items(planted, batches, ms, what), batch_size=1)


def profiler(**options: Any) -> Any:
    return adapter.FastprofProfiler(functions=False, skip_first=0, log_every=1, **options)


def test_s4_02_each_phase_has_the_time_planted_in_it(pl, planted, tmp_path) -> None:
    class Slow(pl.Callback):
        def on_train_batch_end(self, *args: Any) -> None:
            planted.sleep("callback", 10)

        def on_before_optimizer_step(self, *args: Any) -> None:
            planted.sleep("callback", 10)

    plugin, kept = profiler(), Recorded(pl)
    t = trainer(pl, tmp_path, profiler=plugin, logger=kept.logger, callbacks=[Slow()])
    t.fit(module(pl, planted), loader(planted, 8))
    report = plugin.report().in_phase("all")
    planted.check(report.section("data"), "data", count=8)
    planted.check(report.section("forward"), "forward", "loss", count=8)
    planted.check(report.section("backward"), "backward", count=8)
    # The callback interrupts the optimizer: before it and after it.
    planted.check(report.section("optimizer"), "optimizer", count=16)
    planted.check(report.section("callbacks"), "callback", count=16)
    assert report.section("h2d").count == 8
    assert report.steps.count == 8
    rows_add_up(report)
    assert report.meta["framework"] == "lightning"
    rows = {row.name for row in report.steps.rows} - {"(fastprof)"}
    assert rows == {"data", "h2d", "forward", "backward", "optimizer", "callbacks", "(unaccounted)"}
    assert [step for _, step in kept.profile()] == list(range(1, 9))
    first, rest = kept.profile()[0][0], kept.profile()[1:]
    assert sorted(first) == sorted(k for k in TRAIN if "wait" not in k)
    assert all(sorted(values) == sorted(TRAIN) for values, _ in rest)
    values = plugin.profiler.last_metrics
    assert values["profile/train/dl_loader0/time_forward_ms"].value_ms >= 16
    assert values["profile/train/dl_loader0/time_optimizer_ms"].value_ms >= 11
    assert values["profile/train/dl_loader0/time_optimizer_ms"].count == 1


def test_s4_10_accumulation_emits_once_per_optimizer_step(pl, planted, tmp_path) -> None:
    plugin, kept = profiler(), Recorded(pl)
    t = trainer(pl, tmp_path, profiler=plugin, logger=kept.logger, accumulate_grad_batches=4)
    t.fit(module(pl, planted), loader(planted, 10))  # 4 + 4 + 2
    report = plugin.report().in_phase("all")
    assert report.steps.count == 3
    assert [step for _, step in kept.profile()] == [1, 2, 3]
    planted.check(report.section("optimizer"), "optimizer", count=3)
    planted.check(report.section("forward"), "forward", "loss", count=10)
    planted.check(report.section("backward"), "backward", count=10)
    last = plugin.profiler.last_metrics
    assert last["profile/train/dl_loader0/time_backward_ms"].count == 2
    assert last["profile/train/dl_loader0/time_optimizer_ms"].count == 1
    rows_add_up(report)


def test_s4_09_every_n_steps_and_by_default_as_the_trainer_logs(pl, planted, tmp_path) -> None:
    kept = Recorded(pl)
    plugin = adapter.FastprofProfiler(functions=False)
    t = trainer(pl, tmp_path, profiler=plugin, logger=kept.logger, log_every_n_steps=2)
    t.fit(module(pl, planted), loader(planted, 5))
    assert [step for _, step in kept.profile()] == [2, 4]


def test_s4_03_validation_inside_training_has_its_own_keys(pl, planted, tmp_path) -> None:
    plugin, kept = profiler(val_loader_names=["main", "aux"]), Recorded(pl)
    t = trainer(
        pl, tmp_path, profiler=plugin, logger=kept.logger, val_check_interval=2, max_epochs=2
    )
    t.fit(
        module(pl, planted),
        loader(planted, 4),
        [loader(planted, 3, 15, "val_data"), loader(planted, 2, 15, "val_data")],
    )
    report = plugin.report().in_phase("all")
    names = {k for values, _ in kept.profile() for k in values if k.startswith("profile/val")}
    assert names == {
        f"profile/val/dl_{n}/time_{p}_ms" for n in ("main", "aux") for p in ("data", "forward")
    }
    assert report.section("eval").count == 4
    # It is outside of steps: a step contains only training.
    assert "eval" not in {row.name for row in report.steps.rows}
    assert report.steps.count == 8
    rows_add_up(report)
    loaders = {(row.split, row.name): row for row in report.loaders}
    assert loaders["val", "main"].batches == 12
    assert loaders["val", "aux"].batches == 8
    assert loaders["train", "loader0"].batches == 8
    assert loaders["val", "main"].data_ms >= 15
    assert loaders["val", "aux"].forward_ms >= 16
    assert loaders["train", "loader0"].data_ms >= 10
    planted.check(report.section("data"), "data", "val_data", count=28)


def test_s4_12_several_training_loaders_make_one_name(pl, planted, tmp_path) -> None:
    def step(self: Any, batch: Any, index: int) -> Any:
        return mean_loss(self.net(batch["a"]) + self.net(batch["b"]), planted)

    plugin, kept = profiler(), Recorded(pl)
    t = trainer(pl, tmp_path, profiler=plugin, logger=kept.logger)
    t.fit(
        module(pl, planted, training_step=step),
        {"a": loader(planted, 4), "b": loader(planted, 2)},
    )
    assert {k.split("/")[2] for values, _ in kept.profile() for k in values} == {
        "dl_a_b",
        "time_batch_wait_ms",
    }
    planted.check(plugin.report().in_phase("all").section("data"), "data", count=4)


def test_checkpoint_and_worker_start_up_are_separate_sections(pl, planted, tmp_path) -> None:
    def slow_save(self: Any, checkpoint: Any) -> None:
        planted.sleep("checkpoint", 20)

    def slow_start(self: Any) -> Any:
        planted.sleep("startup", 30)
        return loader(planted, 4)

    plugin = profiler()
    t = trainer(pl, tmp_path, profiler=plugin, enable_checkpointing=True, max_epochs=2)
    t.fit(module(pl, planted, on_save_checkpoint=slow_save, train_dataloader=slow_start))
    report = plugin.report().in_phase("all")
    planted.check(report.section("checkpoint"), "checkpoint", count=2)
    assert report.section("loader_startup").total_ms >= planted.total("startup")
    assert report.section("loader_startup").count == 2  # created; and restarted in epoch 1
    assert {"loader_startup", "checkpoint"}.isdisjoint(r.name for r in report.steps.rows)
    rows_add_up(report)


def test_manual_optimization_has_the_same_phases(pl, planted, tmp_path) -> None:
    def init(self: Any, batch: Any, index: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = mean_loss(self.net(batch), planted)
        self.manual_backward(loss)
        optimizer.step()

    job = module(pl, planted, training_step=init)
    job.automatic_optimization = False
    plugin = profiler()
    trainer(pl, tmp_path, profiler=plugin).fit(job, loader(planted, 5))
    report = plugin.report().in_phase("all")
    assert report.steps.count == 5
    planted.check(report.section("backward"), "backward", count=5)
    planted.check(report.section("optimizer"), "optimizer", count=5)
    assert report.section("forward").total_ms >= planted.total("forward", "loss")
    per_batch = report.section("forward").total_ms / 5
    assert per_batch <= planted.total("forward", "loss") / 5 * 1.05 + 15
    rows_add_up(report)


def test_a_closure_that_runs_several_times_leaves_the_phases_apart(pl, planted, tmp_path) -> None:
    class Twice(SlowSGD):
        def step(self, closure: Any = None) -> Any:
            closure()
            return super().step(closure)

    plugin = profiler()
    job = module(pl, planted, configure_optimizers=lambda self: Twice(self.parameters(), planted))
    trainer(pl, tmp_path, profiler=plugin).fit(job, loader(planted, 3))
    report = plugin.report().in_phase("all")
    planted.check(report.section("forward"), "forward", "loss", count=6)
    planted.check(report.section("backward"), "backward", count=6)
    planted.check(report.section("optimizer"), "optimizer", count=6)
    assert report.steps.count == 3
    rows_add_up(report)


def test_an_exception_in_the_loop_ends_the_run_and_passes(pl, planted, tmp_path) -> None:
    def fails(self: Any, batch: Any, index: int) -> Any:
        if index == 2:
            raise ZeroDivisionError("planted")
        return mean_loss(self.net(batch), planted)

    plugin = profiler(output=tmp_path / "run.fprof")
    t = trainer(pl, tmp_path, profiler=plugin)
    with pytest.raises(ZeroDivisionError, match="planted"):
        t.fit(module(pl, planted, training_step=fails), loader(planted, 5))
    assert not plugin.profiler.running
    report = fastprof.load(tmp_path / "run.fprof").in_phase("all")
    assert report.section("forward").count == 3
    assert report.steps.count == 2
    assert "run" not in vars(t.fit_loop.epoch_loop.val_loop)
    assert "_teardown" not in vars(t)


def test_each_fit_is_a_run_and_validate_alone_is_one(pl, planted, tmp_path) -> None:
    plugin = profiler()
    job = module(pl, planted)
    t = trainer(pl, tmp_path, profiler=plugin)
    t.fit(job, loader(planted, 2))
    first = plugin.profiler
    t.validate(job, loader(planted, 3), verbose=False)
    assert plugin.profiler is not first
    assert first.steps == 2
    report = plugin.report().in_phase("all")
    assert report.section("eval").count == 1
    assert report.section("forward").count == 3
    assert sorted(plugin.profiler.last_metrics) == sorted(VAL)


def test_s4_01_switched_off_there_are_no_keys_and_nothing_is_touched(pl, planted, tmp_path) -> None:
    for off in ({"enabled": False}, {"profile_training": False}):
        plugin, kept = profiler(**off), Recorded(pl)
        t = trainer(pl, tmp_path, profiler=plugin, logger=kept.logger)
        t.fit(module(pl, planted), loader(planted, 2))
        assert not kept.profile()
        assert not plugin.profiler.last_metrics
        assert plugin.summary() == ""


def test_s4_08_only_the_primary_rank_logs(pl, planted, tmp_path, monkeypatch) -> None:
    from fastprof.integrations._session import session

    new = session._new_profiler
    monkeypatch.setattr(session, "_new_profiler", lambda options: new({**options, "rank": 1}))
    plugin, kept = profiler(), Recorded(pl)
    t = trainer(pl, tmp_path, profiler=plugin, logger=kept.logger)
    t.fit(module(pl, planted), loader(planted, 2))
    assert not kept.profile()
    assert plugin.profiler.last_metrics


def test_s4_18_a_failing_hook_or_logger_does_not_stop_training(
    pl, planted, tmp_path, monkeypatch, caplog
) -> None:
    plugin = profiler()
    monkeypatch.setattr(type(plugin), "_before_fetch", lambda self, action: 1 / 0, raising=True)
    t = trainer(pl, tmp_path, profiler=plugin)
    t.fit(module(pl, planted), loader(planted, 3))
    assert t.global_step == 3
    assert [r for r in caplog.records if "ZeroDivisionError" in r.getMessage()]
    assert any("ZeroDivisionError" in note for note in plugin.report().in_phase("all").notes)


def test_the_callback_does_what_the_plug_in_does(pl, planted, tmp_path) -> None:
    callback, kept = adapter.FastprofCallback(functions=False, log_every=1), Recorded(pl)
    t = trainer(pl, tmp_path, callbacks=[callback], logger=kept.logger)
    before = t.profiler
    t.fit(module(pl, planted), loader(planted, 4))
    assert t.profiler is before
    report = callback.report().in_phase("all")
    planted.check(report.section("backward"), "backward", count=4)
    planted.check(report.section("data"), "data", count=4)
    assert [step for _, step in kept.profile()] == [1, 2, 3, 4]


def test_the_callback_lets_the_trainers_own_profiler_go_on(pl, planted, tmp_path) -> None:
    callback = adapter.FastprofCallback(functions=False)
    simple = importlib.import_module(f"{pl.__name__}.profilers").SimpleProfiler()
    t = trainer(pl, tmp_path, callbacks=[callback], profiler=simple)
    t.fit(module(pl, planted), loader(planted, 3))
    assert t.profiler is simple
    actions = simple.recorded_durations
    assert len(actions["run_training_batch"]) == 3
    assert callback.report().in_phase("all").section("forward").count == 3


def test_a_run_of_the_program_is_joined(pl, planted, tmp_path) -> None:
    plugin = profiler()
    with fastprof.Profiler(functions=False) as prof:
        trainer(pl, tmp_path, profiler=plugin).fit(module(pl, planted), loader(planted, 3))
        assert prof.running
        assert plugin.profiler is prof
    assert prof.steps == 3
    assert prof.report().in_phase("all").section("backward").count == 3


def test_options_are_checked_when_it_is_made(pl) -> None:
    with pytest.raises(ValueError, match="log_every"):
        adapter.FastprofProfiler(log_every=-1)
    with pytest.raises(TypeError, match="no_such"):
        adapter.FastprofProfiler(no_such=1)


def test_it_can_be_pickled_before_and_after_a_run(pl, planted, tmp_path) -> None:
    plugin = profiler()
    copy = pickle.loads(pickle.dumps(plugin))
    trainer(pl, tmp_path, profiler=copy).fit(module(pl, planted), loader(planted, 2))
    assert copy.report().in_phase("all").steps.count == 2


def test_the_iterators_of_past_validations_are_freed_at_once(pl, planted, tmp_path) -> None:
    """Each holds worker processes, for whose exit torch waits up to 5 s."""
    made: list[weakref.ref[Any]] = []
    alive: list[int] = []

    class Loader(DataLoader):
        def __iter__(self) -> Any:
            iterator = super().__iter__()
            made.append(weakref.ref(iterator))
            return iterator

    def on_train_epoch_end(self: Any) -> None:
        alive.append(sum(ref() is not None for ref in made))

    job = module(pl, planted, on_train_epoch_end=on_train_epoch_end)
    gc.disable()
    try:
        profiler = adapter.FastprofProfiler()
        run = trainer(pl, tmp_path, profiler=profiler, max_epochs=4, num_sanity_val_steps=0)
        run.fit(
            job,
            DataLoader(Items(planted, 8, 0), batch_size=4),
            Loader(Items(planted, 8, 0), batch_size=4),
        )
    finally:
        gc.enable()
    assert len(made) == 4
    assert max(alive) <= 1


def test_the_workers_of_the_training_loader_are_watched(pl, planted, tmp_path) -> None:
    profiler = adapter.FastprofProfiler()
    run = trainer(pl, tmp_path, profiler=profiler, max_epochs=2)
    run.fit(module(pl, planted), DataLoader(Items(planted, 24, 0), batch_size=4, num_workers=2))
    train = next(row for row in profiler.report().loaders if row.split == "train")
    assert train.batches == 12
    assert train.workers is not None
    assert train.workers.workers == 2


def test_prefetching_without_a_length_counts_each_batch_once(pl, planted, tmp_path) -> None:
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            for _ in range(5):
                planted.sleep("data", 10)
                yield torch.ones(4)

    plugin = profiler()
    t = trainer(pl, tmp_path, profiler=plugin)
    t.fit(module(pl, planted), DataLoader(Stream(), batch_size=1))
    report = plugin.report().in_phase("all")
    # The first batch is fetched while the loader starts.
    assert report.section("data").count == 4
    assert report.section("loader_startup").total_ms >= planted.ms["data"][0]
    assert report.steps.count == 5


@pytest.mark.slow
def test_the_example_runs(tmp_path) -> None:
    script = Path(__file__).parents[2] / "examples" / "lightning_trainer.py"
    command = [sys.executable, "-W", "ignore", str(script), "--out", str(tmp_path)]
    out = run_command(command, timeout=300, cwd=tmp_path).check().stdout
    # 64, without three of warm-up and those that ran without the function hook.
    assert re.search(r"\b[456]\d steps of ", out), out
    # The screen has few rows; the others may be the smallest on a busy machine.
    for name in ("backward", "optimizer"):
        assert re.search(rf"^{name} +[0-9.]+ ", out, re.MULTILINE), out


def test_actions_of_the_program_are_sections(pl, planted, tmp_path) -> None:
    def training_step(self: Any, batch: Any, index: int) -> Any:
        with self.trainer.profiler.profile("my part"):
            planted.sleep("mine", 10)
        return mean_loss(self.net(batch), planted)

    class Slow(pl.Callback):
        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            trainer.profiler.start("tidy")
            planted.sleep("tidy", 10)
            trainer.profiler.stop("tidy")
            trainer.profiler.stop("tidy")  # a mistake, which harms nothing

        def on_train_end(self, trainer: Any, *args: Any) -> None:
            trainer.profiler.start("never stopped")

    plugin = profiler()
    t = trainer(pl, tmp_path, profiler=plugin, callbacks=[Slow()])
    t.fit(module(pl, planted, training_step=training_step), loader(planted, 4))
    report = plugin.report().in_phase("all")
    planted.check(report.section("my part"), "mine", count=4)
    planted.check(report.section("tidy"), "tidy", count=4)
    planted.check(report.section("forward"), "mine", "forward", "loss", count=4)
    assert report.section("never stopped").count == 1
    assert not report.notes or not any("could not" in note for note in report.notes)
    rows_add_up(report)
    # Lightning's own actions have the names they had.
    known = {"data", "h2d", "forward", "backward", "optimizer", "callbacks", "loader_startup"}
    assert {s.name for s in report.sections} == known | {"my part", "tidy", "never stopped"}
