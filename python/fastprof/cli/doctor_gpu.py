"""The GPU part of ``fastprof doctor``.

Child processes query the driver, each libcupti and NVML: initialising CUDA takes memory of the
device and breaks later forks, some releases of libcupti crash, and NVML may hang.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import fastprof
from fastprof.capture.gpu_find import (
    Candidate,
    attached_tool,
    cupti_candidates,
    driver_path,
    nvml_path,
    usable,
)
from fastprof.report.figures import plural, size

#: Seconds for one child; initialising CUDA on a machine with many devices takes some.
LIMIT_S = 60.0

# Output of libraries goes to stderr, and a crash leaves no core file.
_CHILD = """\
import json, os, resource, sys
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if sys.argv[1] not in sys.path:
    sys.path.insert(0, sys.argv[1])
from fastprof import _core
driver, cupti, nvml = json.loads(sys.argv[2])
if sys.argv[3] == "probe":
    found = _core.gpu_probe(driver, cupti, True)
elif sys.argv[3] == "health":
    devices = _core.gpu_probe(driver, (), True)["driver"]["devices"]
    found = _core.nvml_probe(nvml, tuple(device["bus_id"] for device in devices))
else:
    recorder = _core.Recorder()
    found = recorder.gpu_start(cupti, driver, initialise=True, tier="auto")
    recorder.gpu_stop()
    gpu = recorder.export()["gpu"]
    found["clock_replaced"] = bool(gpu and gpu["counters"]["clocks_taken_back"])
json.dump(found, answer)
answer.close()
"""
_TIERS = {"callbacks": "launch callbacks", "external": "external correlation"}
_NVTX = "NVTX_INJECTION64_PATH"

#: Choices by CUPTI's version: the first without the defect (as in cupti_abi.h), the choice before
#: it, and the choice from it on.
_BY_VERSION = (
    (
        "gpu records",
        130001,
        (
            "kernel records stay on between recordings: before CUDA 13.0 update 1 switching them "
            "off can hang; chosen by the version, because a trial could hang"
        ),
        (
            "kernel records are switched off at the end of a recording: since CUDA 13.0 update 1 "
            "that does not hang; chosen by the version"
        ),
    ),
    (
        "gpu graphs",
        130101,
        (
            "CUDA graphs have no place in a process's second recording: before CUDA 13.1 update 1 "
            "their records have wrong ids; chosen by the version, because doctor launches nothing"
        ),
        (
            "CUDA graphs have their place in every recording: since CUDA 13.1 update 1 their "
            "records have the right ids; a recording that sees a wrong one gives graphs no place "
            "from then on"
        ),
    ),
)

#: The trial's result on CUPTI's clock: gpu/drainer_clock.c.
_CLOCKS = {
    False: "CUPTI's, which counts nanoseconds as the system's does; each recording compares both",
    True: "the system's, in place of CUPTI's, which does not count nanoseconds",
}

#: The choice of callbacks in a run: fp_gpu_nested in collector.h.
_LAUNCHES = (
    "callbacks of CUDA's runtime and driver; if 1000 calls of a runtime function have all called "
    "the driver, whose callback reports the same, a run switches off the runtime's callback; it "
    "switches it on again if a kernel arrives whose launch no callback reported"
)

Row = tuple[str, str]


def gpu_rows() -> list[Row]:
    """Return the lines on the GPU; a single one with the reason if it cannot be used."""
    driver = driver_path()
    told = _ask(driver, ())
    if isinstance(told, str):
        return [("gpu", f"n/a: the process that asked the CUDA driver {told}")]
    about = told["driver"]
    if about["state"] != "ready":
        return [("gpu", f"n/a: {about['reason']}")]
    devices = about["devices"]
    found = plural(len(devices), "device")
    rows = [("gpu", f"driver of CUDA {_cuda(about['version'])}, {found}")]
    rows += [(f"gpu {device['index']}", _describe(device)) for device in devices]
    rows += _health_rows(driver)
    return [*rows, *_cupti_rows(driver, about["version"]), *_nvtx_row()]


def _health_rows(driver: str | None) -> list[Row]:
    """Return the health of the devices, as far as each reports it."""
    told = _ask(driver, (), "health")
    name = "gpu health"
    if isinstance(told, str):
        return [(name, f"n/a: the process that asked NVML {told}")]
    if told["reason"]:
        return [(name, f"n/a: {told['reason']}")]
    return [(name, f"device {i}: {_health(d)}") for i, d in enumerate(told["devices"])]


def _health(device: Mapping[str, Any]) -> str:
    heat, clock, power = (device[k] for k in ("temperature_c", "sm_clock_mhz", "power_mw"))
    return ", ".join((
        "temperature n/a" if heat is None else f"{heat} C",
        "SM clock n/a" if clock is None else f"SM clock {clock} MHz",
        "power n/a" if power is None else f"{power / 1000:.0f} W",
        "throttling n/a" if device["reasons"] is None else "throttling is reported",
    ))  # fmt: skip


def _cupti_rows(driver: str | None, version: int) -> list[Row]:
    kept, rejected = usable(cupti_candidates(), version)
    rows: list[Row] = []
    for candidate in kept:
        cupti, problem = _open(driver, candidate)
        if cupti is not None:
            found = f"{candidate.path}, version {cupti}, {candidate.origin}"
            rows += [("libcupti", found), *_choices(cupti)]
            return [*rows, *_trial(driver, candidate)]
        if os.path.isabs(candidate.path) or "cannot open shared object" not in problem:
            rows.append(("libcupti", f"not used: {problem} ({candidate.origin})"))
    rows += [("libcupti", f"not used: {c.path} is {why} ({c.origin})") for c, why in rejected]
    return [*rows, ("gpu times", f"cannot be recorded: {_remedy(version)}")]


def _choices(version: int) -> list[Row]:
    """Return the choices for this release of CUPTI, and the reasons."""
    return [
        (name, before if version < mended else since) for name, mended, before, since in _BY_VERSION
    ]


def _open(driver: str | None, candidate: Candidate) -> tuple[int | None, str]:
    """Return the version of a libcupti, or None and the problem."""
    told = _ask(driver, (candidate.path,))
    if isinstance(told, str):
        return None, f"the process that asked {candidate.path} for its version {told}"
    if not told["cupti"]:  # the driver has failed since
        return None, f"{candidate.path} was not tried: {told['driver']['reason']}"
    answer = told["cupti"][0]
    return answer["version"], answer["reason"]


def _trial(driver: str | None, candidate: Candidate) -> list[Row]:
    """Try a recording; return whether and how it gets the GPU's times."""
    tool = attached_tool()
    if tool is not None:
        problem = f"{tool} is attached and receives all of the GPU's activity records"
        return [("gpu times", f"not recorded now: {problem}")]
    told = _ask(driver, (candidate.path,), "start")
    if isinstance(told, str):
        return [("gpu times", f"cannot be recorded: the trial process {told}")]
    if told["state"] != "on":
        return [("gpu times", f"cannot be recorded: {told['reason']}")]
    because = f", because {told['reason']}" if told["reason"] else ""
    rows = [("gpu clock", _CLOCKS[told["clock_replaced"]])]
    if told["tier"] == "callbacks":
        rows.append(("gpu launches", _LAUNCHES))
    return [*rows, ("gpu times", f"can be recorded, by {_TIERS[told['tier']]}{because}")]


