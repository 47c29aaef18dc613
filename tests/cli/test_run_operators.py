"""``fastprof run``: operators beside functions or alone, a number of steps, progress."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof.cli.progress import Progress
from fastprof.session.environment.step_limit import steps_wanted
from fastprof.session.output.metrics import Metric
from helpers import ChildResult, at_once, run_child

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)
ENV = {"PYTHONPATH": os.pathsep.join(filter(None, [SOURCE_PATH, os.environ.get("PYTHONPATH")]))}
COMMAND = "import sys\nfrom fastprof.cli import main\nsys.exit(main(['run', *sys.argv[1:]]))\n"

TRAIN = """
import os, sys
import torch, fastprof
torch.set_num_threads(1)

def train():
    for step in range(8):
        torch.mm(torch.ones(8, 8), torch.ones(8, 8))
        fastprof.step()

train()
print("trained", sys.argv[1:], os.environ.get("FASTPROF_STEPS"))
"""

PLAIN = """
import os, sys
import fastprof
from fastprof.session import current
seen = 0
for epoch in range(3):
    loader = range(10)
    run = current.running().profiler
    if run is not None:
        loader = run.loader(loader, "main")
    for batch in loader:
        seen += 1
        fastprof.step()
print("batches", seen, "wanted", os.environ.get("FASTPROF_STEPS"), sys.argv[1:])
"""

STATS = "train_profile.stats"
RUN = "train_profile.fprof"
HEADING = "=== TOP 25 BY CUMULATIVE TIME ==="


def fastprof_run(*args: object, cwd: Path, **options: Any) -> ChildResult:
    env = {**ENV, **options.pop("env", {})}
    return run_child(COMMAND, *map(str, args), env=env, cwd=cwd, timeout=180, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "plain.py").write_text(PLAIN)
    return tmp_path


@pytest.fixture
def needs_torch() -> None:
    pytest.importorskip("torch")


def names(folder: Path) -> set[str]:
    return {path.name for path in (folder / "fastprof_out/latest").iterdir()}


OPERATOR_FILES = {
    "prof_000_local_00_cpu_time_total.txt",
    "prof_000_local_00_self_cpu_time_total.txt",
    "prof_000_local_00_pt_trace.json.gz",
    "profile_stats.txt",
}


@pytest.mark.usefixtures("needs_torch")
def test_s0_01_both_layers_by_default(folder: Path) -> None:
    text = fastprof_run("--full", "train.py", "--lr", "1", cwd=folder).check().stdout
    assert text.startswith("trained ['--lr', '1'] None\n")
    assert names(folder) == {STATS, RUN} | OPERATOR_FILES
    assert HEADING in text
    report = fastprof.load(folder / "fastprof_out/latest" / RUN)
    assert report.operators is not None
    assert report.operators.windows == ((2, 4),)
    assert next(row.calls for row in report.operators.rows if row.name == "aten::mm") == 3
    whole = report.in_phase("all")
    assert [row.calls for row in whole.functions if row.name == "train"] == [1]


@pytest.mark.usefixtures("needs_torch")
def test_s0_02_operators_only(folder: Path) -> None:
    text = fastprof_run("--operators", "-m", "train", cwd=folder).check().stdout
    assert names(folder) == {RUN} | OPERATOR_FILES
    assert HEADING not in text
    report = fastprof.load(folder / "fastprof_out/latest" / RUN)
    assert report.functions == ()
    assert report.operators is not None
    assert report.operators.rows


@pytest.mark.usefixtures("needs_torch")
def test_s0_02_functions_only(folder: Path) -> None:
    fastprof_run("--functions", "train.py", cwd=folder).check()
    assert names(folder) == {STATS, RUN}


MODEL = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.usefixtures("needs_torch")
def test_chosen_modules_are_separate_sections(folder: Path) -> None:
    (folder / "model.py").write_text(MODEL)
    fastprof_run("--modules", "0", "--modules", "none", "model.py", cwd=folder).check()
    report = fastprof.load(folder / "fastprof_out/latest" / RUN).in_phase("all")
    assert {row.name: row.count for row in report.sections} == {
        "forward": 6,
        "0": 6,
        "backward": 6,
        "optimizer": 6,
    }


@pytest.mark.usefixtures("needs_torch")
def test_s0_11_options_of_operators(folder: Path) -> None:
    settings = ["record_shapes=true", "row_limit=2", "schedule.skip_first=0", "schedule.active=1"]
    options = [word for setting in settings for word in ("--operator", setting)]
    fastprof_run(*options, "train.py", cwd=folder).check()
    assert "prof_000_local_00_cpu_time_total_by_shape.txt" in names(folder)
    operators = fastprof.load(folder / "fastprof_out/latest" / RUN).operators
    assert operators is not None
    assert operators.windows == ((1, 1),)
    assert operators.row_limit == 2


@pytest.mark.usefixtures("needs_torch")
def test_s0_17_files_of_each_rank_and_one_report(folder: Path) -> None:
    def run(rank: int) -> ChildResult:
        env = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        return fastprof_run("--full", "train.py", cwd=folder, env=env).check()

    for rank, result in enumerate(at_once(run, (0, 1))):
        assert (HEADING in result.stdout) == (rank == 0)
    made = names(folder)
    for rank in (0, 1):
        assert f"prof_00{rank}_local_0{rank}_pt_trace.json.gz" in made
        assert {f"rank{rank}_{name}" for name in (STATS, RUN, "profile_stats.txt")} <= made


@pytest.mark.usefixtures("needs_torch")
@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("raise ValueError('boom')", 1),
        pytest.param("sys.exit(7)", 7, marks=pytest.mark.slow),  # ends as with an exception
        ("os._exit(9)", 9),
    ],
)
def test_an_early_end_keeps_the_window_so_far(folder: Path, ending: str, status: int) -> None:
    program = TRAIN.replace("fastprof.step()", f"fastprof.step()\n        if step == 3: {ending}")
    (folder / "train.py").write_text(program)
    fastprof_run("train.py", cwd=folder).check(returncode=status)
    assert names(folder) >= OPERATOR_FILES
    operators = fastprof.load(folder / "fastprof_out/latest" / RUN).operators
    assert operators is not None
    assert operators.windows == ((2, 3),)


@pytest.mark.usefixtures("needs_torch")
@pytest.mark.parametrize(
    ("where", "ending"),
    [
        (
            "in another thread",
            (
                "import threading; t = threading.Thread(target=os._exit, args=(7,))\n"
                "        if step == 3: t.start(); t.join()"
            ),
        ),
        (
            "inside backward",
            (
                "x = torch.ones(1, requires_grad=True)\n"
                "        x.register_hook(lambda grad: os._exit(7))\n"
                "        if step == 3: x.exp().backward()"
            ),
        ),
        (
            "inside backward",
            (
                "import signal; x = torch.ones(1, requires_grad=True)\n"
                "        x.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGTERM))\n"
                "        if step == 3: x.exp().backward()"
            ),
        ),
    ],
)
def test_an_end_where_torch_profiler_cannot_stop(folder: Path, where: str, ending: str) -> None:
    program = TRAIN.replace("fastprof.step()", f"fastprof.step()\n        {ending}")
    (folder / "train.py").write_text(program)
    result = fastprof_run("train.py", cwd=folder)
    assert result.returncode == (-15 if "SIGTERM" in ending else 7)
    said = f"the window that begins with step 2 was lost, because the run ended {where}."
    assert result.stderr.count(said) == 1
    assert names(folder) == {STATS, RUN}
    report = fastprof.load(folder / "fastprof_out/latest" / RUN)
    assert report.steps.count == 4
    assert [note for note in report.notes if "perator" in note] == [f"Operators: {said}"]


def test_a_program_without_torch_gets_one_line(folder: Path) -> None:
    result = fastprof_run("plain.py", cwd=folder).check()
    assert result.stderr == ""
    assert (
        result.stdout.count("Operators were not recorded: the program did not import torch.") == 1
    )
    assert names(folder) == {STATS, RUN}


def test_s0_03_steps_end_the_training(folder: Path) -> None:
    text = (
        fastprof_run("--steps", "12", "plain.py", "--config", "a.yaml", cwd=folder).check().stdout
    )
    assert text.startswith("batches 12 wanted 12 ['--config', 'a.yaml']\n")
    assert fastprof.load(folder / "fastprof_out/latest" / RUN).steps.count == 12
    text = fastprof_run("plain.py", cwd=folder).check().stdout
    assert text.startswith("batches 30 wanted None []\n")


def test_s0_03_steps_with_functions_only(folder: Path) -> None:
    text = fastprof_run("--functions", "--steps", "4", "plain.py", cwd=folder).check().stdout
    assert text.startswith("batches 4 wanted 4 []\n")
    assert names(folder) == {STATS, RUN}


@pytest.mark.parametrize("steps", [4, 40])
def test_an_error_after_the_last_step_names_the_limit(folder: Path, steps: int) -> None:
    with (folder / "plain.py").open("a") as file:
        file.write("\nraise RuntimeError('no val_loss')\n")
    result = fastprof_run("--steps", str(steps), "plain.py", cwd=folder).check(returncode=1)
    told = f"after {steps} steps (--steps) no loader delivered batches"
    assert (told in " ".join(result.stderr.split())) == (steps == 4)


def test_an_error_after_steps_without_a_loader_is_not_blamed_on_the_limit(folder: Path) -> None:
    (folder / "plain.py").write_text(
        "import fastprof\nfor _ in range(9): fastprof.step()\nraise RuntimeError('x')\n"
    )
    result = fastprof_run("--steps", "4", "plain.py", cwd=folder).check(returncode=1)
    assert "no loader" not in result.stderr


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["--steps", "0"], 2, "--steps is 0"),
        (["--steps", "many"], 2, "invalid integer"),
        (["--operator", "row_limit"], 2, "expected KEY=VALUE"),
        (["--operator", "rows=1"], 2, "no option 'rows'"),
        (["--operator", "schedule.active=0"], 2, "active"),
        (["--functions", "--operator", "row_limit=1"], 2, "cannot be combined"),
        (["--functions", "--gpu", "on"], 2, "--gpu cannot be combined"),
        (["--functions", "--modules", "layers.*"], 2, "--modules cannot be combined"),
        (["--unknown"], 2, "no option"),
    ],
)
def test_s0_03_bad_options_before_training_starts(
    folder: Path, args: list[str], status: int, message: str
) -> None:
    result = fastprof_run(*args, "plain.py", cwd=folder).check(returncode=status)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert "batches" not in result.stdout


@pytest.mark.parametrize(
    ("value", "wanted"), [("", None), ("0", None), ("-1", None), ("x", None), ("50", 50)]
)
def test_f48_fastprof_steps(
    value: str, wanted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTPROF_STEPS", value)
    assert steps_wanted() == wanted


def test_after_the_run_loaders_deliver_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTPROF_STEPS", "2")
    with fastprof.Profiler(functions=False) as prof:
        batches = prof.loader([1, 2, 3])
        for _ in batches:
            prof.step()
        assert list(batches) == []
    assert prof.steps == 2
    assert list(batches) == [1, 2, 3]


def test_progress_is_a_line_every_ten_seconds() -> None:
    now = [100.0]
    stream = io.StringIO()
    progress = Progress(stream, lambda: now[0], lambda: None)
    values = {
        "profile/train/dl_main/time_forward_ms": 2.0,
        "profile/train/dl_aux/time_backward_ms": 3.5,
        "profile/train/time_batch_wait_ms": 900.0,
        "profile/val/dl_main/time_data_ms": 900.0,
    }
    # Two micro-batches a step, and an emission every four steps.
    progress.last_metrics = lambda: {key: Metric(ms, 8 * ms, 8) for key, ms in values.items()}
    for second in range(1, 26):
        now[0] += 1.0
        progress.log_metrics(values, second * 4)
    assert stream.getvalue().splitlines() == [
        # From the first emission on: imports come before it.
        "fastprof: step 44, 4.00 steps/s, most in backward (7.00 ms per step)",
        "fastprof: step 84, 4.00 steps/s, most in backward (7.00 ms per step)",
    ]
    now[0] += 10
    progress.log_metrics({}, 126)
    assert stream.getvalue().splitlines()[2] == (
        "fastprof: step 126, 3.00 steps/s, most in backward (2.67 ms per step)"
    )
