"""tests/gpu/first_day end to end on the simulated device, and its verdicts on bad answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastprof
import pytest
from helpers import ROOT, sanitized, time_scale

sys.path.insert(0, str(Path(__file__).resolve().parent / "suite"))

import answering
import judge
import runner
from judge import FAIL, NOT_ASKED, PASS
from questions import QUESTIONS, Question

SUITE = ROOT / "tests" / "gpu" / "suite"
SCRIPT = ROOT / "tests" / "gpu" / "first_day"
PACKAGE = Path(fastprof.__file__).resolve().parent
BY_NAME = {one.name: one for one in QUESTIONS}


def run_script(
    *arguments: str, out: Path | None = None, path: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    every = {n: v for n, v in os.environ.items() if not n.startswith("FASTPROF") and n != "OUT"}
    every["PYTHONPATH"] = str(PACKAGE.parent) if path is None else path
    every |= {"OUT": str(out)} if out else {}
    return subprocess.run(
        ["bash", str(SCRIPT), "--python", sys.executable, *arguments],
        env=every | env,
        capture_output=True,
        text=True,
        timeout=600 * time_scale(),
        check=False,
    )


def wheel_of(folder: Path, path: Path) -> Path:
    """Write the package to an archive like a wheel."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, Path("fastprof") / file.relative_to(folder))
    return path


# ---- the whole script ----


@dataclass(frozen=True)
class Day:
    """The results of one run of the script."""

    done: subprocess.CompletedProcess[str]
    data: Path
    out: Path

    def verdict(self, name: str) -> judge.Verdict:
        return judge.judge(BY_NAME[name], judge.read(self.data / "answers", BY_NAME[name]))


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Day:
    if sanitized():
        pytest.skip("the simulated device is timed")
    folder = tmp_path_factory.mktemp("day")
    wheel = wheel_of(PACKAGE, folder / "fastprof-0-py3-none-any.whl")
    data, out = folder / "data", folder / "out"
    options = ["--device", "simulated", "--wheel", str(wheel), "--out", str(data)]
    # Only the wheel contains fastprof.
    done = run_script(*options, "--limit", "500", out=out, path="")
    return Day(done, data, out)


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", [one.name for one in QUESTIONS])
def test_the_simulation_answers(name: str, day: Day) -> None:
    found = day.verdict(name)
    wanted = PASS if BY_NAME[name].simulated else NOT_ASKED
    assert found.verdict == wanted, found.line() + day.done.stdout[-500:] + day.done.stderr[-2000:]


def test_s1_22_temperature_and_clock_are_those_of_nvidia_smi(day: Day) -> None:
    assert day.verdict("health").verdict == PASS, day.verdict("health").text


def test_one_line_per_question_and_a_last_one_with_the_numbers(day: Day) -> None:
    lines = day.done.stdout.splitlines()
    told = [line for line in lines if line.startswith((PASS, FAIL, NOT_ASKED))]
    assert [line[9:].split()[0] for line in told] == [one.name for one in QUESTIONS]
    count = Counter(line[:9].strip() for line in told)
    assert f"{count[PASS]} PASS, {count[FAIL]} FAIL, {count[NOT_ASKED]} NOT ASKED" in lines
    assert day.done.returncode == (1 if count[FAIL] else 0)
    assert (day.data / "verdicts.txt").read_text().splitlines() == told


def test_what_simulation_cannot_answer_says_so(day: Day) -> None:
    asked = [one.name for one in QUESTIONS if not one.simulated]
    assert len(asked) >= 10
    assert {day.verdict(name).text for name in asked} == {"not asked: simulation"}


def test_all_of_it_is_in_one_archive(day: Day) -> None:
    assert sorted(p.name for p in day.out.iterdir()) == ["first_day.tar.gz", "verdicts.txt"]
    with tarfile.open(day.out / "first_day.tar.gz") as archive:
        names = set(archive.getnames())
    for one in QUESTIONS:
        if not one.compares:
            assert f"first_day/answers/{one.name}.json" in names
    for program in ("everything", "everything_held"):
        assert f"first_day/answers/simulated-{program}.json.gz" in names
    assert {"first_day/logs/busy.txt", "first_day/subject.txt"} <= names


