"""Loggers that write files, and other loggers with stand-ins for their packages."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastprof import loggers

FIRST = {"profile/train/dl_main/time_data_ms": 1.5, "profile/train/time_batch_wait_ms": 2.0}
SECOND = {"profile/val/dl_main/time_data_ms": 0.25, "profile/train/dl_main/time_data_ms": 3.0}


def test_every_logger_takes_metrics_and_a_step() -> None:
    for name in loggers.__all__:
        assert callable(getattr(loggers, name).log_metrics)
    assert set(loggers.__all__) <= set(dir(loggers))
    with pytest.raises(AttributeError, match="Nonsense"):
        loggers.Nonsense  # noqa: B018


def test_json_lines(tmp_path: Path) -> None:
    log = loggers.JSONLines(tmp_path / "metrics.jsonl")
    log.log_metrics(FIRST, 50)
    log.log_metrics({**SECOND, "nan": float("nan")}, 100)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": 50, **FIRST},
        {"step": 100, **SECOND, "nan": None},
    ]


def test_json_lines_has_texts(tmp_path: Path) -> None:
    log = loggers.JSONLines(tmp_path / "metrics.jsonl")
    log.log_change('since step 12,401 "data" +8 ms', 12450)
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line) == {"step": 12450, "text": 'since step 12,401 "data" +8 ms'}


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    loggers.CSV(path).log_metrics(FIRST, 50)
    # A run that continues: the file already has its header.
    loggers.CSV(path).log_metrics({"a,b\n": 1, "nan": float("nan")}, 100)
    with open(path, newline="") as stream:
        rows = list(csv.reader(stream))
    assert rows == [
        ["step", "name", "value"],
        ["50", "profile/train/dl_main/time_data_ms", "1.5"],
        ["50", "profile/train/time_batch_wait_ms", "2.0"],
        ["100", "a,b\n", "1.0"],
        ["100", "nan", ""],
    ]


@pytest.mark.parametrize("make", [loggers.CSV, loggers.JSONLines, loggers.Prometheus])
def test_f41_f50_a_path_is_checked_at_once_and_kept(
    make: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bad in ("", "a\0b", 3, tmp_path):
        with pytest.raises((TypeError, ValueError, OSError)):
            make(bad)
    monkeypatch.chdir(tmp_path)
    log = make("here")
    monkeypatch.chdir("/")
    log.log_metrics(FIRST, 1)
    assert (tmp_path / "here").is_file()


@pytest.mark.parametrize("make", [loggers.CSV, loggers.JSONLines])
def test_p5_a_file_is_its_owners_and_links_are_not_followed(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    make(tmp_path / "new").log_metrics(FIRST, 1)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="link"):
        make(tmp_path / "link").log_metrics(FIRST, 1)


def test_prometheus_has_the_latest_of_each_metric(tmp_path: Path) -> None:
    path = tmp_path / "fastprof.prom"
    log = loggers.Prometheus(path, labels={"job": 'a "b"\\\n'})
    log.log_metrics(FIRST, 50)
    log.log_metrics({**SECOND, "loss/x-y": float("inf")}, 100)
    job = r'job="a \"b\"\\\n"'
    assert path.read_text() == (
        "# TYPE fastprof_loss_x_y gauge\n"
        f"fastprof_loss_x_y{{{job}}} +Inf\n"
        "# TYPE fastprof_step gauge\n"
        f"fastprof_step{{{job}}} 100\n"
        "# TYPE fastprof_time_data_ms gauge\n"
        f'fastprof_time_data_ms{{split="train",loader="main",{job}}} 3.0\n'
        f'fastprof_time_data_ms{{split="val",loader="main",{job}}} 0.25\n'
        "# TYPE fastprof_train_time_batch_wait_ms gauge\n"
        f"fastprof_train_time_batch_wait_ms{{{job}}} 2.0\n"
    )


def test_prometheus_own_parser_reads_it(tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    log = loggers.Prometheus(tmp_path / "fastprof.prom", labels={"job": 'a "b"\\\n'})
    log.log_metrics({**FIRST, "nan": float("nan")}, 50)
    families = parser.text_string_to_metric_families((tmp_path / "fastprof.prom").read_text())
    samples = {s.name: s for family in families for s in family.samples}
    data = samples["fastprof_time_data_ms"]
    assert data.labels == {"split": "train", "loader": "main", "job": 'a "b"\\\n'}
    assert data.value == 1.5
    assert samples["fastprof_step"].value == 50


@pytest.mark.parametrize(
    "labels", [{"1a": "x"}, {"a-b": "x"}, {"__x": "y"}, {"loader": "x"}, {"job": 1}]
)
def test_f50_invalid_labels(labels: Any, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match="label"):
        loggers.Prometheus(tmp_path / "x.prom", labels=labels)


class Run:
    """The part of a Weights & Biases run, or of the module mlflow, that loggers use."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def log(self, metrics: Mapping[str, float], **more: Any) -> None:
        self.calls.append((dict(metrics), more))

    def log_metrics(self, metrics: Mapping[str, float], **more: Any) -> None:
        self.calls.append((dict(metrics), more))

    def define_metric(self, *args: Any, **more: Any) -> None:
        self.calls.append((args, more))


def test_wandb_gets_all_metrics_of_a_step_in_one_call() -> None:
    run = Run()
    loggers.WandB(run).log_metrics(FIRST, 50)
    assert run.calls == [(FIRST, {"step": 50})]


def test_wandb_gets_texts() -> None:
    run = Run()
    loggers.WandB(run).log_change("since step 7", 50)
    assert run.calls == [({"fastprof/changes": "since step 7"}, {"step": 50})]


def test_wandb_with_a_separate_axis() -> None:
    run = Run()
    log = loggers.WandB(run, own_axis=True)
    log.log_metrics(FIRST, 50)
    log.log_metrics(SECOND, 100)
    assert run.calls == [
        (("profile/step",), {}),
        (("profile/*",), {"step_metric": "profile/step"}),
        ({**FIRST, "profile/step": 50}, {}),
        ({**SECOND, "profile/step": 100}, {}),
    ]


def test_wandb_finds_the_run_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(run=None)
    monkeypatch.setitem(sys.modules, "wandb", module)  # type: ignore[arg-type]
    log = loggers.WandB()
    with pytest.raises(RuntimeError, match=r"wandb\.init"):
        log.log_metrics(FIRST, 1)
    module.run = run = Run()
    log.log_metrics(FIRST, 2)
    assert run.calls == [(FIRST, {"step": 2})]
    module.run = second = Run()  # of a sweep in one process
    log.log_metrics(SECOND, 1)
    assert len(run.calls) == 1
    assert second.calls == [(SECOND, {"step": 1})]


def test_mlflow_gets_names_that_it_takes() -> None:
    module = Run()
    loggers.MLflow(module, run_id="r1").log_metrics({"profile/a:b": 1.0, "ü": 2.0}, 7)
    assert module.calls == [({"profile/a_b": 1.0, "_": 2.0}, {"step": 7, "run_id": "r1"})]


@pytest.mark.parametrize("make", [loggers.WandB, loggers.MLflow, loggers.TensorBoard])
def test_f50_something_else_is_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="expected"):
        make(3)


@pytest.mark.parametrize(
    ("make", "modules"),
    [
        (loggers.WandB, ["wandb"]),
        (loggers.MLflow, ["mlflow"]),
        (lambda: loggers.TensorBoard("x"), ["torch.utils.tensorboard", "tensorboardX"]),
    ],
)
def test_a_package_that_is_missing_is_named(
    make: Callable[[], Any], modules: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match="pip install"):
        make()
