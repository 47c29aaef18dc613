"""Shared by the children of the GPU tests: a recording in few lines, and its invariants.

Only children with the fake (fake_handles.FakeGpu.env) import it, never pytest itself.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import fakegpu
from fastprof._core import Recorder

_TIME_SCALE = float(os.environ.get("FASTPROF_TEST_TIME_SCALE", "1"))
#: How long the end of a recording waits for its last records; sanitizers decode them slowly.
STOP_S = 2.0 * _TIME_SCALE

CUPTI, DRIVER = os.environ.get("FASTPROF_CUPTI", ""), os.environ.get("FASTPROF_CUDA_DRIVER", "")
OWN, INHERITED, CAPTURED, OTHER, UNKNOWN = range(5)
COPIES = {-1: "HtoD", -2: "DtoH", -3: "DtoD", -4: "PtoP", -5: "HtoH", -6: "copy", -7: "memset"}
#: Counters that are 0 without faults.  Not "late": with such short periods the machine decides
#: whether an activity comes before its time is folded.
FAULTS = (
    "dropped discarded incomplete zero_time invalid unknown_kind truncated stale misdated"
    " lost_launches expired_launches negative_delay cupti_errors taken rows_dropped"
    " names_dropped timeline_lost graph_nodes_lost owners_lost"
).split()
#: Activity -> the fake's numbers of its kinds.
KINDS = {"kernels": ("10",), "copies": ("1", "22"), "memsets": ("2",), "whole_graphs": ("51",)}

Path_ = tuple[str, ...]


def delivered() -> Counter[str]:
    """Return the fake's counts of calls and delivered records so far."""
    report = fakegpu.counters()
    seen = Counter({name: report[name] for name in ("launches", "waits", "graph_launches")})
    seen["client_calls"] = report["total_calls"]
    seen["dropped"] = report["records_dropped"]
    for name, kinds in KINDS.items():
        for kind in kinds:
            of_kind = report["kinds"].get(kind, {})
            seen[name] += of_kind.get("count", 0)
            seen["sum_ns"] += of_kind.get("sum_ns", 0)
            seen["bytes"] += of_kind.get("bytes", 0)
            for fault in ("incomplete", "zero_time", "backwards", "spoiled"):
                seen[fault] += of_kind.get(fault, 0)
    return seen


def attach(r: Recorder, tier: str = "auto", **options: Any) -> dict[str, Any]:
    values = {"initialise": True, "period_s": 0.02, **options}
    return r.gpu_start([CUPTI], DRIVER, tier=tier, **values)


def begin(tier: str = "auto", *, functions: bool = True, **options: Any) -> Recorder:
    """Return a recorder that records sections, functions (if requested) and the GPU."""
    r = Recorder(skip_steps=0)
    answer = attach(r, tier, **options)
    assert answer["state"] == "on", answer
    r.start_sections()
    if functions:
        r.enable()
    r.mark()
    return r


def end(r: Recorder, timeout_s: float = STOP_S) -> Tables:
    r.disable()
    r.stop_sections()
    r.gpu_stop(timeout_s)
    return Tables(r)


@contextmanager
def recorded(tier: str = "auto", **options: Any) -> Iterator[Recording]:
    """Record the body; nothing may be missing.  See Recording."""
    recording = Recording(tier, options)
    try:
        yield recording
    finally:
        recording.finish()
    recording.check()


class Recording:
    """A recording, its tables, and the fake's deliveries meanwhile.

    The counters named in ``faults`` may differ from 0; ``check`` passes with any value.
    """

    def __init__(self, tier: str, options: dict[str, Any]) -> None:
        self.tier = tier
        self.faults: set[str] = set(options.pop("faults", ()))
        self.timeout_s = options.pop("timeout_s", STOP_S)
        self._before = delivered()
        self.recorder = begin(tier, **options)

    def finish(self) -> None:
        self.tables = end(self.recorder, self.timeout_s)
        after = delivered()
        after.subtract(self._before)
        self.delivered = after

    def check(self) -> None:
        self.tables.check()
        self.tables.no_faults(but=self.faults)
        self.tables.equals_delivered(self.delivered)


