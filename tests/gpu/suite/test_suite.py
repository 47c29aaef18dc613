"""Checks of the GPU layer against what is known independently of it.

    python -m pytest -m gpu tests/gpu/suite -s

runs them on a GPU, with torch; takes some minutes.  Without ``-m gpu`` they run on the
simulated device, which shows that the checks themselves work.  What the machine should give
back (replay files, figures) is left in the folder $OUT, if that is set.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fake_handles import FakeGpu
from helpers import time_scale

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "replay"))

import oracles
import record
import replay_file

HERE = Path(__file__).resolve().parent
SOURCE_PATH = str(Path(fastprof.__file__).resolve().parent.parent)
DEVICES = [pytest.param("torch", marks=pytest.mark.gpu), "simulated"]


def environment(device: str, fake: FakeGpu) -> dict[str, str]:
    if device == "simulated":
        return fake.env(PYTHONPATH=os.pathsep.join([SOURCE_PATH, str(fake.directory)]))
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    path = os.pathsep.join(p for p in (SOURCE_PATH, os.environ.get("PYTHONPATH", "")) if p)
    return {**os.environ, "PYTHONPATH": path}


def child(env: dict[str, str], script: str, *arguments: str) -> Any:
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=env, timeout=300 * time_scale()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def run(device: str, fake_gpu: FakeGpu) -> Any:
    env = environment(device, fake_gpu)
    return lambda program: child(env, "child.py", device, program)


def kernels_of(result: dict[str, Any]) -> dict[str, int]:
    return {name: row["kernels"] for name, row in result["sections"].items()}


@pytest.mark.parametrize("program", ["counts", "threads", "streams", "backward"])
def test_each_section_has_the_kernels_that_it_launched(program: str, run: Any) -> None:
    result = run(program)
    oracles.nothing_is_missing(result["gpu"])
    assert kernels_of(result) == result["truth"]


def test_backwards_kernels_are_inherited(run: Any) -> None:
    result = run("backward")
    inherited = sum(
        row[6] for row in result["gpu"]["activity"] if row[4] == oracles.INHERITED and row[5] >= 0
    )
    assert inherited == result["truth"]["backward"] > 0


@pytest.mark.slow
def test_a_million_launches_are_all_there(run: Any) -> None:
    result = run("million")
    oracles.nothing_is_missing(result["gpu"])
    assert kernels_of(result) == result["truth"]


def test_a_kernel_that_sleeps_four_times_as_long_is_four_times_as_long(run: Any) -> None:
    result = run("sleeps")
    ns = {name: row["ns"] for name, row in result["sections"].items()}
    assert ns["long"] / ns["short"] == pytest.approx(result["truth"]["ratio"], rel=0.25)


def test_s1_22_temperature_and_clock_are_those_of_nvidia_smi(run: Any) -> None:
    """Neither stands still: the spans of what both saw meet, within 3 C and 5 %."""
    result = run("health")
    ours = result["gpu"]["devices"][0]["health"]
    assert ours is not None, result["gpu"]["health_reason"]
    pairs = zip(("temperature_c", "sm_clock_mhz"), zip(*result["truth"]), strict=True)
    for figure, theirs in pairs:
        count, _, least, most, _ = ours[figure]
        slack = 3 if figure == "temperature_c" else 0.05 * max(theirs)
        assert count >= 3, ours
        assert least - slack <= max(theirs), (figure, ours, theirs)
        assert most + slack >= min(theirs), (figure, ours, theirs)
    assert ours["power_mw"][2] > 1000


def test_kernels_and_gaps_are_the_time_between_two_events(device: str, run: Any) -> None:
    """One stream: the kernels cannot take longer than the events say, and are most of it."""
    result = run("elapsed")
    (ms,) = result["truth"]["ms"]
    kernels_ms = result["sections"]["timed"]["ns"] / 1e6
    assert kernels_ms <= ms * 1.01
    if device == "torch":  # the simulated device's events wait for the host
        assert kernels_ms >= ms * 0.5


def test_copied_bytes_by_direction(run: Any) -> None:
    result = run("copies")
    oracles.nothing_is_missing(result["gpu"])
    assert oracles.copies(result["gpu"]) == result["truth"]


def test_a_graphs_kernels_count_for_each_replay(run: Any) -> None:
    result = run("graph")
    oracles.nothing_is_missing(result["gpu"])
    # torch adds kernels of its own to a replay: count what the graph has by name.
    most = max(oracles.kernel_counts(result["gpu"]).values())
    # ... and launches one to warm up.
    assert result["truth"]["kernels"] <= most <= result["truth"]["kernels"] + 1
    assert kernels_of(result)["replay"] >= result["truth"]["kernels"]
    assert result["gpu"]["counters"]["graph_launches"] == 20


def test_both_ways_of_correlation_give_the_same_tables(run: Any) -> None:
    callbacks, external = run("everything"), run("everything_held")
    assert (callbacks["gpu"]["tier"], external["gpu"]["tier"]) == ("callbacks", "external")
    assert oracles.shape(callbacks) == oracles.shape(external)
    assert oracles.by_how(external["gpu"])[oracles.UNKNOWN] == 0


# ---- torch.profiler and torch's own steps: on a GPU only ----


@pytest.mark.gpu
def test_torch_profiler_counts_the_same_kernels_in_another_process(fake_gpu: FakeGpu) -> None:
    env = environment("torch", fake_gpu)
    kineto = child(env, "torch_profiler.py", "kineto")
    ours = child(env, "torch_profiler.py", "fastprof")
    assert {n: row[0] for n, row in ours.items()} == {n: row[0] for n, row in kineto.items()}
    total = [sum(row[1] for row in found.values()) for found in (ours, kineto)]
    assert total[0] == pytest.approx(total[1], rel=0.25)


@pytest.mark.gpu
def test_torch_profiler_after_fastprof_gets_its_gpu_events(fake_gpu: FakeGpu) -> None:
    found = child(environment("torch", fake_gpu), "torch_profiler.py", "after")
    counts = {name: sum(row[0] for row in rows.values()) for name, rows in found.items()}
    assert counts["kineto"] == counts["fastprof"] > 0


@pytest.mark.gpu
def test_what_sections_and_the_gpu_layer_cost_is_printed(fake_gpu: FakeGpu) -> None:
    found = child(environment("torch", fake_gpu), "torch_profiler.py", "overhead")
    assert all(len(times) == 10 for times in found.values())
    best = {name: min(times) for name, times in found.items()}
    text = ", ".join(f"{name} {ms:.3f} ms/step" for name, ms in best.items())
    print(f"\n{text}; ratio {best['sections + GPU'] / best['off']:.4f}")
    leave("overhead.json", json.dumps(found).encode())


def leave(name: str, content: bytes) -> None:
    if os.environ.get("OUT"):
        (Path(os.environ["OUT"]) / name).write_bytes(content)


@pytest.mark.parametrize("program", ["everything", "everything_held"])
def test_a_replay_file_of_it_adds_up(
    device: str, program: str, fake_gpu: FakeGpu, tmp_path: Path
) -> None:
    env = environment(device, fake_gpu)
    cupti = fake_gpu.cupti
    if device == "torch":
        find = (
            "import torch; torch.cuda.init(); from fastprof.capture import gpu_find; "
            "print(gpu_find.cupti_candidates()[0].path)"
        )
        out = subprocess.run(
            [sys.executable, "-c", find], check=True, capture_output=True, text=True, env=env
        )
        cupti = Path(out.stdout.strip())
    command = [sys.executable, str(HERE / "child.py"), device, program]
    if device == "simulated":
        # fakegpu looks for the simulated device in the library itself.
        command[1:2] = [str(HERE / "behind_shim.py"), str(HERE / "child.py")]
    replay, done = record.record(command, cupti, {"device": device, "program": program}, env)
    gpu = json.loads(done.stdout.splitlines()[-1])["gpu"]
    totals, ours = replay_file.totals(replay), replay_file.recorded_totals(gpu)
    counts = [
        {oracles.plain_name(name): row for name, row in found["kernels"].items()}
        for found in (totals, ours)
    ]
    assert counts[0] == counts[1]
    assert totals["copies"] == ours["copies"]
    path = tmp_path / f"{device}-{program}.json.gz"
    replay_file.save(replay, path)
    if device == "torch":
        leave(path.name, path.read_bytes())


# ---- the oracles can fail ----


def test_a_missing_activity_is_seen() -> None:
    good: dict[str, Any] = {
        "counters": dict.fromkeys(oracles.LOSSES, 0),
        "activity": [[0, 1, -1, -1, oracles.OWN, 0, 2, 20, 0]],
        "sum_ns": 20,
    }
    oracles.nothing_is_missing(good)
    for wrong in (
        {"sum_ns": 21},
        {"counters": good["counters"] | {"dropped": 1}},
        {"activity": [[-1, -1, -1, -1, oracles.UNKNOWN, 0, 2, 20, 0]]},
    ):
        with pytest.raises(AssertionError):
            oracles.nothing_is_missing({**good, **wrong})


def test_names_are_compared_demangled_and_without_spaces() -> None:
    rows = [["_Z3addIfEvPT_", *[0] * 11, 2, 9], ["void add<float>(float *)", *[0] * 11, 1, 9]]
    assert oracles.kernel_counts({"kernels": rows}) == Counter({"voidadd<float>(float*)": 3})
    assert oracles.plain_name("_Znonsense") == "_Znonsense"


def test_copies_are_told_by_direction() -> None:
    rows = [[0, 1, -1, -1, 0, what, 2, 5, 70] for what in (-1, -1, -2, -7, 0)]
    assert oracles.copies({"activity": rows}) == {"-1": [4, 140], "-2": [2, 70]}
