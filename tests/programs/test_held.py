"""Programs of other people's kinds: ``fastprof run`` sees their facts and changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastprof
import pytest
from programs.held import PROGRAMS

pytest.importorskip("torch")


@dataclass
class Ended:
    """What a run of a program left: status, streams, files by digest."""

    status: int
    out: str
    err: str
    files: dict[str, str]


def ended(command: list[str], folder: Path, facts: Path | None = None) -> Ended:
    env = {**os.environ, **({"FACTS": str(facts)} if facts else {})}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    files = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return Ended(done.returncode, done.stdout, done.stderr.replace(str(folder), "."), files)


@dataclass
class Pair:
    """A program under Python and under fastprof; the recording, and what the program counted."""

    plain: Ended
    under: Ended
    report: fastprof.Report
    facts: dict[str, Any]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Return a function that runs a program both ways, once per module."""
    known: dict[str, Pair] = {}

    def get(name: str) -> Pair:
        if name in known:
            return known[name]
        if name == "recommender":
            pytest.importorskip("pandas")
        folder = tmp_path_factory.mktemp(name)
        for part in ("plain", "under"):
            (folder / part).mkdir()
            (folder / part / "program.py").write_text(PROGRAMS[name])
        plain = ended(["program.py"], folder / "plain")
        run = ["-m", "fastprof", "run", "-o", "../out", "program.py"]
        under = ended(run, folder / "under", folder / "facts.json")
        report = fastprof.load(folder / "out" / "train_profile.fprof")
        facts = json.loads((folder / "facts.json").read_text())
        return known.setdefault(name, Pair(plain, under, report, facts))

    return get


#: Programs of the quick tests; the others only repeat what these show, in other shapes.
QUICK = ("replay", "tee", "failing")


def programs(*names: str) -> Any:
    """Parametrise a test by programs, most of which are slow: each runs twice, with torch."""
    slow = pytest.mark.slow
    each = [pytest.param(name, marks=() if name in QUICK else slow) for name in names]
    return pytest.mark.parametrize("name", each)


@programs(*PROGRAMS)
def test_a_program_ends_as_under_python(name: str, pair) -> None:
    both = pair(name)
    plain, under = both.plain, both.under
    assert under.status == plain.status
    assert under.err == plain.err
    assert under.files == plain.files
    assert "weights.pt" in under.files
    # fastprof's screen follows what the program printed.
    assert under.out.startswith(plain.out)
    assert under.out[len(plain.out) :].lstrip().startswith("program.py: ")


@programs(*PROGRAMS)
def test_the_steps_are_those_that_the_program_counted(name: str, pair) -> None:
    both = pair(name)
    assert both.report.in_phase("all").steps.count == both.facts["steps"]


def calls(report: fastprof.Report, name: str) -> int:
    return sum(row.calls for row in report.functions if row.name.endswith(name))


COUNTED = {"graph": "gather_neighbours", "replay": "draw_sample"}


@programs(*COUNTED)
def test_the_calls_of_a_function_are_those_that_it_counted(name: str, pair) -> None:
    # Some steps are recorded without the function hook, to know what it costs.
    both = pair(name)
    assert 0 < calls(both.report.in_phase("all"), COUNTED[name]) <= both.facts["calls"]


@pytest.mark.slow
def test_forward_is_longer_than_what_it_contains_and_shorter_than_what_contains_it(pair) -> None:
    both = pair("graph")
    rows = {row.name: row for row in both.report.in_phase("all").sections}
    assert both.facts["inside_ms"] <= rows["forward"].total_ms <= both.facts["outside_ms"]


@pytest.mark.slow
def test_waiting_for_workers_is_no_longer_than_next_and_names_their_function(pair) -> None:
    both = pair("recommender")
    rows = {row.name: row for row in both.report.in_phase("all").sections}
    loading = rows["data"].total_ms + rows["data_startup"].total_ms
    assert 0 < rows["data"].total_ms <= loading <= both.facts["outside_ms"]
    (finding,) = (f for f in both.report.findings if f.rule == "data-loading")
    assert "history_of" in " ".join((finding.title, *finding.evidence, *finding.fix))


@pytest.mark.slow
def test_the_wait_of_the_event_loop_is_a_finding_without_a_promise(pair) -> None:
    both = pair("asyncio")
    (finding,) = (f for f in both.report.findings if f.rule == "data-loading")
    assert finding.saving_ms is None
    assert both.report.steps.mean_ms > 20  # each step awaits one sleep


@pytest.mark.slow
def test_a_training_in_a_thread_has_its_functions_in_the_steps(pair) -> None:
    both = pair("thread")
    view = both.report.view
    assert view.threads[view.steps.thread].name == "training"
    assert "fit  program.py:" in both.under.out
