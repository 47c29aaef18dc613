"""Programs of the first day that need torch, with the simulated device in place of CUDA.

These tests find mistakes of the programs, and check torch's Python code for queued calls; they do
not show how CUDA behaves.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import fastprof
import pytest
from fake_handles import FakeGpu
from helpers import sanitized, time_scale

sys.path.insert(0, str(Path(__file__).resolve().parent / "suite"))

import judge
import runner

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sanitized(), reason="torch is not sanitized"),
    # On a machine with a GPU, the questions use that GPU.
    pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="torch may have its own CUDA"),
]

SOURCE_PATH = str(Path(fastprof.__file__).resolve().parent.parent)
STAND_IN = str(Path(__file__).resolve().parent / "stand_in")
ONE_PROCESS = ("counts", "spins", "backward", "streams", "delay")
#: Graph questions run alone, because CUPTI before 13.1 gives graphs wrong ids from the second
#: recording on.
ALONE = (
    "graph_before", "machine", "seed", "profiler_cpu_between", "loader", "everything_held", "costs",
)  # fmt: skip


@pytest.fixture(scope="module")
def asking(fake_gpu: FakeGpu, tmp_path_factory: pytest.TempPathFactory) -> runner.Asking:
    env = fake_gpu.env(ready=False)
    paths = [STAND_IN, str(fake_gpu.directory), SOURCE_PATH, os.environ.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    data = tmp_path_factory.mktemp("first_day_torch")
    asking = runner.Asking(data, "torch", env, time.monotonic() + 500 * time_scale())
    asking.ask(runner.wanted(None, ONE_PROCESS))
    return asking


@pytest.mark.parametrize("name", [*ONE_PROCESS, *ALONE])
def test_the_programs_run_and_are_judged_good(name: str, asking: runner.Asking) -> None:
    [question] = runner.wanted(None, [name])
    asking.ask([question])
    found = judge.judge(question, judge.read(asking.answers, question))
    log = asking.logs / f"{name}.txt"
    said = log.read_text()[-2000:] if log.exists() else ""
    assert found.verdict == judge.PASS, f"{found.text}\n{said}"
