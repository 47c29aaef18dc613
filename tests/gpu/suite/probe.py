"""Probes CUPTI's behaviour by ctypes, without fastprof: `python probe.py DEVICE QUESTION...`.

Each question needs a separate process, because changes to CUPTI are permanent.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import answering
import devices
from devices import NotAsked

# Numbers of CUPTI, the same in every release from 11.8 on.
KERNEL, EXTERNAL, DRIVER_KIND, RUNTIME_KIND = 10, 39, 4, 5
DRIVER, RUNTIME = 1, 2
CUSTOM2 = 5
#: Calls that launch a kernel, by domain.
LAUNCHES = {DRIVER: (307, 652), RUNTIME: (211, 430)}
#: Above all numbers of calls.
MOST_CALLS = 1024
CORRELATION = {KERNEL: 92, EXTERNAL: 16, DRIVER_KIND: 32, RUNTIME_KIND: 32}
FORCED = 1

REQUEST = ctypes.CFUNCTYPE(
    None, *(ctypes.POINTER(t) for t in (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t))
)
COMPLETE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
CLOCK = ctypes.CFUNCTYPE(ctypes.c_uint64)


class Cupti:
    """CUPTI of this process; keeps every call's result."""

    def __init__(self, device: Any) -> None:
        self.path = device.cupti_path()
        self.library = ctypes.CDLL(self.path)
        self.results: dict[str, int] = {}
        self.kept: list[Any] = []  # objects to which CUPTI has pointers

    def has(self, name: str) -> bool:
        return hasattr(self.library, name)

    def call(self, name: str, *arguments: Any, may_fail: bool = False) -> int:
        result = int(getattr(self.library, name)(*arguments))
        self.results[name] = result
        if result != 0 and not may_fail:
            raise RuntimeError(f"{name} returned {result}")
        return result

    def version(self) -> int:
        version = ctypes.c_uint32()
        self.call("cuptiGetVersion", ctypes.byref(version))
        return version.value

    def now(self) -> int:
        ns = ctypes.c_uint64()
        self.call("cuptiGetTimestamp", ctypes.byref(ns))
        return ns.value

    def subscribe(self, callback: Any) -> ctypes.c_void_p:
        slot = ctypes.c_void_p()
        self.kept.append(callback)
        self.call("cuptiSubscribe", ctypes.byref(slot), callback, None)
        return slot

    def about(self) -> dict[str, Any]:
        return {"cupti": self.path, "version": self.version(), "results": self.results}


class Records:
    """Receives CUPTI's activity records.

    ``rows`` has (kind, correlation, start or external id, end) in the order of delivery.
    """

    def __init__(self, cupti: Cupti, size_bytes: int) -> None:
        self.cupti = cupti
        self.size = size_bytes
        self.rows: list[tuple[int, int, int, int]] = []
        self.buffers: dict[int, Any] = {}
        self.delivered = 0
        callbacks = REQUEST(self._request), COMPLETE(self._complete)
        cupti.kept.append(callbacks)
        cupti.call("cuptiActivityRegisterCallbacks", *callbacks)

    def _request(self, buffer: Any, size: Any, most: Any) -> None:
        memory = ctypes.create_string_buffer(self.size + 16)
        at = (ctypes.addressof(memory) + 15) // 16 * 16
        self.buffers[at] = memory
        buffer[0], size[0], most[0] = at, self.size, 0

    def _complete(self, _context: Any, _stream: int, at: int, _size: int, valid: int) -> None:
        record = ctypes.c_void_p()
        self.delivered += 1
        next_record = self.cupti.library.cuptiActivityGetNextRecord
        while valid and not next_record(
            ctypes.c_void_p(at), ctypes.c_size_t(valid), ctypes.byref(record)
        ):
            self._read(record.value or 0)
        self.buffers.pop(at, None)

    def _read(self, at: int) -> None:
        def u32(offset: int) -> int:
            return ctypes.c_uint32.from_address(at + offset).value

        def u64(offset: int) -> int:
            return ctypes.c_uint64.from_address(at + offset).value

        kind = u32(0)
        if kind == KERNEL:
            self.rows.append((kind, u32(92), u64(16), u64(24)))
        elif kind == EXTERNAL:
            self.rows.append((kind, u32(16), u64(8), u32(4)))
        elif kind in (DRIVER_KIND, RUNTIME_KIND):
            self.rows.append((kind, u32(32), u64(8), u64(16)))

    def count(self, kind: int = KERNEL) -> int:
        return sum(row[0] == kind for row in self.rows)

    def flush(self, flags: int = 0) -> int:
        """Flush; return the number of kernels delivered so far."""
        self.cupti.call("cuptiActivityFlushAll", ctypes.c_uint32(flags))
        return self.count()