def _ask(
    driver: str | None, cupti: Sequence[str], what: Literal["probe", "start", "health"] = "probe"
) -> dict[str, Any] | str:
    """Return a child's answer from the extension, or how it failed: it may crash or hang."""
    root = str(Path(fastprof.__file__).resolve().parent.parent)
    arguments = json.dumps([driver, list(cupti), nvml_path()])
    command = [sys.executable, "-I", "-c", _CHILD, root, arguments, what]
    try:
        child = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"did not answer within {LIMIT_S:.0f} s"
    except OSError as error:
        return f"could not be started ({error.strerror})"
    if child.returncode < 0:
        return f"crashed ({_signal_name(-child.returncode)})"
    try:
        told: dict[str, Any] = json.loads(child.stdout)
    except ValueError:
        return f"ended with status {child.returncode}"
    return told


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _cuda(version: int | None) -> str:
    return f"{version // 1000}.{version % 1000 // 10}" if version else "?"


def _describe(device: Mapping[str, Any]) -> str:
    major, minor = device["capability"]
    return (
        f"{device['name']}, {device['multiprocessors']} multiprocessors, "
        f"{size(device['memory_bytes'])}, compute capability {major}.{minor}"
    )


def _remedy(version: int | None) -> str:
    major = version // 1000 if version else 13
    package = "nvidia-cuda-cupti" if major >= 13 else f"nvidia-cuda-cupti-cu{major}"
    return (
        f"no libcupti here works with this driver; pip install {package}, or "
        f"FASTPROF_CUPTI=/path/to/libcupti.so.{major}"
    )


def _nvtx_row() -> list[Row]:
    value = os.environ.get(_NVTX, "")
    return [("nvtx", f"{_NVTX}={value}: NVTX ranges go there")] if value else []
