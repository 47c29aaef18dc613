"""A whole run with the fake GPU: from the loop to the report, the saved run and its formats."""

from __future__ import annotations

import json
import re
from pathlib import Path

import fastprof
import pytest
from fake_handles import FakeGpu
from fastprof.cli import main

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)

LOOP = """\
import sys
import fakegpu
import fastprof
from fastprof import profile_section
from fastprof.capture import gpu_find

# Without the machine's own: what the fake refuses must not be made good by another.
gpu_find._TOOLKITS = "/nowhere*"
gpu_find.SONAMES = ()
gpu_find._wheel_folders = list
engine = fakegpu.Engine()

def forward():
    for _ in range(3):
        fakegpu.launch("ampere_sgemm_128x64", duration_ns=200_000)
    fakegpu.memcpy("HtoD", 1_000)

def train(prof):
    for _ in prof.loader(range(6), name="main"):
        with profile_section("forward"):
            forward()
        with profile_section("backward"):
            engine.run_backward(["bwd_a", "bwd_b"], duration_ns=100_000)
        with profile_section("optimizer"):
            fakegpu.launch("adam", duration_ns=50_000)
        loss = fakegpu.item()
        prof.step()

with fastprof.Profiler(gpu=True, skip_first=1, output=sys.argv[1]) as prof:
    train(prof)
print(prof.report().to_text(full=True))
"""


def run(fake: FakeGpu, path: Path, **env: str) -> str:
    paths = f"{SOURCE_PATH}:{fake.directory}"
    done = fake.run(LOOP, str(path), **{"PYTHONPATH": paths, "CUDA_HOME": "", **env})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_three_layers_are_in_one_report(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    text = run(fake_gpu, tmp_path / "run.fprof")
    assert "GPU: Fake H200 0" in text
    report = fastprof.load(tmp_path / "run.fprof").in_phase("all")
    gpu = report.snapshot.gpu
    assert gpu is not None
    sections = {row.name: row for row in report.sections}
    per_step_ms = {"forward": 0.6, "backward": 0.2, "optimizer": 0.05}
    for name, ms in per_step_ms.items():
        extra = 6 * 1e-3 if name == "forward" else 0.0  # the fake's copies take 1 us
        assert sections[name].gpu_ms == pytest.approx(6 * ms + extra, abs=1e-9)
    assert sections["forward"].kernels == 18
    functions = {row.name: row for row in report.functions}
    assert functions["forward"].gpu_ms == sections["forward"].gpu_ms
    assert functions["train"].gpu_ms == pytest.approx(gpu.sum_ns / 1e6, abs=1e-9)
    assert functions["train"].blocked_ms is not None
    assert functions["train"].blocked_ms > 0.0
    line = next(n for n, code in enumerate(LOOP.splitlines(), 1) if "loss = " in code)
    assert re.search(rf"train at <string>:{line} blocks \d+\.\d+ ms per step", text)


def test_the_saved_run_in_other_formats(
    fake_gpu: FakeGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.fprof"
    run(fake_gpu, path)
    assert main(["report", str(path), "--format", "collapsed-gpu"]) == 0
    stacks = dict(line.rsplit(" ", 1) for line in capsys.readouterr().out.splitlines())
    gpu = fastprof.load(path).view.gpu
    assert gpu is not None
    assert sum(map(int, stacks.values())) == gpu.sum_ns
    assert any("forward" in s and s.endswith("ampere_sgemm_128x64") for s in stacks)
    assert main(["report", str(path), "--format", "speedscope-gpu"]) == 0
    assert json.loads(capsys.readouterr().out)["profiles"]


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"FAKE_CUDA_READY": "0", "FAKE_CUDA_INIT": "100"}, r"cuInit failed with 100"),
        ({"FAKE_CUPTI_FAIL": "cuptiGetVersion:999"}, r"cuptiGetVersion"),
        ({"FAKE_CUPTI_FAIL": "cuptiActivityRegisterCallbacks:999"}, r"buffers"),
        ({"FAKE_CUPTI_FAIL": "cuptiActivityEnable:999"}, r"record kernels"),
        ({"FAKE_CUPTI_FAIL": "cuptiGetTimestamp:999"}, r"clock cannot be read"),
    ],
    ids=["cuInit", "version", "buffers", "kernels", "time"],
)
def test_f49_without_a_gpu_that_works_the_report_says_why(
    fake_gpu: FakeGpu, tmp_path: Path, env: dict[str, str], why: str
) -> None:
    text = run(fake_gpu, tmp_path / "run.fprof", **env)
    [line] = [line for line in text.splitlines() if line.startswith("GPU: n/a, because ")]
    assert re.search(why, line), line
    report = fastprof.load(tmp_path / "run.fprof")
    assert report.steps.count == 6
    assert {row.gpu_ms for row in report.sections} == {None}


def test_a_run_without_gpu_has_no_gpu_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = fastprof.Profile()
    profile.runcall(sorted, [2, 1])
    profile.report().save(tmp_path / "run.fprof")
    assert main(["report", str(tmp_path / "run.fprof"), "--format", "collapsed-gpu"]) == 2
    assert "GPU" in capsys.readouterr().err
