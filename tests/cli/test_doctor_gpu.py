"""GPU lines of ``fastprof doctor``, with drivers and libcuptis compiled here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fastprof
import pytest
from fastprof.capture import gpu_find
from fastprof.cli import doctor_gpu
from helpers import run_child

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)

DRIVER = r"""
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
#ifndef INIT
#define INIT 0
#endif
#ifndef DEVICES
#define DEVICES 1
#endif
static int initialised;
int cuInit(unsigned flags) {
    puts("a line on standard output");
    initialised = 1;
    while (INIT == -1) pause();
    return INIT;
}
int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
int cuDeviceGetCount(int *n) { *n = DEVICES; return initialised ? 0 : 3; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal + 7; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
    snprintf(name, (size_t)size, "Made-up GPU %d", device - 7);
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)24 << 30; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute * 10 + device - 7;
    return attribute == 106;
}
#ifndef NO_TEXT
int cuGetErrorString(int result, const char **text) { *text = "a text"; return 0; }
#endif
"""

CUPTI = r"""
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
int cuptiGetVersion(uint32_t *version) {
    *version = 26;
#ifdef CRASH
    abort();
#endif
#ifdef LEAVE
    _Exit(0);
#endif
    return RESULT;
}
int cuptiGetResultString(int result, const char **text) {
    *text = "CUPTI_ERROR_UNKNOWN";
    return RESULT;
}
#define MORE(name) int name(void) { return RESULT; }
#ifdef SUBSCRIBE
int cuptiSubscribe(void) { return SUBSCRIBE; }
#else
MORE(cuptiSubscribe)
#endif
MORE(cuptiUnsubscribe) MORE(cuptiEnableCallback)
MORE(cuptiActivityRegisterCallbacks) MORE(cuptiActivityDisable)
#ifdef START
int cuptiActivityEnable(int kind) { START; }
#else
MORE(cuptiActivityEnable)
#endif
MORE(cuptiActivityFlushAll) MORE(cuptiActivityGetNextRecord)
MORE(cuptiActivityGetNumDroppedRecords)
#ifndef OLD
int cuptiGetTimestamp(uint64_t *ns)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return RESULT;
}
#endif
MORE(cuptiActivityPushExternalCorrelationId) MORE(cuptiActivityPopExternalCorrelationId)
"""

Make = Callable[..., str]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Compile a library; hide the machine's own, and simulate that no tool is attached.

    Do not call NVML: tests/gpu/test_doctor_fake.py tests its line.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    for name in list(os.environ):
        if name.startswith(("FASTPROF_CU", "CUDA", "NSYS", "NV_", "NVTX")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(gpu_find, "_TOOLKITS", str(tmp_path / "cuda*"))
    monkeypatch.setattr(gpu_find, "SONAMES", ("libcupti.so.0.1",))
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(doctor_gpu, "_health_rows", lambda driver: [])

    def compile_it(name: str, source: str, *defines: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = [f"-D{define}" for define in defines]
        command = [compiler, "-shared", "-fPIC", *flags, "-x", "c", "-", "-o", str(path)]
        subprocess.run(command, input=source, text=True, check=True)
        return str(path)

    return compile_it


@pytest.fixture
def driver(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTPROF_CUDA_DRIVER", make("libcuda.so.1", DRIVER))


def test_without_a_driver_there_is_one_clean_line() -> None:
    if os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg"):
        pytest.skip("this machine has a GPU")
    [(name, text)] = doctor_gpu.gpu_rows()
    assert name == "gpu"
    assert text.startswith("n/a: no NVIDIA device in this machine")


def test_the_command_tells_the_same(make: Make) -> None:
    code = "from fastprof.cli import main\nmain(['doctor'])\n"
    env = {"PYTHONPATH": SOURCE_PATH, "FASTPROF_CUDA_DRIVER": make("cuda.so", DRIVER, "INIT=100")}
    result = run_child(code, env=env).check()
    [line] = [line for line in result.stdout.splitlines() if line.startswith("gpu")]
    name, text = line.split(None, 1)
    assert name == "gpu"
    assert text == ("n/a: the CUDA driver does not work: cuInit failed with 100 (a text)")
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("defines", "text"),
    [
        (["INIT=999"], "the CUDA driver does not work: cuInit failed with 999 (a text)"),
        (
            ["INIT=34", "NO_TEXT"],
            "the CUDA driver does not work: cuInit failed with 34 (no description)",
        ),
        (["DEVICES=0"], "the CUDA driver reports no device to this process"),
    ],
)
def test_f49_a_driver_that_does_not_work(
    make: Make, defines: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTPROF_CUDA_DRIVER", make("libcuda.so.1", DRIVER, *defines))
    assert doctor_gpu.gpu_rows() == [("gpu", f"n/a: {text}")]


def test_f49_a_library_that_is_no_driver(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make("libcuda.so.1", "int cuInit(unsigned flags) { return 0; }")
    monkeypatch.setenv("FASTPROF_CUDA_DRIVER", path)
    why = f"{path} has no function cuDriverGetVersion: it is not a CUDA driver"
    assert doctor_gpu.gpu_rows() == [("gpu", f"n/a: {why}")]


def test_f49_a_driver_that_hangs_is_given_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTPROF_CUDA_DRIVER", make("libcuda.so.1", DRIVER, "INIT=-1"))
    monkeypatch.setattr(doctor_gpu, "LIMIT_S", 1.0)
    why = "the process that asked the CUDA driver did not answer within 1 s"
    assert doctor_gpu.gpu_rows() == [("gpu", f"n/a: {why}")]


def test_doctor_says_what_works(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTPROF_CUDA_DRIVER", make("libcuda.so.1", DRIVER, "DEVICES=2"))
    cupti = make("my-cupti.so", CUPTI, "RESULT=0")
    monkeypatch.setenv("FASTPROF_CUPTI", cupti)
    rows = doctor_gpu.gpu_rows()
    assert rows[:-3] == [
        ("gpu", "driver of CUDA 12.8, 2 devices"),
        ("gpu 0", "Made-up GPU 0, 160 multiprocessors, 24.0 GiB, compute capability 9.0"),
        ("gpu 1", "Made-up GPU 1, 161 multiprocessors, 24.0 GiB, compute capability 9.0"),
        ("libcupti", f"{cupti}, version 26, FASTPROF_CUPTI"),
        # Version 26 is CUDA 12.8's, which has both defects.
        *[(name, before) for name, _, before, _ in doctor_gpu._BY_VERSION],
    ]
    assert [name for name, _ in rows[-3:-1]] == ["gpu clock", "gpu launches"]
    assert rows[-1] == ("gpu times", "can be recorded, by launch callbacks")


@pytest.mark.parametrize(
    ("define", "text"),
    [
        ("START=return 15", "cannot be recorded: .* 15 (CUPTI_ERROR_UNKNOWN)"),
        (
            "START=abort()",
            "cannot be recorded: the trial process crashed (SIGABRT)",
        ),
        ("START=_Exit(3)", "cannot be recorded: the trial process ended with status 3"),
        ("SUBSCRIBE=39", "can be recorded, by external correlation, because .*subscriber.* 39 .*"),
    ],
)
@pytest.mark.usefixtures("driver")
def test_f49_a_libcupti_that_opens_and_refuses_then(
    make: Make, define: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make("my-cupti.so", CUPTI, "RESULT=0", define)
    monkeypatch.setenv("FASTPROF_CUPTI", path)
    rows = doctor_gpu.gpu_rows()
    assert rows[2] == ("libcupti", f"{path}, version 26, FASTPROF_CUPTI")
    name, answer = rows[-1]
    assert name == "gpu times"
    pattern = text.replace("(", r"\(").replace(")", r"\)")
    assert re.fullmatch(pattern, answer), answer


@pytest.mark.parametrize(("version", "defects"), [(26, 2), (130000, 2), (130001, 1), (130101, 0)])
def test_what_a_release_is_given_is_named_with_its_reason(version: int, defects: int) -> None:
    texts = [text for _, text in doctor_gpu._choices(version)]
    assert len(texts) == 2
    assert sum(": before CUDA 13." in text for text in texts) == defects
    assert sum(": since CUDA 13." in text for text in texts) == 2 - defects


@pytest.mark.parametrize(
    ("defines", "problem"),
    [
        (["RESULT=999"], "cuptiGetVersion of {path} failed with 999"),
        (
            ["RESULT=0", "CRASH"],
            "the process that asked {path} for its version crashed (SIGABRT)",
        ),
        (
            ["RESULT=0", "LEAVE"],
            "the process that asked {path} for its version ended with status 0",
        ),
        (["RESULT=0", "OLD"], "{path} has no function cuptiGetTimestamp: it is not libcupti"),
    ],
)
@pytest.mark.usefixtures("driver")
def test_f49_a_libcupti_that_does_not_work_is_reported_and_the_next_is_tried(
    make: Make, defines: list[str], problem: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = make("libcupti.so.12", CUPTI, *defines)
    monkeypatch.setenv("FASTPROF_CUPTI", path)
    sentence = f"not used: {problem.format(path=path)} (FASTPROF_CUPTI)"
    rows = doctor_gpu.gpu_rows()
    assert rows[2] == ("libcupti", sentence)
    assert rows[3][1] == (
        "cannot be recorded: no libcupti here works with this driver; "
        "pip install nvidia-cuda-cupti-cu12, or FASTPROF_CUPTI=/path/to/libcupti.so.12"
    )
    assert len(rows) == 4
    other = make("home/lib64/libcupti.so.12", CUPTI, "RESULT=0")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    rows = doctor_gpu.gpu_rows()
    assert rows[2:4] == [
        ("libcupti", sentence),
        ("libcupti", f"{other}, version 26, CUDA_HOME"),
    ]


@pytest.mark.usefixtures("driver")
def test_f49_a_libcupti_that_is_too_new_is_not_opened(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make("libcupti.so.13", CUPTI, "RESULT=0", "CRASH")
    monkeypatch.setenv("FASTPROF_CUPTI", path)
    why = "made for CUDA 13; the driver is of CUDA 12.8"
    assert doctor_gpu.gpu_rows()[2] == ("libcupti", f"not used: {path} is {why} (FASTPROF_CUPTI)")


@pytest.mark.usefixtures("driver")
def test_who_is_attached_and_where_ranges_go(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTPROF_CUPTI", make("my-cupti.so", CUPTI, "RESULT=0"))
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/opt/tool.so")
    why = (
        "Nsight Systems (NSYS_PROFILING_SESSION_ID is set) is attached and receives all of the "
        "GPU's activity records"
    )
    assert doctor_gpu.gpu_rows()[-2:] == [
        ("gpu times", f"not recorded now: {why}"),
        ("nvtx", "NVTX_INJECTION64_PATH=/opt/tool.so: NVTX ranges go there"),
    ]


@pytest.mark.usefixtures("driver")
def test_p8_what_lies_in_the_working_directory_is_not_used(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("libcupti.so.12", "nvidia/cuda_cupti/lib/libcupti.so.12", "lib64/libcupti.so.12"):
        make(f"cwd/{name}", CUPTI, "RESULT=0")
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr(gpu_find, "SONAMES", ("libcupti.so.12",))
    monkeypatch.setattr(sys, "path", ["", "."])
    monkeypatch.setenv("CUDA_HOME", ".")
    monkeypatch.setenv("FASTPROF_CUPTI", "./libcupti.so.12")
    rows = doctor_gpu.gpu_rows()
    assert not any(str(tmp_path) in text for _, text in rows)
    assert not any("version 26" in text for _, text in rows)
