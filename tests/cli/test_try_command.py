"""``fastprof try`` on real programs: what is applied from outside, and how runs end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof.trial.choose import candidates
from fastprof.trial.interventions import chosen
from fastprof.trial.model import Answer, Plan
from fastprof.trial.runs import Failure, Runs
from helpers import ROOT, ChildResult, run_child

COMMAND = "import sys; from fastprof.cli import main; sys.exit(main())"
PROBLEMS = ROOT / "examples" / "problems"

LOOP = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
data = TensorDataset(torch.randn(400, 8))
loader = DataLoader(data, batch_size=4, shuffle=True)
model = torch.nn.Linear(8, 8)
opt = torch.optim.AdamW(
    model.parameters(), lr=0.1)
try:
    for x, in loader:
        loss = model(x).square().mean()
        opt.zero_grad(set_to_none=False)
        try:
            loss.backward()
            opt.step()
        except Exception:
            print("swallowed")
finally:
    print("cleaned up", file=open("end.txt", "w"))
print("not reached")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fastprof_try(*args: object, cwd: Path, timeout: float = 600.0) -> ChildResult:
    return run_child(COMMAND, "try", *map(str, args), cwd=cwd, timeout=timeout)


def answer_of(runs: Runs, name: str, **options: Any) -> Answer:
    found = runs.run(name, Plan("", "", **{"steps": 12, **options}))
    assert isinstance(found, Answer), found
    return found


def test_a_run_ends_after_its_steps_and_the_program_cleans_up(folder: Path) -> None:
    runs = Runs(folder / "out", ["train.py"], None)
    apply = {"fused": {"fused": True}, "set-to-none": {"set_to_none": True},
             "workers": {"num_workers": 1}}  # fmt: skip
    first = answer_of(runs, "first", observe=True)
    assert len(first.ends_ns) == 12
    assert (folder / "end.txt").read_text() == "cleaned up\n"
    assert "not reached" not in (folder / "out/first.log").read_text()
    places = {call.kind: call.line for call in first.calls}
    assert places == {"set_num_threads": 4, "DataLoader": 6, "AdamW": 8, "zero_grad": 13}
    assert fastprof.load(folder / "out/first.fprof").steps.count == 12
    # Values come from what the run shows: there are no workers to do without.
    report = fastprof.load(folder / "out/first.fprof")
    found = candidates(report, first, only=chosen(["no-workers", *apply]))
    assert {name: values for one in found for name, values in one.parts.items()} == apply
    changed = answer_of(runs, "changed", apply=apply)
    assert changed.applied == {"fused": 1, "set-to-none": 12, "workers": 1}
    # The same seed, and so the same losses, but for rounding.
    assert changed.losses == pytest.approx(first.losses, rel=1e-5)
    assert len(changed.losses) == 10
    assert None not in changed.losses
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "changed.fprof", "changed.log", "first.fprof", "first.log",
    ]  # fmt: skip


def test_a_run_that_fails_or_does_not_end_is_known(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastprof.trial import runs as module

    (folder / "fails.py").write_text("raise ValueError('no data')\n")
    failed = Runs(folder / "out", ["fails.py"], None).run("fails", Plan("", "", steps=5))
    assert failed == Failure("crashed", "ValueError: no data")
    monkeypatch.setattr(module, "_LEAST_S", 1.0)
    monkeypatch.setattr(module, "_TIMES", 0.0)
    (folder / "hangs.py").write_text("import time\nwhile True: time.sleep(1)\n")
    runs = Runs(folder / "out", ["hangs.py"], None)
    runs._longest_s = 0.0
    assert runs.run("hangs", Plan("", "", steps=5)) == Failure("hung", "no end after 1 s")


def test_a_program_that_catches_everything_is_ended_with_its_figures(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastprof.trial import runs as module

    monkeypatch.setattr(module, "_CLEAN_UP_S", 2.0)
    (folder / "stubborn.py").write_text(
        "import time, torch\nw = torch.nn.Parameter(torch.ones(3))\n"
        "opt = torch.optim.SGD([w], lr=0.1)\n"
        "while True:\n"
        "    try:\n"
        "        w.sum().backward(); opt.step()\n"
        "    except BaseException:\n"
        "        print('caught')\n"
    )
    answer = answer_of(Runs(folder / "out", ["stubborn.py"], None), "stubborn")
    assert len(answer.ends_ns) == 12
    assert "caught" in (folder / "out/stubborn.log").read_text()
    assert (folder / "out/stubborn.fprof").exists()


def test_a_scratch_copy_keeps_the_output_folder_as_it_was(folder: Path) -> None:
    (folder / "results").mkdir()
    (folder / "results/log.txt").write_text("old\n")
    (folder / "writes.py").write_text(
        "import train_data\nassert train_data.N == 3\n"
        "print(open('results/log.txt').read())\nopen('results/log.txt', 'a').write('new')\n"
    )
    (folder / "train_data.py").write_text("N = 3\n")
    runs = Runs(folder / "out", ["writes.py"], "results")
    answer = answer_of(runs, "writes")
    assert answer.ends_ns == ()
    assert (folder / "results/log.txt").read_text() == "old\n"
    assert "old" in (folder / "out/writes.log").read_text()


def test_interventions_are_listed_and_options_are_checked(tmp_path: Path) -> None:
    text = fastprof_try("--list", cwd=tmp_path).check().stdout
    assert "workers" in text
    assert "data-loading" in text
    assert max(map(len, text.splitlines())) <= 80
    for arguments, said in (
        (("--only", "nothing", "x.py"), "no intervention 'nothing'"),
        (("--steps", "2", "x.py"), "--steps is 2"),
        (("--rounds", "1", "x.py"), "--rounds is 1"),
        (("--scratch", "/tmp", "x.py"), "--scratch is '/tmp'"),
        (("--scratch", ".", "x.py"), "--scratch is '.'"),
        (("-",), "standard input can be read once"),
    ):
        done = fastprof_try(*arguments, cwd=tmp_path)
        assert done.returncode == 2, done
        assert said in done.stderr


def wait_until(holds: Callable[[], bool], limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_folder_next_to_the_scratch_one_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out/data").mkdir(parents=True)
    (tmp_path / "out/data/x.txt").write_text("7")
    (tmp_path / "reads.py").write_text(
        "print(open('out/data/x.txt').read())\nopen('out/runs/new.txt', 'w').write('new')\n"
    )
    (tmp_path / "folder").mkdir()
    runs = Runs(tmp_path / "folder", ["reads.py"], "out/runs")
    assert isinstance(runs.run("reads", Plan("", "", 12)), Answer)
    assert not (tmp_path / "out/runs").exists()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["data"]


def test_fastprof_0_tries_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("open('ran.txt', 'w')\n")
    done = run_child(COMMAND, "try", "x.py", cwd=tmp_path, env={"FASTPROF": "0"})
    assert done.returncode == 2
    assert "FASTPROF=0" in done.stderr
    assert not (tmp_path / "ran.txt").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_trial_that_is_ended_ends_its_run(tmp_path: Path, number: int) -> None:
    # The run ignores SIGTERM.
    (tmp_path / "x.py").write_text(
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('pid.new', 'w').write(str(os.getpid())); os.rename('pid.new', 'pid')\n"
        "while True: time.sleep(1)\n"
    )
    trial = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "try", "-o", "out", "x.py"],
        cwd=tmp_path, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until((tmp_path / "pid").exists)
        trial.send_signal(number)
        time.sleep(0.5)  # a second one, while the first one waits for the run
        trial.send_signal(number)
        assert trial.wait(60) != 0
        pid = int((tmp_path / "pid").read_text())
        wait_until(lambda: not Path(f"/proc/{pid}").exists())
    finally:
        trial.kill()
        trial.wait()


@pytest.mark.slow
def test_ctrl_c_in_a_later_run_shows_what_is_known(folder: Path) -> None:
    begin = (
        "import os, time\nif os.path.exists('end.txt'):\n    open('again', 'w'); time.sleep(300)\n"
    )
    (folder / "train.py").write_text(begin + LOOP)
    trial = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "try", "--only", "fused", "-o", "out", "train.py"],
        cwd=folder, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_until((folder / "again").exists)
        trial.send_signal(signal.SIGINT)
        text, _ = trial.communicate(timeout=60)
    finally:
        trial.kill()
        trial.wait()
    assert trial.returncode == 130
    assert "not decided" in text
    assert "Ended by Ctrl-C: what is known so far." in text


@pytest.mark.slow
def test_a_planted_problem_is_tried_and_joined_with_its_finding(folder: Path) -> None:
    script = PROBLEMS / "unfused_optimizer.py"
    args = ("--only", "fused", "--rounds", "2", "--json", "-o", "out", script)
    data = json.loads(fastprof_try(*args, cwd=folder).check().stdout)
    (tried,) = data["tried"]
    assert tried["candidate"]["spelled"] == "optimizer fused=True"
    # Whether it is more than chance depends on what else the machine does.
    assert tried["status"] in ("real", "no difference")
    assert tried["runs"] == 2
    assert tried["losses"] == "" or "rounding" in tried["losses"]
    assert data["processes"] == 5
    # The recordings show that the optimizer is another one.
    reports = [fastprof.load(folder / f"out/{name}.fprof") for name in ("train_profile", "fused-1")]
    fired = [{finding.rule for finding in report.findings} for report in reports]
    assert ["optimizer-unfused" in rules for rules in fired] == [True, False]
    assert ("measured: " in str(reports[0])) == (tried["status"] == "real")


COLLECTS = """
import gc, sys, torch
torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(40):
    if sys.argv[1] == "planted":
        gc.collect()  # visits all objects of torch's modules
    weight.sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["planted", "healthy"])
