"""Builds the fake libcupti, driver and NVML, and the module that uses them.

    python3 tests/gpu/build_fake.py DIRECTORY     builds all of them, for manual use

Needs a C compiler ($CC, or cc) and the interpreter's headers; nothing else.
"""

from __future__ import annotations

import atexit
import functools
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "fake"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
CUPTI = [
    SOURCES / name
    for name in (
        "fake_buffers.c",
        "fake_control.c",
        "fake_cupti.c",
        "fake_device.c",
        "fake_records.c",
    )
]
# Like setup.py: a sanitized extension needs sanitized libraries.
SANITIZERS = {
    "": [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-fsanitize=thread"],
}
# Function -> first release of CUDA whose CUPTI has it.
SINCE = {
    "cuptiGetErrorMessage": 12020,
    "cuptiGetGraphExecId": 12040,
    "cuptiActivityEnableRuntimeApi": 12060,
    "cuptiActivityEnableDriverApi": 12060,
    "cuptiSubscribe_v2": 13000,
}


def compile_c(
    sources: Iterable[Path], target: Path, options: Iterable[str] = (), shared: bool = True
) -> Path:
    """Compile C files into one library or program; a failure shows the compiler's messages."""
    options = list(options)
    sanitizer = SANITIZERS[os.environ.get("FASTPROF_SANITIZE", "")]
    command = [
        *shlex.split(os.environ.get("CC", "cc")),
        "-std=c11",
        "-D_GNU_SOURCE",
        "-g",
        "-O1",
        *WARNINGS,
        *sanitizer,
        *(["-fPIC", "-fvisibility=hidden"] if shared else []),
        *(["-shared"] if shared and "-c" not in options else []),
        "-I",
        str(SOURCES),
        *map(str, sources),
        *options,
        "-o",
        str(target),
        "-pthread",
        "-ldl",
    ]
    # A sanitizer preloaded into the tests would find leaks in the compiler.
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    return target


def missing_in(release: int) -> list[str]:
    """Return the functions that the fake has but CUPTI of that release lacks."""
    return [name for name, since in SINCE.items() if release < since]


@functools.cache
def cupti_objects() -> list[Path]:
    """Compile the fake libcupti's files: once for all its variants."""
    folder = Path(tempfile.mkdtemp(prefix="fastprof-fake-cupti-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [compile_c([path], folder / f"{path.stem}.o", ["-c"]) for path in CUPTI]


def build_cupti(directory: Path, without: Iterable[str] = ()) -> Path:
    """Build the fake libcupti, without exporting the functions in ``without``."""
    options = []
    if names := "".join(f"{name};" for name in without):
        script = directory / "hidden"
        script.write_text(f"{{ local: {names} }};\n", encoding="utf-8")
        options = [f"-Wl,--version-script={script}"]
    return compile_c(cupti_objects(), directory / "libcupti.so", options)


def build_cuda(directory: Path) -> Path:
    """Build the fake driver.  It has the real SONAME, by which the fake libcupti finds it."""
    return compile_c(
        [SOURCES / "fake_cuda.c"], directory / "libcuda.so.1", ["-Wl,-soname,libcuda.so.1"]
    )


def build_nvml(directory: Path, without: Iterable[str] = ()) -> Path:
    """Build the fake NVML, without exporting the functions in ``without``."""
    hidden = [f"-D{name}=hidden_{name}" for name in without]
    return compile_c([SOURCES / "fake_nvml.c"], directory / "libnvidia-ml.so.1", hidden)


def build_module(directory: Path) -> Path:
    """Build the Python module ``fakegpu`` for the running interpreter."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    options = ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-pedantic"]
    for key in ("include", "platinclude"):
        options += ["-isystem", sysconfig.get_path(key)]
    return compile_c([SOURCES / "fake_torch.c"], directory / f"fakegpu{suffix}", options)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for build in (build_cupti, build_cuda, build_nvml, build_module):
        print(build(folder))