class Tables:
    """The GPU tables of a recorder with names instead of numbers."""

    def __init__(self, r: Recorder) -> None:
        self.all = r.export()
        self.gpu: dict[str, Any] = self.all["gpu"]
        self.counters: dict[str, int] = self.gpu["counters"]
        self._keys = [key[3] for key in self.all["keys"]]

    def path(self, thread: int, node: int) -> Path_ | None:
        """Return the names from the root to a node; None if there is no node."""
        if thread < 0:
            assert node == -1
            return None
        parents, keys = self.all["threads"][thread][2][:2]
        names: list[str] = []
        while node > 0:
            names.append(self._keys[keys[node]])
            node = parents[node]
        return tuple(reversed(names))

    def what(self, number: int) -> str:
        return self.gpu["kernels"][number][0] if number >= 0 else COPIES[number]

    @property
    def activity(self) -> dict[tuple[Path_ | None, Path_ | None, int, str], tuple[int, int, int]]:
        """Return (site, via, how, what) -> (count, ns, bytes)."""
        rows: dict[Any, Any] = {}
        for thread, node, via, via_node, how, what, *values in self.gpu["activity"]:
            key = (self.path(thread, node), self.path(via, via_node), how, self.what(what))
            rows[key] = tuple(a + b for a, b in zip(rows.get(key, (0, 0, 0)), values))
        return rows

    @property
    def host(self) -> dict[tuple[Path_ | None, Path_ | None, int], tuple[int, int]]:
        """Return (site, via, how) -> (launches, syncs)."""
        rows: dict[Any, Any] = {}
        for thread, node, via, via_node, how, launches, _, _, _, syncs, _ in self.gpu["host"]:
            key = (self.path(thread, node), self.path(via, via_node), how)
            before = rows.get(key, (0, 0))
            if launches or syncs:
                rows[key] = (before[0] + launches, before[1] + syncs)
        return rows

    def of(self, what: str) -> dict[tuple[Path_ | None, Path_ | None, int], int]:
        """Return (site, via, how) -> count, for one kernel or copy."""
        return {key[:3]: row[0] for key, row in self.activity.items() if key[3] == what}

    def hows(self) -> dict[int, int]:
        counts: Counter[int] = Counter()
        for key, row in self.activity.items():
            counts[key[2]] += row[0]
        return dict(counts)

    def check(self, *, final: bool = True) -> None:
        """Check the invariants of any table, with or without faults.

        Until the end, an activity may wait for its launch (external correlation).
        """
        rows = self.gpu["activity"]
        c = self.counters
        assert sum(row[7] for row in rows) == self.gpu["sum_ns"]
        without_time = sum(
            c[name] for name in ("incomplete", "zero_time", "invalid", "stale", "misdated")
        )
        attributed = sum(row[6] for row in rows)
        known = sum(c[name] for name in KINDS)
        assert attributed <= known, (attributed, c)
        assert attributed >= known - without_time or not final, (attributed, c)
        assert sum(row[5] for row in self.gpu["host"]) == c["launches"]
        assert sum(row[9] for row in self.gpu["host"]) == c["syncs"]
        assert sum(row[12] for row in self.gpu["kernels"]) <= c["kernels"] + c["whole_graphs"]
        # Cleared places share "no site"; any other site has at most one row of a kind.
        known_sites = [tuple(row[:6]) for row in rows if row[0] >= 0]
        assert len(set(known_sites)) == len(known_sites), rows
        for row in rows:
            assert row[6] > 0, row
            assert row[7] >= 0, row
            self.path(*row[:2])
            self.path(*row[2:4])
        for device in self.gpu["devices"]:
            for line in (device["whole"], device["steps"]):
                idle = sum(ns for _, ns in line["idle"])
                assert line["wall_ns"] == line["busy_ns"] + idle, line
                assert line["busy_ns"] <= self.gpu["sum_ns"] or not final, line
        nothing_forbidden()

    def no_faults(self, but: set[str] = frozenset()) -> None:
        faults = {name: self.counters[name] for name in FAULTS if self.counters[name]}
        assert not set(faults) - but, faults

    def equals_delivered(self, fake: Counter[str]) -> None:
        c = self.counters
        seen = {name: c[name] for name in KINDS}
        assert seen == {name: fake[name] for name in KINDS}, (c, fake)
        assert self.gpu["sum_ns"] == fake["sum_ns"], (self.gpu["sum_ns"], fake)
        without_time = fake["incomplete"] + fake["zero_time"] + fake["backwards"]
        assert c["incomplete"] + c["zero_time"] + c["invalid"] == without_time
        counted = sum(row[8] for row in self.gpu["activity"])
        if not without_time:
            assert counted == fake["bytes"]


def nothing_forbidden() -> None:
    """Check that the collector never did anything forbidden."""
    report = fakegpu.counters()
    forbidden = "before_init in_callback buffers_null buffers_short finalized"
    forbidden += " buffers_shared buffers_touched"
    for name in forbidden.split():
        assert report[name] == 0, (name, report[name])
    assert report["buffers_misaligned"] == 0
    calls = report["calls"]
    for name in ("cuptiFinalize", "cuptiActivityFlushPeriod", "cuptiSubscribe_v2"):
        assert calls[name] == 0, name
    gone = report["buffers_completed"] + report["buffers_stolen"] + report["buffers_held"]
    assert report["buffers_requested"] == gone + report["buffers_outstanding"], report


@contextmanager
def silence() -> Iterator[None]:
    """Fail if the body makes a CUPTI call."""
    before = fakegpu.counters()["total_calls"]
    yield
    assert fakegpu.counters()["total_calls"] == before


def in_thread(function: Callable[[], object], threads: int = 1) -> None:
    """Call it in separate threads; an exception ends the program."""
    failed: list[BaseException] = []

    def call() -> None:
        try:
            function()
        except BaseException as error:
            failed.append(error)

    started = [threading.Thread(target=call) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if failed:
        raise failed[0]


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait for other threads to make the condition true."""
    limit = time.monotonic() + seconds * _TIME_SCALE
    while not condition():
        if time.monotonic() > limit:
            sys.exit("it did not come true")
        time.sleep(0.002)
