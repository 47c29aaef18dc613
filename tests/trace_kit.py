"""Checks of any trace, by the rules of Chrome's event format and of its readers."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

#: torch.profiler's categories, and our own for marks.
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
    """Read a trace, compressed or not, as strict JSON."""
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    return dict(json.loads(content, parse_constant=lambda name: [][0]))


def check(data: dict[str, Any]) -> None:
    """Check that every event follows the format, and that the spans of each track are nested."""
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


def ns(us: float) -> int:
    """Return a time of a trace, which is in microseconds with three decimals, in nanoseconds."""
    return round(us * 1000)


def _check_nested(events: list[dict[str, Any]]) -> None:
    spans = sorted((ns(e["ts"]), -ns(e["dur"])) for e in events)
    stack: list[int] = []
    for start, minus in spans:
        end = start - minus
        while stack and stack[-1] <= start:
            stack.pop()
        assert not stack or end <= stack[-1], (start, end, stack[-1])
        stack.append(end)


def spans(data: dict[str, Any], name: str | None = None, cat: str | None = None) -> list[Any]:
    """Return the events with a duration, of a name or a category."""
    return [
        e
        for e in data["traceEvents"]
        if e["ph"] == "X" and name in (None, e["name"]) and cat in (None, e.get("cat"))
    ]


def tracks(data: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Return the events with a duration by process and thread, in the order of the file."""
    out: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in spans(data):
        out[event["pid"], event["tid"]].append(event)
    return out


def check_pairs(data: dict[str, Any]) -> None:
    """Check that each end closes the last begin, for a reader that counts in floats.

    speedscope's rules (src/import/trace-event.ts): times count from the first of a track; begins
    and ends are two queues ordered by time, with the longer first of equal begins; an end precedes
    a begin at the same moment, unless it has the same name; of equal ends, the reader takes the end
    of the open span.
    """
    for events in tracks(data).values():
        first = min(e["ts"] for e in events)
        begins = sorted((e["ts"] - first, -e["dur"], i) for i, e in enumerate(events))
        ends = sorted((at - minus, n, i) for n, (at, minus, i) in enumerate(begins))
        opened: list[int] = []
        while ends:
            end, _, ending = ends[0]
            if begins:
                at, _, beginning = begins[0]
                same = events[beginning]["name"] == events[ending]["name"]
                if at < end or (at == end and same):
                    opened.append(begins.pop(0)[2])
                    continue
            equal = [i for moment, _, i in ends if moment == end]
            assert opened, events[ending]
            assert opened[-1] in equal, (events[ending], events[opened[-1]])
            ends = [e for e in ends if e[2] != opened[-1]]
            opened.pop()
