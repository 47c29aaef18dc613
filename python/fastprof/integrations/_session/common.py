"""Converts the user's options of an integration to the keywords of a ``Profiler``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastprof.session.operators.profile import OperatorProfile
from fastprof.session.output.files import resolve
from fastprof.session.profiler import Profiler
from fastprof.session.schedule import Schedule

_SCHEDULE_KEYS = ("wait", "warmup", "active", "repeat", "skip_first")


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a :class:`~fastprof.Profiler`, checked before training starts.

    ``profile_training=False`` means the same as ``enabled=False``.

    Raises:
        TypeError, ValueError, OSError: as in ``Profiler``.
    """
    checked = dict(options)
    if not checked.pop("profile_training", True):
        checked["enabled"] = False
    Profiler(**checked)
    # The run begins later, and the program may change its directory before that.
    checked["output"] = resolve(checked.get("output"))
    return checked


def operator_options(
    *,
    activities: Sequence[str] | None = None,
    schedule_option: Mapping[str, int] | None = None,
    on_trace_ready: Callable[[Any], object] | None = None,
    record_shapes: bool = False,
    profile_memory: bool = False,
    with_stack: bool = False,
    with_flops: bool = False,
    with_modules: bool = False,
    output_trace_dir: str | None = None,
) -> dict[str, Any]:
    """Return the ``Profiler`` keywords for an Accelerate user's ``ProfileKwargs`` fields.

    Only this function translates these fields.  ``schedule_option`` becomes
    ``schedule``, with torch.profiler's defaults for missing keys; all fields together
    become ``operators``, which records operators in the same steps.

    Raises:
        TypeError, ValueError: an unknown activity or schedule key, or a bad number.
    """
    keywords: dict[str, Any] = {}
    if schedule_option is not None:
        unknown = sorted(set(schedule_option) - set(_SCHEDULE_KEYS))
        if unknown:
            raise ValueError(f"schedule_option has {unknown[0]!r}, expected {_SCHEDULE_KEYS}")
        # torch.profiler's own defaults, not Schedule's.
        keywords["schedule"] = Schedule(**{"skip_first": 0, "repeat": 0, **schedule_option})
    keywords["operators"] = OperatorProfile.from_profile_kwargs(
        {
            "activities": activities,
            "schedule_option": schedule_option,
            "on_trace_ready": on_trace_ready,
            "record_shapes": record_shapes,
            "profile_memory": profile_memory,
            "with_stack": with_stack,
            "with_flops": with_flops,
            "with_modules": with_modules,
            "output_trace_dir": output_trace_dir,
        }
    )
    return keywords


class ScalarLogger:
    """Passes metrics to ``log(values)``; the framework knows its own global step."""

    __slots__ = ("_log",)

    def __init__(self, log: Callable[[Mapping[str, float]], object]) -> None:
        self._log = log

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        self._log(values)
