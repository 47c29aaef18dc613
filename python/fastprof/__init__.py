"""A profiler for training loops: sections, functions and steps in one report.

::

    import fastprof
    from fastprof import profile_section

    with fastprof.Profiler() as prof:
        for batch in prof.loader(batches, name="main"):
            with profile_section("forward"):
                ...
            prof.step()
    print(prof.report())

Importing fastprof loads the extension and small parts of the standard library; everything else is
loaded at its first use.  Without the extension it can still read saved runs.
"""

# Until own_imports has begun, imports must not reach the standard library: no "from __future__".

import sys

if sys.version_info < (3, 10):  # noqa: UP036 - sources on a path have not met pip's check
    raise ImportError("fastprof needs Python 3.10 or newer, and this is " + sys.version.split()[0])

from fastprof import own_builtins, own_imports  # builtins first

if own_imports.is_own_command():  # before the first import of the standard library
    own_imports.begin()

from fastprof._version import __version__

try:  # noqa: SIM105 - contextlib would make the import slower
    from fastprof.capture.sections import (
        BACKWARD_PASS,
        CANONICAL_SECTIONS,
        CHECKPOINTING,
        DATA_LOADING,
        EMA_UPDATE,
        FORWARD_PASS,
        METRICS_COMPUTATION,
        OPTIMIZER_STEP,
        SAMPLING,
        SYNCHRONIZATION,
        profile_section,
    )
except ImportError:
    # Without the extension, saved runs can still be read.  Using one of these names then raises the
    # reason, from __getattr__.
    pass

globals()["__builtins__"] = own_builtins.COPY  # of __getattr__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fastprof.capture.options import RecorderOptions
    from fastprof.errors import FastprofError
    from fastprof.integrations._torch.data import wrap
    from fastprof.results.comparison import Comparison, compare
    from fastprof.results.ranks import RankReport, merge
    from fastprof.results.report import Report
    from fastprof.results.saved import load
    from fastprof.session.cprofile import Profile, run, runctx
    from fastprof.session.operators.profile import OperatorProfile
    from fastprof.session.output.trace import TraceOptions
    from fastprof.session.profiler import Profiler
    from fastprof.session.schedule import Schedule
    from fastprof.session.training import start_training_profiling, step, stop

#: Packages that load at their first use.
_PACKAGES = ("integrations", "loggers")

#: Public names that load at their first use, by their modules.
_LAZY = {
    name: module
    for module, names in {
        "fastprof.capture.options": "RecorderOptions",
        "fastprof.capture.sections": (
            "BACKWARD_PASS CANONICAL_SECTIONS CHECKPOINTING DATA_LOADING EMA_UPDATE "
            "FORWARD_PASS METRICS_COMPUTATION OPTIMIZER_STEP SAMPLING SYNCHRONIZATION "
            "profile_section"
        ),
        "fastprof.errors": "FastprofError",
        "fastprof.integrations._torch.data": "wrap",
        "fastprof.integrations.ipython": "load_ipython_extension",
        "fastprof.results.comparison": "Comparison compare",
        "fastprof.results.ranks": "RankReport merge",
        "fastprof.results.report": "Report",
        "fastprof.results.saved": "load",
        "fastprof.session.cprofile": "Profile run runctx",
        "fastprof.session.operators.profile": "OperatorProfile",
        "fastprof.session.output.trace": "TraceOptions",
        "fastprof.session.profiler": "Profiler",
        "fastprof.session.schedule": "Schedule",
        "fastprof.session.training": "start_training_profiling step stop",
    }.items()
    for name in names.split()
}

__all__ = [
    "BACKWARD_PASS", "CANONICAL_SECTIONS", "CHECKPOINTING", "DATA_LOADING", "EMA_UPDATE",
    "FORWARD_PASS", "METRICS_COMPUTATION", "OPTIMIZER_STEP", "SAMPLING", "SYNCHRONIZATION",
    "Comparison", "FastprofError", "OperatorProfile", "Profile", "Profiler", "RankReport",
    "RecorderOptions", "Report", "Schedule", "TraceOptions", "__version__", "compare", "load",
    "merge", "profile_section", "run", "runctx", "start_training_profiling", "step", "stop", "wrap",
]  # fmt: skip


def __getattr__(name: str) -> "Any":
    module = _LAZY.get(name)
    if module is None and name not in _PACKAGES:
        raise AttributeError(f"module 'fastprof' has no attribute {name!r}")
    if module is None:
        return own_imports.first_use(f"fastprof.{name}")
    value = getattr(own_imports.first_use(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})


def _start_if_asked() -> None:
    from fastprof.session.environment.switch import MODE

    if MODE == "off":
        try:
            from fastprof.capture import force_off
        except ImportError:  # no extension: nothing can be recorded anyway
            return
        force_off()
        return
    from os import environ

    if environ.get("FASTPROF_SIGNAL"):
        from fastprof.session.environment.signals import catch_wanted

        catch_wanted()
    if MODE == "standby":
        from fastprof.integrations.standby import wait

        wait()
    if MODE == "on":
        from fastprof.guards import own_errors

        try:
            from fastprof.session import auto

            profiler = auto.start()
            if profiler is not None:
                from fastprof.integrations import torch_loop

                torch_loop.attach(profiler)
        except own_errors() as error:  # the program continues without profiling
            import warnings

            warnings.warn(f"FASTPROF=1 did not work: {error}", RuntimeWarning, stacklevel=3)


_start_if_asked()