def test_what_is_answered_is_not_asked_again(day: Day) -> None:
    """In a copy of the folder with marked answers."""
    other = day.data.parent / "again"
    subprocess.run(["cp", "-R", str(day.data), str(other)], check=True)
    marked = other / "answers" / "machine.json"
    answer = json.loads(marked.read_text())
    answer["answer"]["device"] = "marked"
    marked.write_text(json.dumps(answer))
    wheel = str(day.data.parent / "fastprof-0-py3-none-any.whl")
    options = ["--device", "simulated", "--wheel", wheel, "--out", str(other)]
    again = run_script(*options, "--part", "1", path="")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "marked, Linux" in again.stdout
    names = [line[9:].split()[0] for line in again.stdout.splitlines() if line.startswith(PASS)]
    assert names == [one.name for one in QUESTIONS if one.part == 1]
    # A named question is asked again; so is a question about another fastprof.
    again = run_script(*options, "--only", "machine", path="")
    assert "simulation, Linux" in again.stdout
    marked.write_text(json.dumps(answer))
    package = other / "site" / "fastprof"
    (package / "more.py").write_text("")
    wheel = str(wheel_of(package, other / "other.whl"))
    options = ["--device", "simulated", "--wheel", wheel, "--out", str(other)]
    again = run_script(*options, "--part", "1", "--limit", "11", path="")
    assert "marked" not in again.stdout


# ---- errors around the questions ----


def test_it_builds_what_it_is_in(tmp_path: Path) -> None:
    """It builds beside the answers, not in the checkout."""
    pytest.importorskip("setuptools")  # environments of 3.12 and later begin without it
    before = {path.name for path in ROOT.iterdir()}
    options = ["--device", "simulated", "--out", str(tmp_path), "--only", "machine"]
    done = run_script(*options, path="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "fastprof" / "__init__.py").exists()
    assert {path.name for path in ROOT.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--wheel", "/nowhere.whl"], "there is no wheel /nowhere.whl"),
        (["--python", "/no/python"], "there is no such Python"),
        (["--nonsense", "1"], "there is no option --nonsense"),
        (["--part"], "--part needs a value"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = run_script("--out", str(tmp_path), *arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_help_is_the_comment_at_the_top() -> None:
    done = run_script("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("The first day with a GPU")
    assert "set -e" not in done.stdout


def test_without_a_gpu_it_fails_unless_none_is_required(tmp_path: Path) -> None:
    options = ["--installed", "--out", str(tmp_path), "--only", "counts"]
    done = run_script(*options, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL       counts" in done.stdout
    done = run_script(*options, FASTPROF_GPU_REQUIRED="0", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT ASKED  counts" in done.stdout


PROGRAM = """\
import os, sys, time
sys.path.insert(0, {suite!r})
import answering
def good(device): return {{"device": "it", "system": "x"}}
def ends(device): os._exit(7)
def raises(device): raise ValueError("on purpose")
def hangs(device):
    os.system("sleep 1000 &")
    time.sleep(1000)
answering.main([good, ends, raises, hangs])
"""


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Return a function that asks questions of a test program, and returns the saved answers."""
    (tmp_path / "odd.py").write_text(PROGRAM.format(suite=str(SUITE)))
    monkeypatch.setattr(runner, "HERE", tmp_path)
    monkeypatch.setattr(runner, "LEAST_S", 0.0)

    def ask(*names: str, limit_s: int = 60, seconds: float = 60.0) -> dict[str, Any]:
        until = time.monotonic() + seconds * time_scale()
        asking = runner.Asking(tmp_path / "data", "torch", dict(os.environ), until)
        asking.ask([Question(n, 1, "odd.py", limit_s=limit_s, together="x") for n in names])
        return {p.stem: json.loads(p.read_text()) for p in asking.answers.glob("*.json")}

    return ask


def test_a_program_that_dies_takes_no_answer_with_it(odd: Callable[..., dict[str, Any]]) -> None:
    found = odd("good", "ends", "raises")
    assert found["good"]["status"] == "answered"
    assert found["ends"] | {"reason": ""} == {
        "question": "ends", "device": "torch", "status": "failed", "reason": "",
    }  # fmt: skip
    assert "exit status 7" in found["ends"]["reason"]
    assert found["raises"]["reason"] == "ValueError: on purpose"


def test_a_program_that_hangs_is_ended_with_its_children(
    odd: Callable[..., dict[str, Any]],
) -> None:
    begin = time.monotonic()
    found = odd("hangs", limit_s=3)
    assert found["hangs"]["status"] == "timed out"
    assert time.monotonic() - begin < 60 * time_scale()


def test_without_time_nothing_is_asked_or_saved(odd: Callable[..., dict[str, Any]]) -> None:
    assert odd("good", seconds=-1) == {}
    verdict = judge.judge(BY_NAME["machine"], None)
    assert (verdict.verdict, "no time left" in verdict.text) == (FAIL, True)


def test_an_answer_replaces_the_one_before(tmp_path: Path) -> None:
    for x in (1, 2):
        answering.save(tmp_path / "a.json", {"x": x})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
