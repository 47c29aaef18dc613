"""The tenth of the problems (tests/problems): host-device ping-pong, on the fake GPU.

The simulated device runs in real time: on a busy machine it waits for the program, which counts as
idle time.
"""

from __future__ import annotations

import sys
from pathlib import Path

import fastprof
import pytest
from fake_handles import FakeGpu
from helpers import ROOT, check_patiently, run_command

SCRIPT = ROOT / "tests" / "problems" / "host_device_pingpong.py"
SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)
RUN = "import sys; from fastprof.cli import main; sys.exit(main())"

pytestmark = pytest.mark.slow


def report_of(fake: FakeGpu, folder: Path, *arguments: str) -> fastprof.Report:
    command = [sys.executable, "-c", RUN, "run", "--gpu", "on", "-o", str(folder), str(SCRIPT)]
    env = fake.env(CUDA_HOME="", PYTHONPATH=f"{SOURCE_PATH}:{fake.directory}")
    wanted = {k: v for k, v in env.items() if k.startswith(("FAKE_CU", "FASTPROF_C", "PYTHONPATH"))}
    run_command([*command, *arguments], env=wanted, timeout=120).check()
    return fastprof.load(folder / "train_profile.fprof")


def check_planted(report: fastprof.Report) -> None:
    first = report.findings[0]
    assert first.rule == "host-device-transfers"
    assert "normalize_on_host (host_device_pingpong.py:" in "\n".join(first.evidence)
    assert first.saving_ms is not None
    assert 0 < first.saving_ms < report.steps.mean_ms


def test_copies_to_the_host_and_back_are_the_first_finding(
    fake_gpu: FakeGpu, tmp_path: Path
) -> None:
    check_patiently(check_planted, lambda i: report_of(fake_gpu, tmp_path / str(i)))


def check_healthy(report: fastprof.Report) -> None:
    assert report.gpu is not None
    assert report.gpu.status == "on"
    assert report.findings == ()


def test_without_them_there_is_no_finding(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    check_patiently(check_healthy, lambda i: report_of(fake_gpu, tmp_path / str(i), "--healthy"))