def test_a_planted_problem_is_real_and_its_healthy_twin_is_not(folder: Path, kind: str) -> None:
    (folder / "train.py").write_text(COLLECTS)
    args = ("--only", "freeze", "--json", "-o", "out", "train.py", kind)
    data = json.loads(fastprof_try(*args, cwd=folder).check().stdout)
    (tried,) = data["tried"]
    if kind == "planted":
        assert tried["status"] == "real", tried
        assert tried["share_low"] > 0.3
    else:
        assert tried["status"] in ("no difference", "open"), tried
    assert data["processes"] <= 1 + 2 * 6
    assert tried["losses"] == ""


LIBRARY = """
import torch
class Trainer:
    def __init__(self, parameters):
        self.optimizer = torch.optim.SGD(parameters, lr=0.1)
class Loader(torch.utils.data.DataLoader):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
"""


def test_calls_of_a_library_are_no_lines_of_the_program(folder: Path) -> None:
    (folder / "site-packages").mkdir()
    (folder / "site-packages/trainers.py").write_text(LIBRARY)
    (folder / "train.py").write_text(
        "import sys, torch\nsys.path.append('site-packages')\nimport trainers\n"
        "model = torch.nn.Linear(2, 2)\n"
        "opt = trainers.Trainer(model.parameters()).optimizer\n"
        "for x in trainers.Loader([torch.ones(2)] * 12):\n"
        "    model(x).sum().backward()\n    opt.step()\n"
    )
    # In another folder, too, a place is the program's file, not the link that is gone afterwards.
    first = answer_of(Runs(folder / "out", ["train.py"], "results"), "first", observe=True)
    # The loader is the object that the program makes; the optimizer is made in the library.
    places = {call.kind: (call.file, call.line) for call in first.calls}
    assert places == {"SGD": ("", 0), "DataLoader": (str(folder / "train.py"), 6)}


