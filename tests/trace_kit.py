"""What every trace must hold, by the rules of Chrome's event format and of its readers."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

#: Categories as torch.profiler has them, and our own for marks.
CATEGORIES = {
    "user_annotation",
    "python_function",
    "cpu_op",
    "cuda_runtime",
    "kernel",
    "gpu_memcpy",
    "gpu_memset",
    "ac2g",
    "fastprof",
}

METADATA = {
    "process_name",
    "process_labels",
    "process_sort_index",
    "thread_name",
    "thread_sort_index",
}


def load(path: Path) -> dict[str, Any]:
    """Read a trace, packed or not; JSON as strict as it comes."""
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    return dict(json.loads(content, parse_constant=lambda name: [][0]))


def check(data: dict[str, Any]) -> None:
    """Every event is as the format says, and the spans of each track are nested."""
    assert isinstance(data["baseTimeNanoseconds"], int)
    assert isinstance(data["distributedInfo"]["rank"], int)
    tracks = defaultdict(list)
    arrows: dict[str, dict[int, int]] = {"s": defaultdict(int), "f": defaultdict(int)}
    for event in data["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["pid"] >= 0
        assert 0 <= event["tid"] < 2**31
        assert event["ts"] >= 0
        phase = event["ph"]
        if phase == "M":
            assert event["name"] in METADATA
            assert len(event["args"]) == 1
            continue
        assert event["cat"] in CATEGORIES
        if phase == "X":
            assert event["dur"] >= 0
            if event["cat"] not in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime"):
                tracks[event["pid"], event["tid"]].append(event)
        elif phase == "C":
            assert all(isinstance(v, (int, float)) for v in event["args"].values())
        elif phase == "i":
            assert event["s"] == "p"
        else:
            arrows[phase][event["id"]] += 1
    assert arrows["s"].keys() == arrows["f"].keys()
    for events in tracks.values():
        _check_nested(events)


def _ns(us: float) -> int:
    return round(us * 1000)


def _check_nested(events: list[dict[str, Any]]) -> None:
    spans = sorted((_ns(e["ts"]), -_ns(e["dur"])) for e in events)
    stack: list[int] = []
    for start, minus in spans:
        end = start - minus
        while stack and stack[-1] <= start:
            stack.pop()
        assert not stack or end <= stack[-1], (start, end, stack[-1])
        stack.append(end)


def spans(data: dict[str, Any], name: str | None = None, cat: str | None = None) -> list[Any]:
    """Events with a duration, of a name or a category."""
    return [
        e
        for e in data["traceEvents"]
        if e["ph"] == "X" and name in (None, e["name"]) and cat in (None, e.get("cat"))
    ]
