"""Builds the libraries of the NVTX tests: a client, a tool, a program without Python."""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers import ROOT, ChildResult, run_child

SOURCES = ROOT / "tests" / "gpu" / "nvtx_parts"
VARIABLE = "NVTX_INJECTION64_PATH"


def real_headers() -> str | None:
    """Return a folder with NVIDIA's nvtx3/nvToolsExt.h, or None."""
    found = sorted(glob.glob("/usr/local/cuda*/include/nvtx3/nvToolsExt.h"))
    return str(Path(found[-1]).parent.parent) if found else None


def compile_c(target: Path, source: Path, *options: str) -> Path:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no C compiler {compiler[0]}")
    command = [
        *compiler,
        *("-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror"),
        *("-I", str(ROOT / "csrc"), str(source), "-o", str(target)),
        *options,
        *("-pthread", "-ldl"),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stderr}"
    return target


def build_client(folder: Path, kind: str = "own") -> Path:
    """Build the client as a library; ``kind`` "real" uses NVIDIA's headers, or skips the test."""
    options = ["-shared", "-fPIC"]
    if kind == "real":
        headers = real_headers()
        if headers is None:
            pytest.skip("no nvtx3 headers on this machine")
        options += ["-DREAL_HEADERS", "-isystem", headers]
    return compile_c(folder / f"libclient-{kind}.so", SOURCES / "client.c", *options)


def build_listener(folder: Path) -> Path:
    options = ("-shared", "-fPIC", "-fvisibility=hidden")
    return compile_c(folder / "liblistener.so", SOURCES / "listener.c", *options)


def run_nvtx(code: str, *args: str, env: Mapping[str, str] | None = None) -> ChildResult:
    """Run `code` in a child that can import nvtx_child; the caller checks the result."""
    python_path = os.pathsep.join(filter(None, (str(SOURCES), os.environ.get("PYTHONPATH"))))
    # A tool that observes the test run must not interfere.
    clean = {VARIABLE: "", "NSYS_PROFILING_SESSION_ID": "", "CUDA_INJECTION64_PATH": ""}
    return run_child(code, *args, env={**clean, "PYTHONPATH": python_path, **(env or {})})