SAMPLES = """
import torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
class Samples(Dataset):
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, i):
        return {"x": torch.tensor([float(w) for w in ",".join(["0.5"] * 2000).split(",")])}
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2000, 4)
    def forward(self, x, **_):
        return {"loss": self.layer(x).square().mean()}
"""
TINY = """
model, loader = Model(), DataLoader(Samples(16), batch_size=8, shuffle=True)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(30):
    for x in loader:
        loss = model(**x)["loss"]
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
UNPICKLABLE = """
import torch.multiprocessing as mp
class Local(Samples):
    function = None
    def __init__(self, count):
        super().__init__(count)
        self.made = lambda: 0
if __name__ == "__main__":
    mp.set_start_method("spawn")
    model, loader = Model(), DataLoader(Local(400), batch_size=8)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in loader:
        model(**x)["loss"].backward()
        opt.step()
"""
RANDOM = """
class Noisy(Samples):
    def __getitem__(self, i):
        return {"x": super().__getitem__(i)["x"] + torch.randn(2000)}
model, loader = Model(), DataLoader(Noisy(400), batch_size=8)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for x in loader:
    model(**x)["loss"].backward()
    opt.step()
"""
TRANSFORMERS = """
from transformers import Trainer, TrainingArguments
args = TrainingArguments("hf", per_device_train_batch_size=8, report_to=[], use_cpu=True,
                         save_strategy="no", num_train_epochs=1)
Trainer(Model(), args, train_dataset=Samples(400)).train()
"""
LIGHTNING = """
import lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()
    def training_step(self, batch, i):
        return self.model(**batch)["loss"]
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False).fit(
    Module(), DataLoader(Samples(400), batch_size=8)
)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("needs", "program", "statuses", "said"),
    [
        # Several times as long: of two runs per side, chance cannot always be excluded.
        ("torch", TINY, {"worse", "no difference"}, ""),
        ("torch", UNPICKLABLE, {"crashed"}, "pickle"),
        ("torch", RANDOM, {"other losses"}, "loss 1 of the first 10 differs"),
        ("transformers", TRANSFORMERS, {"real", "no difference", "worse"}, ""),
        ("lightning", LIGHTNING, {"real", "no difference", "worse"}, ""),
    ],
    ids=["tiny", "unpicklable", "random", "transformers", "lightning"],
)
def test_workers_are_tried_truthfully(
    folder: Path, needs: str, program: str, statuses: set[str], said: str
) -> None:
    pytest.importorskip(needs)
    (folder / "train.py").write_text(SAMPLES + program)
    args = ("--only", "workers", "--steps", "40", "--json", "-o", "out", "train.py")
    data = json.loads(fastprof_try(*args, cwd=folder).check().stdout)
    (tried,) = data["tried"]
    assert tried["status"] in statuses, tried
    assert said in tried["reason"]
    assert data["steps"] == 40
    if tried["status"] != "crashed":
        assert tried["runs"] >= 2
    if not said:
        assert tried["losses"] == ""
    if program is TINY:
        assert tried["share"] < -0.5
    if statuses == {"other losses"} or tried["status"] != "real":
        assert data["places"] == []
