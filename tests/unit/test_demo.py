"""fastprof.cli.demo: a real network that learns, with its report and metric lines."""

from __future__ import annotations

import io
import itertools
import re
import sys
from types import SimpleNamespace
from typing import Any

import fastprof
import pytest
from fastprof.cli import demo, demo_pure


def _learn(task: demo.Task, steps: int) -> list[float]:
    losses = []
    for batch in itertools.islice(demo._endless(task.batches), steps):
        loss = task.loss(batch)
        loss.backward()
        task.update()
        losses.append(loss.item())
    return losses


def test_pure_gradients_are_the_numerical_derivatives() -> None:
    network = demo_pure.Network(seed=3)
    batch = next(iter(demo_pure.HalfMoons(seed=4)))
    network.loss(batch).backward()
    for layer in network.layers:
        if not isinstance(layer, demo_pure.Linear):
            continue
        for row, slopes in zip(layer.weight, layer.weight_gradient, strict=True):
            exact = list(slopes)
            for j in (0, len(row) - 1):
                kept, h = row[j], 1e-6
                row[j] = kept + h
                above = network.loss(batch).item()
                row[j] = kept - h
                below = network.loss(batch).item()
                row[j] = kept
                assert exact[j] == pytest.approx((above - below) / (2 * h), rel=1e-4, abs=1e-8)
        for i, slope in enumerate(list(layer.bias_gradient)):
            kept, h = layer.bias[i], 1e-6
            layer.bias[i] = kept + h
            above = network.loss(batch).item()
            layer.bias[i] = kept - h
            below = network.loss(batch).item()
            layer.bias[i] = kept
            assert slope == pytest.approx((above - below) / (2 * h), rel=1e-4, abs=1e-8)


def test_pure_network_learns() -> None:
    losses = _learn(demo_pure.PureTask(), 200)
    assert sum(losses[-10:]) < 0.3 * sum(losses[:10])


def test_torch_network_learns() -> None:
    pytest.importorskip("torch")
    from fastprof.cli.demo_torch import TorchTask

    losses = _learn(TorchTask(), 60)
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


def test_demo_prints_the_report_and_the_metric_lines(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "demo.fprof"
    assert demo.run_demo(["--backend", "pure", "--steps", "60", "--save", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "60 steps, loss " in out
    first, last = map(float, re.findall(r"loss (\d+\.\d+) -> (\d+\.\d+)", out)[0])
    assert last < first
    # The text leaves out sections with almost no time, and on a busy machine two of the four are.
    rows = {row.name for row in fastprof.load(path).steps.rows}
    assert {"data", "forward", "backward", "optimizer"} <= rows
    for section in ("forward", "backward"):
        assert re.search(rf"^{section} +\d", out, re.M), section
    for phase in ("data", "forward", "backward", "optimizer"):
        assert re.search(rf"^profile/train/dl_main/time_{phase}_ms: \d+\.\d\d$", out, re.M), phase
    assert "step 60: loss" in err
    assert "profile/" not in err
    # The network's own functions are in the table, because they are the program here.  Before 3.11
    # code objects have no qualified names.
    assert re.search(r"^ +(Network\.)?backward  demo_pure\.py:\d+", out, re.M)


def test_demo_trains_with_torch(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert demo.run_demo(["--backend", "torch", "--steps", "30"]) == 0
    out, _ = capsys.readouterr()
    assert "profile/train/dl_main/time_backward_ms: " in out


def test_saved_demo_can_be_loaded(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "demo.fprof"
    assert demo.run_demo(["--backend", "pure", "--steps", "5", "--save", str(path)]) == 0
    report = fastprof.load(path)
    assert report.in_phase("all").section("forward").count == 5
    assert str(path) in capsys.readouterr().out


def test_demo_that_cannot_be_saved_still_shows_its_report(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "missing" / "demo.fprof"
    assert demo.run_demo(["--backend", "pure", "--steps", "5", "--save", str(path)]) == 1
    out, err = capsys.readouterr()
    assert "5 steps, loss" in out
    assert "not saved" in err
    assert not path.exists()


def test_interrupted_demo_shows_what_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupts(demo.Progress):
        def show(self, share: float, step: int, loss: float) -> None:
            if step == 4:
                raise KeyboardInterrupt

    monkeypatch.setattr(demo, "Progress", Interrupts)
    assert demo.run_demo(["--backend", "pure", "--steps", "50"]) == 130
    out, _ = capsys.readouterr()
    assert "4 steps, loss" in out
    assert "forward" in out


def test_demo_without_torch_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fastprof.cli.demo_torch", None)
    assert demo.run_demo(["--backend", "torch", "--steps", "5"]) == 1
    assert "--backend pure" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--steps", "0"], ["--seconds", "0"], ["--seconds", "nan"], ["--backend", "jax"], ["x"]],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        demo.run_demo(arguments)
    assert caught.value.code == 2
    assert "fastprof demo" in capsys.readouterr().err


def test_limit_of_steps_and_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [demo.Limit(4, 1.0).share(n) for n in (1, 4, 9)] == [0.25, 1.0, 1.0]
    clock = itertools.count(100.0, 1.0)
    monkeypatch.setattr(demo, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    limit = demo.Limit(None, 4.0)
    assert [limit.share(n) for n in (1, 2, 3, 4, 5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_progress_is_a_few_lines() -> None:
    stream = io.StringIO()
    progress = demo.Progress(stream)
    for step in range(1, 1001):
        progress.show(step / 1000, step, 0.5)
    lines = stream.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "step 1",
        "step 250",
        "step 500",
        "step 750",
        "step 1000",
    ]
