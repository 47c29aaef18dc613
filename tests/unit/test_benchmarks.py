"""benchmarks/run.py: every case runs and prints its results; no test judges the figures."""

from __future__ import annotations

import importlib
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_RUN = Path(__file__).resolve().parents[2] / "benchmarks" / "run.py"


def _run(tmp_path: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    result = tmp_path / "result.json"
    command = [sys.executable, str(_RUN), *arguments, "--json", str(result)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    written: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return done.stdout, written


def _quick(tmp_path: Path, case: str) -> tuple[str, dict[str, Any]]:
    out, written = _run(tmp_path, case, "--quick", "--rounds", "1")
    assert list(written["cases"]) == [case]
    assert written["machine"]["python"] == sys.version.split()[0]
    return out, written["cases"][case]["data"]


def test_functions_compares_all_candidates_on_all_workloads(tmp_path: Path) -> None:
    out, data = _quick(tmp_path, "functions")
    assert list(data["workloads"]) == [
        "calls",
        "ccalls",
        "mod",
        "recursion",
        "generators",
        "few",
        "many",
    ]
    for workload in data["workloads"].values():
        candidates = workload["candidates"]
        assert {"none", "fastprof", "cProfile"} <= set(candidates)
        # A profiler that is not measured is named with the reason.
        for peer in ("yappi (wall)", "viztracer", "pyinstrument (1 ms)", "empty hook"):
            assert (peer in candidates) != (peer in workload["missing"])
        assert workload["base_ns"] > 0
        for figures in candidates.values():
            assert 0 < figures["min_ns"] <= figures["median_ns"] < math.inf
        assert candidates["cProfile"]["of_cprofile"] in (None, 1.0)
    assert "functions / growth" in out


@pytest.mark.slow
def test_sections_compares_the_ways_to_time_a_block(tmp_path: Path) -> None:
    out, data = _quick(tmp_path, "sections")
    expected = {"empty loop", "perf_counter pair", "fastprof, recording", "@contextmanager"}
    assert expected <= set(data["candidates"])
    for name in ("torch record_function (no profiler on)", "nvtx.annotate (no tool attached)"):
        assert (name in data["candidates"]) != (data["missing"].get(name) == "not installed")
    assert "empty C context manager" in out


@pytest.mark.slow
def test_truth_gives_every_component_a_share(tmp_path: Path) -> None:
    out, data = _quick(tmp_path, "truth")
    assert "truth, quiet: 1 processes" in out
    assert "truth, loaded: 1 processes" in out
    for program in (p for mode in ("quiet", "loaded") for run in data[mode] for p in run.values()):
        true_shares = program["true_shares"]
        assert sum(true_shares.values()) == pytest.approx(100)
        assert set(program["profilers"]) == {"fastprof", "fastprof, raw", "cProfile"}
        for figures in program["profilers"].values():
            assert set(figures["shares"]) == set(true_shares)
            assert sum(figures["shares"].values()) == pytest.approx(100)
            assert 0 <= figures["max_error_points"] <= 100
            assert figures["sum_over_wall"] > 0


@pytest.mark.slow
def test_e2e_trains_with_and_without_workers(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    _, data = _quick(tmp_path, "e2e")
    for workers in ("workers_0", "workers_2"):
        assert set(data[workers]) == {
            "none",
            "fastprof, sections",
            "fastprof, sections + functions",
            "cProfile",
        }
        assert data[workers]["none"]["ratio"] == 1.0
    assert data["instrumentation_us_per_step"] > 0


def test_import_loads_no_framework(tmp_path: Path) -> None:
    _, data = _quick(tmp_path, "import")
    assert data["heavy_modules"] == []
    assert data["importtime_ms"] > 0
    assert data["bare_ms"] > 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_counts_what_it_asked_for(tmp_path: Path) -> None:
    _, data = _quick(tmp_path, "memory")
    assert data["sections"]["count"] == 200_000
    assert data["steps"]["count"] == 20_000
    contexts = data["contexts"]
    assert contexts["contexts"] == 98 * 101
    assert contexts["bytes_per_context"] * contexts["contexts"] == pytest.approx(
        contexts["grown_bytes"]
    )


def test_outliers_measures_the_step_with_and_without(tmp_path: Path) -> None:
    _, data = _quick(tmp_path, "outliers")
    assert len(data) == 4
    for found in data.values():
        assert found["steps"] > 0
        assert found["without_us"] > 0
        assert found["with_us"] > 0


def test_a_case_that_is_not_there_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(_RUN), "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "nonsense" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
def test_instructions_are_counted(tmp_path: Path) -> None:
    _, data = _quick(tmp_path, "instructions")
    calls = data["per_call"]["calls"]
    assert 0 < calls["none"] < calls["fastprof"]


@pytest.mark.slow
def test_gpu_measures_on_the_simulated_device(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("the collector is for Linux")
    out, data = _quick(tmp_path, "gpu")
    assert "M records/s per core" in out
    assert data["decode"]["record_ns"] > 0
    assert data["burst"]["callbacks"]["count"] == 50_000
    assert data["memory"]["count"] == 100_000


def test_report_times_each_part_of_the_end_of_a_run(tmp_path: Path) -> None:
    out, data = _quick(tmp_path, "report")
    parts = ("report", ".stats", ".fprof", "report as text", "summary")
    assert all(data["seconds"][part] > 0 for part in parts)
    assert data["seconds"]["all of it"] >= max(data["seconds"][part] for part in parts)
    assert "300 functions" in out


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_attach_pause_shows_the_pieces_of_an_attach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTPROF_PROCESSES_DIR", str(tmp_path / "processes"))
    program = str(_RUN.with_name("attach_pause.py"))
    done = subprocess.run(
        [sys.executable, program, "--attaches", "1", "--seconds", "0.2"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "attach 1: longest distance" in done.stdout


def test_a_promise_of_time_in_no_step_is_a_part_of_the_steps_and_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 8.1 ms a step and 4.5 ms a checkpoint, 56 % were promised; 36 % can be saved."""
    monkeypatch.syspath_prepend(str(_RUN.parent))
    findings = importlib.import_module("findings")
    found = [("checkpoint-often", "critical", "Saved every step", 4.5)]
    result = findings.Result("a", [], found, ["checkpoint-often"], 8.1, fix="checkpoint-often")
    assert findings.promised(result) == pytest.approx(4.5 / 12.6)
    result.outside = []
    assert findings.promised(result) == pytest.approx(4.5 / 8.1)