def probe_flush(device: Any) -> dict[str, Any]:
    """Does a flush withhold finished activities while the device is busy?"""
    cupti = Cupti(device)
    records = Records(cupti, 64 << 10)
    cupti.call("cuptiActivityEnable", KERNEL)
    device.warm_up(0.5)
    device.finish()
    first = records.flush()
    device.launch(10)
    device.spin(500)
    time.sleep(0.1)
    behind_long = records.flush() - first
    device.finish()
    when_idle = records.flush() - first
    # Short kernels in a row, like those of a training program that never waits.
    before, begin = records.count(), time.monotonic()
    for _ in range(600):
        device.spin(1)
    launched_s = time.monotonic() - begin
    series = []
    while time.monotonic() - begin < 0.5:
        time.sleep(0.05)
        series.append((round(time.monotonic() - begin, 3), records.flush() - before))
    device.finish()
    row = records.flush() - before
    forced = records.flush(FORCED) - before
    cupti.call("cuptiActivityDisable", KERNEL)
    return cupti.about() | {
        "short_kernels": 10,
        "behind_long": behind_long,
        "when_idle": when_idle,
        "row": {
            "launched": 600,
            "launched_s": launched_s,
            "series": series,
            "idle": row,
            "forced": forced,
        },
        "buffers": records.delivered,
    }


def probe_clock(device: Any) -> dict[str, Any]:
    """Which clock does CUPTI use after another client has registered one?  Can we replace it?"""
    cupti = Cupti(device)
    found: dict[str, Any] = {"available": cupti.has("cuptiActivityRegisterTimestampCallback")}
    found["offset_ns"] = cupti.now() - time.time_ns()
    if not found["available"]:
        return cupti.about() | found
    foreign = CLOCK(lambda: time.monotonic_ns() + (7 << 60))
    real = CLOCK(time.time_ns)
    cupti.kept += [foreign, real]

    def register(clock: Any) -> int:
        return cupti.call("cuptiActivityRegisterTimestampCallback", clock, may_fail=True)

    found["foreign_code"] = register(foreign)
    found["follows"] = abs(cupti.now() - (time.monotonic_ns() + (7 << 60))) < 10**9
    found["null_code"] = register(None)
    found["replaced_code"] = register(real)
    found["replaced"] = abs(cupti.now() - time.time_ns()) < 10**9
    records = Records(cupti, 1 << 20)
    cupti.call("cuptiActivityEnable", KERNEL)
    begin = time.time_ns()
    device.launch(50)
    device.finish()
    end = time.time_ns()
    records.flush()
    records.flush(FORCED)
    cupti.call("cuptiActivityDisable", KERNEL)
    slack = 10_000_000
    kernels = [row for row in records.rows if row[0] == KERNEL]
    wrong = [
        i
        for i, (_, _, start, stop) in enumerate(kernels)
        if not (begin - slack <= start <= end + slack and abs(stop - start) < slack)
    ]
    found |= {"records": len(kernels), "wrong": wrong}
    found["times"] = [(row[2] - begin, row[3] - row[2]) for row in kernels[:60]]
    return cupti.about() | found


