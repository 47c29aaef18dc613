"""Invariants between two sets of tables; each function raises AssertionError."""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from typing import Any

OWN, INHERITED, CAPTURED, OTHER, UNKNOWN = range(5)
#: Counters that are 0 in a complete recording.
LOSSES = ("dropped", "discarded", "lost_launches", "truncated", "rows_dropped", "unknown_kind")


def nothing_is_missing(gpu: dict[str, Any]) -> None:
    """Check that no fault lost activities, and that rows add up."""
    counters = gpu["counters"]
    lost = {name: counters[name] for name in LOSSES if counters[name]}
    assert lost == {}, f"lost: {lost}"
    rows_ns = sum(row[7] for row in gpu["activity"])
    assert rows_ns == gpu["sum_ns"], f"rows add up to {rows_ns} ns, not {gpu['sum_ns']}"
    unknown = by_how(gpu)[UNKNOWN]
    assert unknown == 0, f"of {unknown} activities no launch was seen"


def by_how(gpu: dict[str, Any]) -> Counter[int]:
    """Return the number of activities by how their place was found."""
    count: Counter[int] = Counter()
    for row in gpu["activity"]:
        count[row[4]] += row[6]
    return count


def copies(gpu: dict[str, Any]) -> dict[str, list[int]]:
    """Return direction -> number and bytes."""
    found: dict[str, list[int]] = {}
    for row in gpu["activity"]:
        if -6 <= row[5] < 0:
            sums = found.setdefault(str(row[5]), [0, 0])
            sums[0] += row[6]
            sums[1] += row[8]
    return found


def kernel_counts(gpu: dict[str, Any]) -> Counter[str]:
    """Return launches by name, see :func:`plain_name`."""
    count: Counter[str] = Counter()
    for row in gpu["kernels"]:
        count[plain_name(row[0])] += row[12]
    return count


def shape(result: dict[str, Any]) -> dict[str, Any]:
    """Return the part that equals in two recordings of one program, independent of times."""
    gpu = result["gpu"]
    return {
        "kernels": kernel_counts(gpu),
        "copies": copies(gpu),
        "sections": {name: row["kernels"] for name, row in result["sections"].items()},
        "how": by_how(gpu),
    }


def plain_name(name: str) -> str:
    """Return a kernel's name, demangled and without spaces, in which demanglers differ."""
    if name.startswith("_Z"):
        name = _demangled(name)
    return re.sub(r"\s+", "", name)


def _demangled(name: str) -> str:
    demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int(-1)
    text = demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not text:
        return name
    plain = ctypes.string_at(text).decode()
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(text)
    return plain
