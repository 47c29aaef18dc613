"""``fastprof doctor`` with the fake driver and the fake libcupti."""

from __future__ import annotations

from pathlib import Path

import fastprof
import pytest
from fake_handles import FakeGpu
from helpers import run_child, time_scale

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)
# Hide the machine's own libraries: they must not replace a refusal of the fake.
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


def _environment(fake: FakeGpu) -> dict[str, str]:
    return {
        "PYTHONPATH": SOURCE_PATH,
        "FASTPROF_CUPTI": str(fake.cupti),
        "FASTPROF_CUDA_DRIVER": str(fake.driver),
        "FASTPROF_NVML": str(fake.nvml),
        "FAKE_CUPTI_SET": "needs_driver=1",
        "CUDA_HOME": "",
    }


def gpu_lines(fake: FakeGpu, **env: str) -> list[tuple[str, str]]:
    result = run_child(DOCTOR, env=_environment(fake) | env).check()
    lines = result.stdout.splitlines()
    width = max(len(line.partition("  ")[0]) for line in lines)
    rows: list[tuple[str, str]] = []
    for line in lines:
        name, text = line[:width].strip(), line[width:].strip()
        if name:
            rows.append((name, text))
        else:  # the rest of a text that is wider than the terminal
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {text}")
    first = [name for name, _ in rows].index("gpu")
    return rows[first:]


def test_all_is_well(fake_gpu: FakeGpu) -> None:
    rows = gpu_lines(fake_gpu, FAKE_CUDA_DEVICES="2")
    health = ["gpu health"] * 2
    assert [name for name, _ in rows] == [
        *("gpu", "gpu 0", "gpu 1"),
        *(*health, "libcupti", "gpu records", "gpu graphs", "gpu clock", "gpu launches"),
        "gpu times",
    ]
    assert rows[0][1] == "driver of CUDA 13.0, 2 devices"
    told = "60 C, SM clock 1980 MHz, 350 W, throttling is reported"
    assert [text for _, text in rows[3:5]] == [f"device {i}: {told}" for i in range(2)]
    assert rows[5][1] == f"{fake_gpu.cupti}, version 130001, FASTPROF_CUPTI"
    assert rows[6][1].startswith("kernel records are switched off at the end of a recording: ")
    assert rows[7][1].startswith("CUDA graphs have no place in a process's second recording: ")
    assert rows[8][1].startswith("CUPTI's, which counts nanoseconds as the system's does")
    assert rows[9][1].startswith("callbacks of CUDA's runtime and driver; if 1000 calls ")
    assert rows[10][1] == "can be recorded, by launch callbacks"


@pytest.mark.parametrize(("release", "defects"), [(12080, 2), (13000, 1), (13010, 0)])
def test_what_is_chosen_because_of_a_defect_of_cupti_is_told(
    fake_gpu: FakeGpu, release: int, defects: int
) -> None:
    rows = dict(gpu_lines(fake_gpu, FAKE_CUPTI_RELEASE=str(release)))
    around = {
        "stay on": "stay on between recordings: before CUDA 13.0" in rows["gpu records"],
        "no place": "no place in a process's second recording: before" in rows["gpu graphs"],
    }
    assert sum(around.values()) == defects, rows
    assert "chosen by the version" in rows["gpu records"]
    assert rows["gpu times"] == "can be recorded, by launch callbacks"


def test_a_clock_that_cupti_has_from_another_library_is_told(fake_gpu: FakeGpu) -> None:
    rows = dict(gpu_lines(fake_gpu, FAKE_CUPTI_SET="needs_driver=1,foreign_at_load=1"))
    assert (
        rows["gpu clock"] == "the system's, in place of CUPTI's, which does not count nanoseconds"
    )
    assert rows["gpu times"] == "can be recorded, by launch callbacks"


def test_f49_cuinit_fails(fake_gpu: FakeGpu) -> None:
    [(name, text)] = gpu_lines(fake_gpu, FAKE_CUDA_INIT="100")
    assert name == "gpu"
    assert text.startswith("n/a: the CUDA driver does not work: cuInit failed with 100 (")


def test_f49_the_subscriber_slot_is_held(fake_gpu: FakeGpu) -> None:
    text = gpu_lines(fake_gpu, FAKE_CUPTI_HOLDER="another tool")[-1][1]
    assert text.startswith("can be recorded, by external correlation, because ")
    assert "39" in text
    assert "gpu launches" not in [name for name, _ in gpu_lines(fake_gpu, FAKE_CUPTI_HOLDER="x")]


def test_f49_a_function_is_missing(fake_gpu: FakeGpu) -> None:
    path = str(fake_gpu.variant("cuptiActivityFlushAll"))
    rows = gpu_lines(fake_gpu, FASTPROF_CUPTI=path)
    why = f"{path} has no function cuptiActivityFlushAll: it is not libcupti"
    assert rows[3] == ("libcupti", f"not used: {why} (FASTPROF_CUPTI)")
    assert rows[4][1].startswith(NO_LIBCUPTI)


@pytest.mark.parametrize(
    ("function", "beginning"),
    [
        ("cuptiGetVersion", NO_LIBCUPTI),
        ("cuptiActivityRegisterCallbacks", REFUSED),
        ("cuptiActivityEnable", REFUSED),
        ("cuptiSubscribe", "can be recorded, by external correlation, because "),
        # A function needed only for the end does not prevent the start.
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


def health(fake: FakeGpu, **env: str) -> str:
    [text] = [text for name, text in gpu_lines(fake, **env) if name == "gpu health"]
    return text


def test_s1_22_without_nvml_there_is_one_line_with_the_cause(
    fake_gpu: FakeGpu, tmp_path: Path
) -> None:
    other = tmp_path / "libother.so"
    other.write_text("no library")
    assert health(fake_gpu, FASTPROF_NVML=str(other)).startswith(
        f"n/a: NVML cannot be loaded: {other}"
    )
    text = health(fake_gpu, FASTPROF_NVML=str(fake_gpu.driver))
    assert text == f"n/a: {fake_gpu.driver} has no function nvmlInit_v2: it is not NVML"
    text = health(fake_gpu, FAKE_NVML_FAIL="nvmlInit_v2:9")
    assert text == "n/a: nvmlInit_v2 failed with 9 (Fake Error)"


def test_s1_22_what_a_device_does_not_tell_is_n_a_and_never_0(fake_gpu: FakeGpu) -> None:
    text = health(fake_gpu, FAKE_NVML_SET="power=-1,reasons=-1,temperature=0")
    assert text == "device 0: 0 C, SM clock 1980 MHz, power n/a, throttling n/a"
    text = health(fake_gpu, FAKE_NVML_FAIL="nvmlDeviceGetHandleByPciBusId_v2:15")
    assert text == "device 0: temperature n/a, SM clock n/a, power n/a, throttling n/a"


def test_p9_a_hanging_nvml_does_not_hang_doctor(fake_gpu: FakeGpu) -> None:
    limit = f"{5 * time_scale():g}"
    code = DOCTOR.replace(
        "main([", f"from fastprof.cli import doctor_gpu\ndoctor_gpu.LIMIT_S = {limit}\nmain(["
    )
    assert "LIMIT_S" in code
    env = {"FAKE_NVML_HANG": "nvmlInit_v2"}
    text = run_child(code, env=_environment(fake_gpu) | env, timeout=60).check().stdout
    assert f"n/a: the process that asked NVML did not answer within {limit} s" in text
    assert "can be recorded, by launch callbacks" in text