class Calls:
    """A callback in Python that stores (domain, cbid, site, correlation id)."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []
        self.callback = CALLBACK(self._called)

    def _called(self, _user: Any, domain: int, cbid: int, data: int) -> None:
        site = ctypes.c_int.from_address(data).value
        correlation = ctypes.c_uint32.from_address(data + 64).value
        self.rows.append((domain, cbid, site, correlation))


def probe_nested(device: Any) -> dict[str, Any]:
    """Does a driver call inside a runtime call have the same correlation id?"""
    cupti = Cupti(device)
    calls = Calls()
    slot = cupti.subscribe(calls.callback)
    for domain in (DRIVER, RUNTIME):
        cupti.call("cuptiEnableDomain", ctypes.c_uint32(1), slot, domain)
    device.launch(10)
    device.finish()
    cupti.call("cuptiUnsubscribe", slot)
    outer: tuple[int, int, int, int] | None = None
    pairs: Counter[str] = Counter()
    for row in calls.rows:
        domain, cbid, site, correlation = row
        if domain == RUNTIME:
            outer = row if site == 0 else None
        elif site == 0 and cbid in LAUNCHES[DRIVER]:
            same = outer is not None and outer[3] == correlation
            pairs["alone" if outer is None else "equal" if same else "different"] += 1
    runtime = sum(r[0] == RUNTIME and r[2] == 0 and r[1] in LAUNCHES[RUNTIME] for r in calls.rows)
    return cupti.about() | {
        "launched": 10,
        "runtime_launches": runtime,
        "driver_launches": dict(pairs),
        "calls": calls.rows[:200],
    }


def probe_ids(device: Any) -> dict[str, Any]:
    """Do correlation ids restart when the subscriber leaves?"""
    cupti = Cupti(device)
    seen = []
    for _ in range(2):
        calls = Calls()
        slot = cupti.subscribe(calls.callback)
        for domain, cbids in LAUNCHES.items():
            for cbid in cbids:
                cupti.call("cuptiEnableCallback", ctypes.c_uint32(1), slot, domain, cbid)
        device.launch(100)
        device.finish()
        cupti.call("cuptiUnsubscribe", slot)
        ids = [row[3] for row in calls.rows]
        seen.append({"calls": len(ids), "first": min(ids, default=0), "last": max(ids, default=0)})
    return cupti.about() | {"subscriptions": seen}


def probe_external(device: Any) -> dict[str, Any]:
    """Do external ids come with kernels if only launching calls have records?

    Three ways: such calls are enabled ``alone``; ``all`` calls are enabled; all are, and the
    others are left out (``selected``).  ``after``: the same once more, to see whether a kind that
    was disabled and enabled again still leaves calls out.
    """
    cupti = Cupti(device)
    if not cupti.has("cuptiActivityEnableRuntimeApi"):
        return cupti.about() | {"available": False}
    records = Records(cupti, 1 << 20)
    for kind in (KERNEL, EXTERNAL):
        cupti.call("cuptiActivityEnable", kind)
    enable = {
        RUNTIME: "cuptiActivityEnableRuntimeApi",
        DRIVER: "cuptiActivityEnableDriverApi",
    }

    def kinds(function: str) -> None:
        for kind in (RUNTIME_KIND, DRIVER_KIND):
            cupti.call(function, kind)

    def select(launching: bool, on: int) -> None:
        for domain, function in enable.items():
            for cbid in range(1, MOST_CALLS):
                if (cbid in LAUNCHES[domain]) == launching:
                    number, value = ctypes.c_uint32(cbid), ctypes.c_uint8(on)
                    cupti.call(function, number, value, may_fail=True)

    ways = {}
    for number, name in enumerate(("alone", "all", "selected", "after")):
        if name == "alone":
            select(True, 1)
        else:
            kinds("cuptiActivityEnable")
        if name == "selected":
            select(False, 0)
        records.rows.clear()
        mark = 0x5EED0000 + number
        cupti.call("cuptiActivityPushExternalCorrelationId", CUSTOM2, ctypes.c_uint64(mark))
        device.launch(5)
        last = ctypes.c_uint64()
        cupti.call("cuptiActivityPopExternalCorrelationId", CUSTOM2, ctypes.byref(last))
        device.finish()
        records.flush(FORCED)
        ours = {row[1] for row in records.rows if row[0] == EXTERNAL and row[2] == mark}
        kernels = [row[1] for row in records.rows if row[0] == KERNEL]
        ways[name] = {
            "popped": last.value == mark,
            "kernels": len(kernels),
            "calls": records.count(RUNTIME_KIND) + records.count(DRIVER_KIND),
            "external": records.count(EXTERNAL),
            "joined": sum(correlation in ours for correlation in kernels),
        }
        if name != "alone":
            kinds("cuptiActivityDisable")
    return cupti.about() | {"available": True, "launched": 5, "ways": ways}


def probe_cost(device: Any) -> dict[str, Any]:
    """Measure the ns of an empty callback, of a record, and of a push and pop."""
    cupti = Cupti(device)
    nothing = ctypes.CDLL(None).labs  # accepts any argument and returns at once
    address = ctypes.cast(nothing, ctypes.c_void_p)
    records = Records(cupti, 8 << 20)
    device.warm_up(0.5)
    count, found = 3000, {}
    kinds: dict[str, list[int]] = {
        name: [] for name in ("off", "driver", "runtime", "both", "kind")
    }

    def one_round() -> int:
        device.finish()
        begin = time.perf_counter_ns()
        device.launch(count)
        took = time.perf_counter_ns() - begin
        device.finish()
        return took

    for _ in range(5):
        for name, times in kinds.items():
            slot = None
            if name == "kind":
                cupti.call("cuptiActivityEnable", KERNEL)
            elif name != "off":
                slot = cupti.subscribe(address)
                for domain, cbids in LAUNCHES.items():
                    if name in ("both", {DRIVER: "driver", RUNTIME: "runtime"}[domain]):
                        for cbid in cbids:
                            one = ctypes.c_uint32(1)
                            cupti.call("cuptiEnableCallback", one, slot, domain, cbid)
            times.append(one_round())
            if slot is not None:
                cupti.call("cuptiUnsubscribe", slot)
            if name == "kind":
                records.flush(FORCED)
                cupti.call("cuptiActivityDisable", KERNEL)
    base = min(kinds["off"])
    found["launch_ns"] = base / count
    for name in ("driver", "runtime", "both", "kind"):
        found[f"{name}_ns"] = (min(kinds[name]) - base) / count

    def loop(call: Callable[[], object], rounds: int = 20_000) -> float:
        begin = time.perf_counter_ns()
        for _ in range(rounds):
            call()
        return (time.perf_counter_ns() - begin) / rounds

    push = cupti.library.cuptiActivityPushExternalCorrelationId
    pop = cupti.library.cuptiActivityPopExternalCorrelationId
    mark, last = ctypes.c_uint64(1), ctypes.byref(ctypes.c_uint64())
    cupti.call("cuptiActivityEnable", EXTERNAL)
    cupti.call("cuptiActivityPushExternalCorrelationId", CUSTOM2, mark)
    cupti.call("cuptiActivityPopExternalCorrelationId", CUSTOM2, last)

    def both() -> None:
        push(CUSTOM2, mark)
        pop(CUSTOM2, last)

    def neither() -> None:
        nothing(CUSTOM2, mark)
        nothing(CUSTOM2, last)

    loop(both)
    found["push_pop_ns"] = min(loop(both) for _ in range(3)) - min(loop(neither) for _ in range(3))
    return cupti.about() | found


PROGRAMS = (probe_flush, probe_clock, probe_nested, probe_ids, probe_external, probe_cost)

if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise NotAsked("python probe.py DEVICE QUESTION...")
    answering.main(PROGRAMS, devices.open_device)
