"""Twelve training scripts with one planted problem each: it is the first finding, and its remedy
leaves no finding."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import fastprof
import pytest
from fastprof.report.findings import Finding
from helpers import ROOT, check_patiently, run_command

HERE = Path(__file__).resolve().parent
EXAMPLES = ROOT / "examples" / "problems"
SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Problem:
    """A planted problem: the rule that finds it, and words of its evidence."""

    script: str
    rule: str
    evidence: tuple[str, ...]


PROBLEMS = (
    Problem("slow_dataset", "data-loading", ("Lines.__getitem__", "slow_dataset.py:")),
    Problem("item_every_value", "sync-item", ("Meter.update", "item_every_value.py:")),
    Problem("tiny_batches", "small-batch", ("Batches hold 2 samples",)),
    Problem("checkpoint_every_step", "checkpoint-often", ("save (checkpoint_every_step.py:",)),
    Problem("synchronous_logging", "logging-share", ("log_metrics (synchronous_logging.py:",)),
    Problem("loader_recreated", "loader-recreated", ("started 1 worker 4 times in 4 passes",)),
    Problem("gc_pressure", "gc-pressure", ("Collections in", "sentence gc_pressure.py:")),
    Problem("unfused_optimizer", "optimizer-unfused", ("_single_tensor_adam",)),
    Problem(
        "recompiled_attribute",
        "compiling-again",
        ("Model.forward (recompiled_attribute.py:24)", "self.temperature changed (1, 2, 3, 4, 5"),
    ),
    Problem(
        "recompiled_lengths",
        "compiling-again",
        ("Encoder.forward (recompiled_lengths.py:", "dimension 1 of tokens changed (48, 33"),
    ),
    Problem("lock_contention", "lock-contention", ("Statistics.add (lock_contention.py:",)),
)
NAMES = [problem.script for problem in PROBLEMS]


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(NAMES)
    for path in EXAMPLES.glob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) < 60, path.name
        rule = next(problem.rule for problem in PROBLEMS if problem.script == path.stem)
        assert f"Rule: {rule}." in lines


def record(folder: Path, *runs: str) -> None:
    """Run each script into its folder: NAME unchanged, NAME-healthy with ``--healthy``."""
    arguments: list[str] = []
    for name in runs:
        script = name.removesuffix("-healthy")
        arguments += [name, str(EXAMPLES / f"{script}.py")]
        arguments += ["--"] if script == name else ["--healthy", "--"]
    path = os.pathsep.join(filter(None, [SOURCE_PATH, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(HERE / "runner.py"), *arguments]
    # A failed run lacks its file, and its test reports that.
    done = run_command(command, cwd=folder, env={"PYTHONPATH": path}, timeout=900)
    assert done.end in ("ok", "status"), done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with NAME and NAME-healthy, the output of each script's two runs."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    folder = tmp_path_factory.mktemp("problems")
    record(folder, *(run for name in NAMES for run in (name, f"{name}-healthy")))
    return folder


def load(folder: Path) -> fastprof.Report:
    path = folder / "train_profile.fprof"
    log = folder / "log.txt"
    assert path.exists(), log.read_text(errors="replace")[-4000:] if log.exists() else "no run"
    return fastprof.load(path)


def of_the_program(report: fastprof.Report) -> tuple[Finding, ...]:
    """Return the findings, without those caused by other programs on this machine."""
    return tuple(f for f in report.findings if f.rule != "cpu-contention")


def check_planted(report: fastprof.Report, problem: Problem) -> None:
    findings = of_the_program(report)
    assert findings, report
    first = findings[0]
    assert first.rule == problem.rule, findings
    evidence = "\n".join(first.evidence)
    for words in problem.evidence:
        assert words in evidence
    assert first.fix
    if first.saving_ms is None:  # on some machines workers save too little to promise it
        assert first.rule in ("data-loading", "compiling-again")  # nor is that a part of steps
    else:
        assert 0 < first.saving_ms <= report.steps.mean_ms


def check_healthy(report: fastprof.Report) -> None:
    assert of_the_program(report) == (), report


def recorder(runs: Path, again: Path, name: str) -> Callable[[int], fastprof.Report]:
    """Return a function that loads a run: the shared one, then further runs of this script."""

    def report(number: int) -> fastprof.Report:
        if number == 0:
            return load(runs / name)
        folder = again / str(number)
        folder.mkdir()
        record(folder, name)
        return load(folder / name)

    return report


@pytest.mark.parametrize("problem", PROBLEMS, ids=NAMES)
def test_the_planted_problem_is_the_first_finding(
    runs: Path, problem: Problem, tmp_path: Path
) -> None:
    check_patiently(
        lambda report: check_planted(report, problem), recorder(runs, tmp_path, problem.script)
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_healthy_version_has_no_finding(runs: Path, name: str, tmp_path: Path) -> None:
    check_patiently(check_healthy, recorder(runs, tmp_path, f"{name}-healthy"))
