"""Waiting for the GPU within steps, with the fake CUPTI."""

from __future__ import annotations

from pathlib import Path

import fastprof
import pytest
from fake_handles import FakeGpu
from fastprof.results.report import build_report

SOURCE = str(Path(fastprof.__file__).parents[1])
HERE = str(Path(__file__).parent)
LOOP = """
import sys, fakegpu, fastprof
from fastprof import profile_section
from fastprof.capture import gpu_find

gpu_find._TOOLKITS = "/nowhere*"
gpu_find.SONAMES = ()
gpu_find._wheel_folders = list

def step(prof):
    with profile_section("data"):
        fakegpu.item()
    with profile_section("forward"):
        fakegpu.launch("ampere_sgemm_128x64", duration_ns=200_000)
        loss = fakegpu.item()
    prof.step()

with fastprof.Profiler(gpu=True, skip_first=2, output=sys.argv[1]) as prof:
    for _ in range(6):
        step(prof)
"""

LATE = """
import fakegpu
from gpu_programs import begin, end

r = begin("external")
fakegpu.launch("k", duration_ns=200_000)
fakegpu.item()
r.step()
spent = r.export()["steps"]["spent"]
assert spent["gpu_steps"] == 0 and spent["kinds"]["gpu_wait"] == 0, spent
end(r)
"""


def recorded(gpu: FakeGpu, folder: Path, loop: str = LOOP, **env: str) -> fastprof.Report:
    """Return the saved report of a loop that ran on the fake."""
    path = folder / "run.fprof"
    paths = f"{SOURCE}:{gpu.directory}"
    done = gpu.run(loop, str(path), PYTHONPATH=paths, CUDA_HOME="", **env)
    assert done.returncode == 0, done.stderr
    return fastprof.load(path)


def test_waiting_for_the_gpu_in_measured_steps_is_a_kind(fake_gpu: FakeGpu, tmp_path: Path) -> None:
    report = recorded(fake_gpu, tmp_path)
    snapshot = report.snapshot
    split = dict(snapshot.steps.split)
    assert sum(split.values()) == snapshot.steps.sum_ns
    assert snapshot.gpu is not None
    blocked_ns = sum(row.blocked_ns for row in snapshot.gpu.host)
    # Neither waits in data nor in warm-up count.
    assert 0 < split["gpu_wait"] < blocked_ns
    assert not snapshot.steps.split_missing
    row = next(row for row in report.steps.split if row.name == "gpu_wait")
    assert row.places[0][0].startswith("step <string>:")
    assert build_report(snapshot).steps.split == report.steps.split


@pytest.mark.parametrize("outliers", [32, 0])
def test_with_external_correlation_waits_are_known_at_the_end(
    fake_gpu: FakeGpu, tmp_path: Path, outliers: int
) -> None:
    """Also after torch.profiler, which keeps the subscriber slot; with slowest steps or without."""
    loop = LOOP.replace("skip_first=2", f'skip_first=2, recorder={{"outliers": {outliers}}}')
    snapshot = recorded(fake_gpu, tmp_path, loop, FAKE_CUPTI_HOLDER="another profiler").snapshot
    assert snapshot.gpu is not None
    assert snapshot.gpu.tier == "external"
    split = dict(snapshot.steps.split)
    assert sum(split.values()) == snapshot.steps.sum_ns
    assert 0 < split["gpu_wait"] < sum(row.blocked_ns for row in snapshot.gpu.host)
    # Four measured steps wait for a kernel of 200 us; those of data count as data.
    assert split["gpu_wait"] >= 4 * 100_000
    assert not snapshot.steps.split_missing


def test_waits_that_are_told_of_late_are_in_no_step(fake_gpu: FakeGpu) -> None:
    done = fake_gpu.run(LATE, PYTHONPATH=f"{SOURCE}:{fake_gpu.directory}:{HERE}")
    assert done.returncode == 0, done.stderr


WRAPPED = """
from fastprof.session.patching.wrapping import wrap

fakegpu.item = wrap(fakegpu.item, None, lambda args, kwargs, result: None)
"""


def test_a_wait_within_a_wrapper_of_fastprof_s_is_in_the_program_s_line(
    fake_gpu: FakeGpu, tmp_path: Path
) -> None:
    """As of ``Tensor.to``: a finding named a file of fastprof's."""
    loop = LOOP.replace("gpu_find._TOOLKITS", f"{WRAPPED}\ngpu_find._TOOLKITS", 1)
    gpu = recorded(fake_gpu, tmp_path, loop).snapshot.gpu
    assert gpu is not None
    assert {(line.file, line.function) for line in gpu.lines} == {("<string>", "step")}
