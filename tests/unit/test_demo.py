"""fastprof.cli.demo: a real network with a problem, its finding, the fix and what it brought."""

from __future__ import annotations

import io
import itertools
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import fastprof
import pytest
from fastprof.cli import demo, demo_pure
from fastprof.results.report import build_report


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


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str, str]:
    """Return the saved run of a demo, its output and its messages."""
    path = tmp_path_factory.mktemp("demo") / "demo.fprof"
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert demo.run_demo(["--backend", "pure", "--steps", "60", "--save", str(path)]) == 0
    return path, out.getvalue(), err.getvalue()


def test_demo_shows_the_problem_the_fix_and_the_comparison(demo_run: tuple[Any, str, str]) -> None:
    path, out, err = demo_run
    problem, _, rest = out.partition("The fix, in demo_data.py:")
    fix, _, compared = rest.partition("With the fix: ")
    for part in (problem, compared):  # both networks learn, and see the same samples
        first, last = map(float, re.findall(r"60 steps, loss (\d+\.\d+) -> (\d+\.\d+)", part)[0])
        assert last < first
    assert re.findall(r"loss .*", problem)[0] == re.findall(r"loss .*", compared)[0]
    report = fastprof.load(path)
    rows = {row.name: row for row in report.steps.rows}
    assert {"data", "forward", "backward", "optimizer"} <= set(rows)
    assert max(rows, key=lambda name: rows[name].total_ns) == "data"
    # The network's own functions are the program here, without the demo that calls them, and a
    # screen with few rows has the one that computes, without its callers.  Before 3.11 code objects
    # have no qualified names.
    assert re.search(r"^ *(SearchedLabels\.)?label  demo_data\.py:\d+", problem, re.M)
    assert "run_demo" not in problem
    assert "-         return self.labels[self.names.index(name)]" in fix
    assert "+         return self.by_name[name]" in fix
    assert re.search(r"^Step time: ", compared, re.M)
    change = re.search(r"^data +\S+ +\S+ +-(\d+)%$", compared, re.M)
    assert change is not None
    assert int(change[1]) > 50
    assert "step 60: loss" in err
    assert "Training again, with the fix." in err


def test_the_planted_problem_is_found_on_a_quiet_machine(demo_run: tuple[Any, str, str]) -> None:
    path, _, _ = demo_run
    snapshot = fastprof.load(path).snapshot
    # What other programs took from the steps says nothing about the demo.
    series = replace(snapshot.steps.series, cpu_wait_ns=(), switches=(), cpu_ns=())
    split = tuple(kind for kind in snapshot.steps.split if kind[0] != "cpu_wait")
    steps = replace(snapshot.steps, series=series, split=split)
    (first, *_) = build_report(replace(snapshot, steps=steps)).findings
    assert first.rule == "data-loading"
    assert "label (demo_data.py:" in " ".join(first.fix)


def test_demo_trains_with_torch(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert demo.run_demo(["--backend", "torch", "--steps", "30"]) == 0
    out, _ = capsys.readouterr()
    assert re.search(r"^data +\S+ +\S+ +-\d+%$", out, re.M)


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
    assert re.search(r"^data +\S", out, re.M)  # shorter sections may be in "2 others"


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
    assert [limit.share(n) for n in (60, 61, 62, 63, 64)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    # A slow machine gets twice the time for as many steps as a comparison needs.
    limit = demo.Limit(None, 4.0)
    shares = [limit.share(n) for n in range(1, 9)]
    assert shares[3] == 0.5
    assert (shares[6] < 1.0, shares[7]) == (True, 1.0)


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
