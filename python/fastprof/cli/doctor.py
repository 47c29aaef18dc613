"""``fastprof doctor``: what fastprof can record here, what it cannot, and why."""

import importlib.metadata
import importlib.util
import os
import platform
import sys
import sysconfig
from collections.abc import Sequence
from typing import Any

from fastprof._version import __version__
from fastprof.cli.output import write_text
from fastprof.cli.parsing import Parser
from fastprof.tables.layout import width_of, wrapped

_BIAS = (
    "this Python runs every bytecode slower while a profile hook is active; a run with steps "
    "measures that and corrects its times, other runs show too much time in pure Python code"
)
_GIL = {
    True: "on: another extension, PYTHON_GIL=1 or -X gil=1 has enabled it; threads run one at a "
    "time",
    False: "off: threads are recorded while they run at the same time",
}
_CLOCKS = {
    "tsc": "the processor's time stamp counter",
    "cntvct": "the processor's virtual counter",
    "monotonic": "clock_gettime(CLOCK_MONOTONIC), because this processor has no counter of "
    "constant speed; an event costs more than with one",
}
_ENABLE = (
    "nothing is recorded unless you ask for it: FASTPROF=1 python SCRIPT, "
    "fastprof run SCRIPT, or `with fastprof.Profiler() as prof:` in the program"
)


def run(argv: Sequence[str]) -> int:
    """Print one line per capability; 1 if the extension does not load, else 0."""
    Parser(
        prog="fastprof doctor",
        description="Print what fastprof can record here, what it cannot, and why.",
    ).parse_args(argv)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    rows = [("fastprof", __version__), ("python", f"{python}, {sys.platform} {platform.machine()}")]
    try:
        rows += _recorder()
    except ImportError as error:
        rows.append(("extension", f"does not load: {error}"))
        _print(rows)
        return 1
    from fastprof.cli.doctor_gpu import gpu_rows  # needs the extension

    rows += [
        ("switch", _switch()),
        ("torch", _package("torch", "fastprof demo trains a network in pure Python")),
        ("rich", _package("rich", "tables of --full are plain text")),
        *gpu_rows(),
    ]
    _print(rows)
    return 0


def _print(rows: list[tuple[str, str]]) -> None:
    longest = max(len(name) for name, _ in rows)
    width = width_of(sys.stdout)
    lines: list[str] = []
    for name, text in rows:
        lines += wrapped(text, width, f"{name.ljust(longest)}  ")
    write_text("\n".join(lines) + "\n")


def _recorder() -> list[tuple[str, str]]:
    from fastprof.capture.calibrate import calibration
    from fastprof.capture.convert import take_snapshot
    from fastprof.capture.options import Recorder
    from fastprof.errors import BusyError

    recorder = Recorder()
    clock = str(take_snapshot(recorder).meta["clock"])
    rows = [("extension", "loaded"), ("clock", f"{clock}: {_CLOCKS[clock]}")]
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        rows.append(("gil", _GIL[sys._is_gil_enabled()]))  # type: ignore[attr-defined, unused-ignore]
    try:
        recorder.enable()
    except BusyError as error:
        return [*rows, ("functions", f"cannot be recorded now: {error}"), *_tools()]
    recorder.disable()
    backend = recorder.backend
    if backend is None:
        return [*rows, ("functions", "not recorded: FASTPROF=0"), *_tools()]
    why = {
        "monitoring": "sys.monitoring, the cheaper hook",
        "setprofile": "PyEval_SetProfile"
        + ("; no tool id of sys.monitoring is free" if sys.version_info >= (3, 12) else
           ", the only hook before Python 3.12"),
    }  # fmt: skip
    rows.append(("functions", f"can be recorded: backend {backend} ({why.get(backend, '')})"))
    rows += [("constructors", constructors(backend)), ("threads", threads(backend))]
    cost = calibration(backend)
    if cost is not None:
        python = f"{cost.python.inside_ns + cost.python.outside_ns:.0f} ns per Python call"
        c = f"{cost.c.inside_ns + cost.c.outside_ns:.0f} ns per C call"
        rows.append(("hook cost", f"{python}, {c}; reports subtract it"))
    # 3.12 builds this hook on sys.monitoring, which changes only the calls.
    if sys.version_info < (3, 12):
        rows.append(("bias", _BIAS))
    return [*rows, *_tools()]


def constructors(backend: str) -> str:
    """Return whether calls of classes and of callable objects are recorded."""
    if backend == "monitoring":
        return "recorded: classes and callable objects have rows in reports"
    return (
        "not recorded: PyEval_SetProfile does not report calls of classes and of callable objects; "
        "methods in Python (__init__, __call__) have rows, the rest is in their caller's time"
    )


def threads(backend: str) -> str:
    """Return which threads are recorded."""
    if backend == "monitoring":
        return "recorded: all threads of the main interpreter, none of subinterpreters"
    version = sys.version_info[:3]
    if version > (3, 14, 0):
        at_start = "threads that run at the start, if none of them has a profile function"
    elif version == (3, 14, 0) or sysconfig.get_config_var("Py_GIL_DISABLED"):
        at_start = "the thread that starts the recording, not others that run already"
    else:
        at_start = "threads that run at the start without a profile function"
    return (
        f"recorded: {at_start}, and threads that the module threading starts later; not recorded: "
        "other threads that start later, because PyEval_SetProfile is set in each thread, and "
        "threads of subinterpreters"
    )


def _tools() -> list[tuple[str, str]]:
    """Return the tools that hold the hooks of this interpreter."""
    used = []
    if sys.getprofile() is not None:
        used.append(f"sys.setprofile: {type(sys.getprofile()).__name__}")
    if sys.gettrace() is not None:
        used.append(f"sys.settrace: {type(sys.gettrace()).__name__}")
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is not None:
        for tool_id in range(6):
            name = monitoring.get_tool(tool_id)
            if name is not None:
                used.append(f"sys.monitoring tool {tool_id}: {name}")
    return [("other tools", ", ".join(used) or "none active")]


def _switch() -> str:
    from fastprof.session.environment.switch import MODE

    if MODE == "on":
        return "FASTPROF=1: a run starts at `import fastprof` and reports at exit"
    if MODE == "off":
        return "FASTPROF=0: everything is switched off; unset it to record"
    value = os.environ.get("FASTPROF")
    state = f"FASTPROF={value} is ignored, it can be 1 or 0" if value else "FASTPROF is not set"
    return f"{state}: {_ENABLE}"


def _package(name: str, otherwise: str) -> str:
    """Return the version of a package without importing it."""
    try:
        if importlib.util.find_spec(name) is None:
            return f"not installed: {otherwise}"
        return importlib.metadata.version(name)
    except (ImportError, ValueError):
        return "installed, version unknown"
