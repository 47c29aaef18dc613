"""Handles of the fake GPU: its control API through ctypes, paths, environments of children."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import build_fake


class Kernel(ctypes.Structure):
    """fake_kernel of fake_cupti.h."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("duration_ns", ctypes.c_int64),
        ("device", ctypes.c_uint32),
        ("stream", ctypes.c_uint32),
        ("grid", ctypes.c_int32 * 3),
        ("block", ctypes.c_int32 * 3),
        ("registers", ctypes.c_uint32),
        ("static_shared", ctypes.c_uint32),
        ("dynamic_shared", ctypes.c_uint32),
        ("driver_only", ctypes.c_uint32),
        ("runtime_cbid", ctypes.c_uint32),
        ("driver_cbid", ctypes.c_uint32),
    ]


class Copy(ctypes.Structure):
    """fake_copy of fake_cupti.h."""

    _fields_ = [
        ("direction", ctypes.c_uint32),
        ("wait", ctypes.c_uint32),
        ("bytes", ctypes.c_uint64),
        ("duration_ns", ctypes.c_int64),
        ("device", ctypes.c_uint32),
        ("stream", ctypes.c_uint32),
        ("to_device", ctypes.c_uint32),
        ("driver_only", ctypes.c_uint32),
    ]


class Record(ctypes.Structure):
    """fake_record of fake_cupti.h."""

    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("type", ctypes.c_uint32),
        ("start", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("bytes", ctypes.c_uint64),
        ("device", ctypes.c_uint32),
        ("stream", ctypes.c_uint32),
        ("to_device", ctypes.c_uint32),
        ("correlation", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("graph", ctypes.c_uint32),
        ("graph_node", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("grid", ctypes.c_int32 * 3),
        ("block", ctypes.c_int32 * 3),
        ("registers", ctypes.c_uint32),
        ("static_shared", ctypes.c_uint32),
        ("dynamic_shared", ctypes.c_uint32),
        ("is_told", ctypes.c_uint32),
        ("is_spoiled", ctypes.c_uint32),
    ]


RESULTS = {
    "record_size": ctypes.c_size_t,
    "write_record": ctypes.c_size_t,
    "get": ctypes.c_int64,
    "kernel": ctypes.c_int64,
    "report": ctypes.c_size_t,
    "now": ctypes.c_int64,
    "launch": ctypes.c_uint32,
    "memcpy": ctypes.c_uint32,
    "memset": ctypes.c_uint32,
    "synchronize": ctypes.c_uint32,
    "graph_launch": ctypes.c_uint32,
    "capture_end": ctypes.c_void_p,
    "instantiate": ctypes.c_void_p,
    "release_of": ctypes.c_int,
    "set": ctypes.c_int,
    "set_version": ctypes.c_int,
    "fail": ctypes.c_int,
    "slow": ctypes.c_int,
}
ARGUMENTS = {
    "record_size": [ctypes.c_int, ctypes.c_uint32],
    "set": [ctypes.c_char_p, ctypes.c_int64],
    "set_version": [ctypes.c_uint32],
    "release_of": [ctypes.c_uint32],
    "get": [ctypes.c_char_p],
    "fail": [ctypes.c_char_p, ctypes.c_int, ctypes.c_int64],
    "slow": [ctypes.c_char_p, ctypes.c_int64],
    "set_time": [ctypes.c_int64],
    "advance": [ctypes.c_int64],
    "hold_subscriber": [ctypes.c_char_p],
    "memset": [ctypes.c_uint64, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint32],
    "instantiate": [ctypes.c_void_p],
    "graph_launch": [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32],
    "report": [ctypes.c_char_p, ctypes.c_size_t],
}


class Control:
    """The control API of a fake libcupti in this process.

    ``fake_cupti_NAME`` is the attribute ``NAME``; CUPTI's functions keep their names.
    """

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = getattr(self.library, name if name.startswith("cupti") else f"fake_cupti_{name}")
        if not name.startswith("cupti"):
            function.restype = RESULTS.get(name)
            if name in ARGUMENTS:
                function.argtypes = ARGUMENTS[name]
        setattr(self, name, function)
        return function

    def set_options(self, **options: int) -> None:
        for name, value in options.items():
            if self.set(name.encode(), value) != 0:
                raise ValueError(f"the fake has no option {name!r}")

    def count(self, name: str) -> int:
        value = self.get(name.encode())
        if value < 0:
            raise ValueError(f"the fake has no counter {name!r}")
        return value

    def launch_kernel(self, name: bytes | None = b"kernel", **fields: object) -> int:
        values: dict[str, object] = {"duration_ns": 1000, "stream": 7}
        values.update(fields)
        return self.launch(ctypes.byref(Kernel(name=name, **values)))

    def copy(self, **fields: object) -> int:
        return self.memcpy(ctypes.byref(Copy(**fields)))

    def counters(self) -> dict[str, object]:
        size = self.report(None, 0) + 4096
        text = ctypes.create_string_buffer(size)
        self.report(text, size)
        return json.loads(text.value)


@dataclass
class FakeGpu:
    """Paths of the fake's parts, and the environment with which a child process uses them."""

    directory: Path
    cupti: Path
    driver: Path
    nvml: Path
    _variants: dict[tuple[str, ...], Path] = field(default_factory=dict)

    def env(self, *, ready: bool = True, cupti: Path | None = None, **more: str) -> dict[str, str]:
        """Return the environment of a child.

        ``ready``: the program has initialised CUDA; ``more``: FAKE_CUPTI_*, FAKE_CUDA_* and
        FAKE_NVML_*.
        A CUPTI call before cuInit fails and counts as ``before_init``.
        """
        env = {k: v for k, v in os.environ.items() if not k.startswith(("FAKE_CU", "FAKE_NVML"))}
        env["FASTPROF_CUPTI"] = str(cupti or self.cupti)
        env["FASTPROF_CUDA_DRIVER"] = str(self.driver)
        env["FASTPROF_NVML"] = str(self.nvml)
        path = [str(self.directory), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(p for p in path if p)
        env["FAKE_CUDA_READY"] = "1" if ready else "0"
        options = ["needs_driver=1", more.pop("FAKE_CUPTI_SET", "")]
        env["FAKE_CUPTI_SET"] = ",".join(o for o in options if o)
        return env | more

    def run(
        self, code: str, *arguments: str, timeout: float = 120, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Python code in a child with the fake."""
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=self.env(**env),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def variant(self, *without: str) -> Path:
        """Return a libcupti that lacks these functions."""
        key = tuple(sorted(without))
        if key not in self._variants:
            folder = self.directory / f"variant{len(self._variants)}"
            folder.mkdir()
            self._variants[key] = build_fake.build_cupti(folder, key)
        return self._variants[key]

    def nvml_without(self, *functions: str) -> Path:
        """Return an NVML that lacks these functions."""
        key = ("nvml", *sorted(functions))
        if key not in self._variants:
            folder = self.directory / f"variant{len(self._variants)}"
            folder.mkdir()
            self._variants[key] = build_fake.build_nvml(folder, functions)
        return self._variants[key]

    def release(self, release: int) -> Path:
        """Return a libcupti with that release's functions; FAKE_CUPTI_RELEASE sets its layouts."""
        return self.variant(*build_fake.missing_in(release))
