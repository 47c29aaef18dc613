"""``fastprof doctor`` with the fake driver and the fake libcupti."""

from __future__ import annotations

from pathlib import Path

import fastprof
import pytest
from fake_handles import FakeGpu
from helpers import run_child

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)
# Without the machine's own: what the fake refuses must not be made good by another.
DOCTOR = """\
from fastprof.capture import gpu_find
gpu_find._TOOLKITS = "/nowhere*"
gpu_find.SONAMES = ()
gpu_find._wheel_folders = list
from fastprof.cli import main
main(["doctor"])
"""
REFUSED = "cannot be recorded: "
NO_LIBCUPTI = "cannot be recorded: no libcupti here works with this driver; "


def gpu_lines(fake: FakeGpu, **env: str) -> list[tuple[str, str]]:
    wanted = {
        "PYTHONPATH": SOURCE_PATH,
        "FASTPROF_CUPTI": str(fake.cupti),
        "FASTPROF_CUDA_DRIVER": str(fake.driver),
        "FAKE_CUPTI_SET": "needs_driver=1",
        "CUDA_HOME": "",
    }
    result = run_child(DOCTOR, env=wanted | env).check()
    lines = result.stdout.splitlines()
    width = max(len(line.partition("  ")[0]) for line in lines)
    rows = [(line[:width].strip(), line[width:].strip()) for line in lines]
    first = [name for name, _ in rows].index("gpu")
    return rows[first:]


def test_all_is_well(fake_gpu: FakeGpu) -> None:
    rows = gpu_lines(fake_gpu, FAKE_CUDA_DEVICES="2")
    assert [name for name, _ in rows] == ["gpu", "gpu 0", "gpu 1", "libcupti", "gpu times"]
    assert rows[0][1] == "driver of CUDA 13.0, 2 devices"
    assert rows[3][1] == f"{fake_gpu.cupti}, version 130001, FASTPROF_CUPTI"
    assert rows[4][1] == "can be recorded, by launch callbacks"


def test_f49_cuinit_fails(fake_gpu: FakeGpu) -> None:
    [(name, text)] = gpu_lines(fake_gpu, FAKE_CUDA_INIT="100")
    assert name == "gpu"
    assert text.startswith("n/a, because the CUDA driver does not work: cuInit failed with 100 (")


def test_f49_the_subscriber_slot_is_held(fake_gpu: FakeGpu) -> None:
    text = gpu_lines(fake_gpu, FAKE_CUPTI_HOLDER="another tool")[-1][1]
    assert text.startswith("can be recorded, by external correlation, because ")
    assert "39" in text


def test_f49_a_function_is_missing(fake_gpu: FakeGpu) -> None:
    path = str(fake_gpu.variant("cuptiActivityFlushAll"))
    rows = gpu_lines(fake_gpu, FASTPROF_CUPTI=path)
    why = f"{path} has no function cuptiActivityFlushAll: it is no libcupti"
    assert rows[2] == ("libcupti", f"not used: {why} (FASTPROF_CUPTI)")
    assert rows[3][1].startswith(NO_LIBCUPTI)


@pytest.mark.parametrize(
    ("function", "beginning"),
    [
        ("cuptiGetVersion", NO_LIBCUPTI),
        ("cuptiActivityRegisterCallbacks", REFUSED),
        ("cuptiActivityEnable", REFUSED),
        ("cuptiSubscribe", "can be recorded, by external correlation, because "),
        # What ends a recording does not keep it from starting.
        ("cuptiActivityDisable", "can be recorded, by launch callbacks"),
        ("cuptiActivityFlushAll", "can be recorded, by launch callbacks"),
        ("cuptiUnsubscribe", "can be recorded, by launch callbacks"),
    ],
)
def test_f49_a_call_fails(fake_gpu: FakeGpu, function: str, beginning: str) -> None:
    rows = gpu_lines(fake_gpu, FAKE_CUPTI_FAIL=f"{function}:999")
    name, text = rows[-1]
    assert name == "gpu times"
    assert text.startswith(beginning)
    if beginning == REFUSED:
        assert "999" in text
