"""Finds real CUPTI headers and libraries on this machine.

It searches CUDA_HOME, CUDA_PATH, /usr/local/cuda* and the ``nvidia`` folders of every sys.path
entry (so PYTHONPATH can add an unpacked wheel).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path


def _toolkits() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    yield from sorted(Path("/usr/local").glob("cuda*"))


def _unique(paths: Iterator[Path]) -> list[Path]:
    return list(dict.fromkeys(path.resolve() for path in paths))


def _folders(toolkit: tuple[str, ...], wheel: str) -> Iterator[Path]:
    for home in _toolkits():
        for name in toolkit:
            yield home / name
    for entry in sys.path:
        yield from sorted(Path(entry or ".").glob(f"nvidia/*/{wheel}"))


def include_dirs() -> list[Path]:
    """Return the folders with cupti_activity.h."""
    folders = _folders(("include", "extras/CUPTI/include"), "include")
    return _unique(f for f in folders if (f / "cupti_activity.h").exists())


def cuda_include() -> Path | None:
    """Return a folder with cuda.h, which CUPTI's headers need but CUPTI's wheels lack."""
    for folder in _folders(("include",), "include"):
        if (folder / "cuda.h").exists():
            return folder
    return None


def libraries() -> list[Path]:
    """Return every real libcupti once."""
    folders = _folders(("lib64", "lib", "extras/CUPTI/lib64"), "lib")
    return _unique(p for f in folders for p in sorted(f.glob("libcupti.so*")))


def header_version(include: Path) -> int:
    """Return CUPTI_API_VERSION of a header set."""
    text = (include / "cupti_version.h").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^#define\s+CUPTI_API_VERSION\s+(\d+)", text, re.M)
    assert found is not None, include
    return int(found[1])


def newest(struct: str, include: Path) -> str:
    """Return the header's newest version of a struct: ``CUpti_ActivityKernel10``."""
    text = (include / "cupti_activity.h").read_text(encoding="utf-8", errors="replace")
    numbers = [int(n or 1) for n in re.findall(rf"}} *{struct}(\d*);", text)]
    assert numbers, f"{include} has no {struct}"
    return struct + (str(max(numbers)) if max(numbers) > 1 else "")


def cbids(include: Path, domain: str) -> dict[int, str]:
    """Return numbers and names of the calls of a domain ("runtime" or "driver")."""
    path = include / f"cupti_{domain}_cbid.h"
    text = path.read_text(encoding="utf-8", errors="replace")
    rows = re.findall(rf"CUPTI_{domain.upper()}_TRACE_CBID_(\w+)\s*=\s*(\d+)", text)
    return {
        int(number): name for name, number in rows if name not in ("INVALID", "SIZE", "FORCE_INT")
    }
