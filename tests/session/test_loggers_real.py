"""The loggers with the real packages, offline, through a run."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof import loggers, profile_section
from fastprof.session.history.part import History
from fastprof.snapshot.history import Change

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the packages

KEYS = {
    "profile/train/dl_main/time_data_ms",
    "profile/train/dl_main/time_forward_ms",
    "profile/train/dl_main/time_batch_wait_ms",
    "profile/train/time_batch_wait_ms",
}


def train(logger: Any, **options: Any) -> fastprof.Profiler:
    prof = fastprof.Profiler(functions=False, gpu=False, logger=logger, log_every=2, **options)
    with prof:
        for _ in prof.loader(range(4), "main"):
            with profile_section("forward"):
                pass
            prof.step()
    return prof


def test_s4_19_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    prof = train(loggers.TensorBoard(tmp_path / "tb"))
    assert prof.report().notes == train(None).report().notes
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    # fastprof's cost, of steps of some microseconds, may round to nothing.
    assert set(events.Tags()["scalars"]) - {"fastprof/step/(fastprof)_ms"} == KEYS | {
        "fastprof/step_ms",
        "fastprof/step_p95_ms",
        "fastprof/step/data_ms",
        "fastprof/step/forward_ms",
        "fastprof/step/(unaccounted)_ms",
    }
    for key in KEYS:
        assert [event.step for event in events.Scalars(key)] == [2, 4]
        assert events.Scalars(key)[1].value == pytest.approx(prof.last_metrics[key].value_ms)


def test_tensorboard_shows_a_change_of_the_step_time(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with fastprof.Profiler(log_every=2, logger=loggers.TensorBoard(tmp_path / "tb")) as prof:
        say(prof, "since step 3 steps take 18.0 % longer")
        for _ in range(4):
            prof.step()
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    (event,) = events.Tensors("fastprof/changes/text_summary")
    assert event.step == 2
    assert event.tensor_proto.string_val == [b"``since step 3 steps take 18.0 % longer``"]


def say(prof: fastprof.Profiler, text: str) -> None:
    """Let the run find a change with this text."""
    history = prof._run.parts.of(History)
    history._say(Change("shift", 2, 0, before_ns=10, after_ns=20, text=text))


def run(prof: fastprof.Profiler, steps: int) -> None:
    """Run steps; the third one finds a change."""
    for i in range(steps):
        with profile_section("forward"):
            pass
        if i == 2:
            say(prof, "since step 3")
        prof.step()


def test_a_change_is_logged_once_with_the_next_metrics(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with fastprof.Profiler(log_every=2, logger=loggers.JSONLines(path)) as prof:
        run(prof, 6)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line for line in lines if "text" in line] == [{"step": 4, "text": "since step 3"}]


def test_a_change_of_the_last_steps_is_logged_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with fastprof.Profiler(log_every=50, logger=loggers.JSONLines(path)) as prof:
        prof.step()
        say(prof, "since step 1")
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "text": "since step 1"}
    ]


def test_a_logger_that_fails_with_a_change_gets_its_metrics(tmp_path: Path) -> None:
    class Takes:
        calls = 0

        def log_metrics(self, metrics: Any, step: int) -> None:
            Takes.calls += 1

        def log_change(self, text: str, step: int) -> None:
            raise OSError("the disk is full")

    with fastprof.Profiler(log_every=2, logger=Takes()) as prof:
        run(prof, 8)
    assert prof.report().steps.count == 8
    assert Takes.calls == 4
    assert any("logger failed and gets no further" in note for note in prof.report().notes)


def test_s1_36_tensorboard_shows_the_report_without_a_plugin(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    prof = train(loggers.TensorBoard(tmp_path / "tb"), skip_first=1)
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    (text,) = events.Tensors("fastprof/report/text_summary")
    assert text.step == 4
    (shown,) = text.tensor_proto.string_val
    # Its times vary, so compare only the names.
    assert shown.decode().startswith("### fastprof: ")
    assert "`forward`" in shown.decode()
    steps = prof.report().steps
    (mean,) = events.Scalars("fastprof/step_ms")
    assert (mean.step, mean.value) == (4, pytest.approx(steps.mean_ms))
    parts = [tag for tag in events.Tags()["scalars"] if tag.startswith("fastprof/step/")]
    total = sum(events.Scalars(tag)[0].value for tag in parts)
    assert total == pytest.approx(steps.mean_ms, rel=1e-5)


def test_e15_a_text_that_cannot_be_written_costs_the_training_nothing(tmp_path: Path) -> None:
    class Writer:
        def add_scalar(self, *args: Any) -> None:
            pass

        def add_text(self, *args: Any) -> None:
            raise OSError("no space left")

        def flush(self) -> None:
            pass

    prof = train(loggers.TensorBoard(Writer()))
    assert prof.report().snapshot.counters["logger_errors"] == 1


@pytest.fixture
def wandb_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    # Set it before the import: even offline wandb reports its own errors.
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb = pytest.importorskip("wandb")
    run = wandb.init(mode="offline", dir=str(tmp_path), project="fastprof-tests")
    yield run
    run.finish()


def test_s4_19_wandb(wandb_run: Any) -> None:
    prof = train(loggers.WandB())
    assert not prof.report().snapshot.counters.get("logger_errors")
    assert set(dict(wandb_run.summary)) >= KEYS
    assert wandb_run.step >= 4


def test_s4_19_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as run:
        prof = train(loggers.MLflow())
    assert not prof.report().snapshot.counters.get("logger_errors")
    client = mlflow.tracking.MlflowClient()
    for key in KEYS:
        history = client.get_metric_history(run.info.run_id, key)
        assert [metric.step for metric in history] == [2, 4]
        assert history[1].value == pytest.approx(prof.last_metrics[key].value_ms)


def test_s4_19_files(tmp_path: Path) -> None:
    train(loggers.JSONLines(tmp_path / "m.jsonl"))
    train(loggers.CSV(tmp_path / "m.csv"))
    train(loggers.Prometheus(tmp_path / "m.prom"))
    assert len((tmp_path / "m.jsonl").read_text().splitlines()) == 2
    assert len((tmp_path / "m.csv").read_text().splitlines()) == 1 + 2 * len(KEYS)
    assert "fastprof_step 4\n" in (tmp_path / "m.prom").read_text()
    assert not glob.glob(str(tmp_path / ".fastprof*"))


def test_s4_08_another_rank_logs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    train(loggers.JSONLines(tmp_path / "m.jsonl"))
    assert not (tmp_path / "m.jsonl").exists()


def test_s4_18_a_logger_that_fails_is_switched_off(tmp_path: Path) -> None:
    logger = loggers.JSONLines(tmp_path / "m.jsonl")
    (tmp_path / "m.jsonl").mkdir()
    prof = train(logger)
    assert prof.report().snapshot.counters["logger_errors"] == 1
    assert prof.report().steps.count == 4
