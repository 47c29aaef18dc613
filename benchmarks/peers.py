"""The other profilers, and the floor, as candidates of the ``functions`` case."""

from __future__ import annotations

import cProfile
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

import baseline
from harness import Candidate

#: Names of the candidates to which the ratios refer.
NONE = "none"
EMPTY = "empty hook"
CLOCKED = "empty hook + 2 clock reads"
CPROFILE = "cProfile"


def _absent(module: str) -> str:
    return "" if importlib.util.find_spec(module) else "not installed"


class _Monitoring:
    """Empty callbacks for the events that fastprof registers, on a free tool id."""

    def __init__(self, native: ModuleType, clocked: bool) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        events = monitoring.events
        ends = ("PY_START", "PY_RESUME", "PY_THROW", "PY_RETURN", "PY_YIELD", "PY_UNWIND")
        calls = ("CALL", "C_RETURN", "C_RAISE")
        self._monitoring = monitoring
        self._callbacks = {
            getattr(events, name): native.make_callback(clocked, name in calls)
            for name in ends + calls
        }
        # C_RETURN and C_RAISE cannot be requested: they come with CALL.
        self._events = events.CALL
        for name in ends:
            self._events |= getattr(events, name)
        self._tool: int | None = None

    def start(self) -> None:
        tool = next(i for i in (3, 4, 2, 5) if self._monitoring.get_tool(i) is None)
        self._monitoring.use_tool_id(tool, "empty hook")
        for event, callback in self._callbacks.items():
            self._monitoring.register_callback(tool, event, callback)
        self._monitoring.set_events(tool, self._events)
        self._tool = tool

    def stop(self) -> None:
        if self._tool is not None:
            self._monitoring.set_events(self._tool, 0)
            for event in self._callbacks:
                self._monitoring.register_callback(self._tool, event, None)
            self._monitoring.free_tool_id(self._tool)
            self._tool = None


def _floor(name: str, clocked: bool) -> Candidate:
    native = baseline.load()
    if isinstance(native, str):
        return Candidate(name, missing=native)
    if sys.version_info >= (3, 12):
        hook = _Monitoring(native, clocked)
        return Candidate(name, hook.start, hook.stop)
    return Candidate(name, lambda: native.set_profile(clocked), native.clear_profile)


class _CProfile:
    def __init__(self) -> None:
        self._profile: cProfile.Profile | None = None

    def start(self) -> None:
        self._profile = cProfile.Profile()
        self._profile.enable()

    def stop(self) -> None:
        if self._profile is not None:
            self._profile.disable()
            self._profile = None


class _Yappi:
    def __init__(self) -> None:
        import yappi

        self._yappi: Any = yappi

    def start(self) -> None:
        self._yappi.set_clock_type("wall")
        self._yappi.start(builtins=True)

    def stop(self) -> None:
        self._yappi.stop()
        self._yappi.clear_stats()


class _VizTracer:
    def __init__(self) -> None:
        import viztracer

        self._tracer: Any = viztracer.VizTracer(verbose=0)
        self._clear_hooks()

    @staticmethod
    def _clear_hooks() -> None:
        """Remove hooks: before 3.12 it sets them when created, and leaves one when it stops."""
        sys.setprofile(None)
        threading.setprofile(None)

    def start(self) -> None:
        self._tracer.start()

    def stop(self) -> None:
        self._tracer.stop()
        self._tracer.clear()
        self._clear_hooks()


class _Pyinstrument:
    def __init__(self) -> None:
        self._session: Any = None

    def start(self) -> None:
        import pyinstrument

        self._session = pyinstrument.Profiler(interval=0.001, async_mode="disabled")
        self._session.start()

    def stop(self) -> None:
        self._session.stop()


def _tool(name: str, module: str, make: Any) -> Candidate:
    missing = _absent(module)
    if missing:
        return Candidate(name, missing=missing)
    tool = make()
    return Candidate(name, tool.start, tool.stop)


def floor() -> list[Candidate]:
    """Return no hook, the empty hook, and the empty hook that reads the clock at both ends."""
    return [Candidate(NONE), _floor(EMPTY, False), _floor(CLOCKED, True)]


def profilers() -> list[Candidate]:
    """Return the profilers to compare with, installed or not."""
    return [
        _tool(CPROFILE, "cProfile", _CProfile),
        _tool("yappi (wall)", "yappi", _Yappi),
        _tool("viztracer", "viztracer", _VizTracer),
        _tool("pyinstrument (1 ms)", "pyinstrument", _Pyinstrument),
    ]
