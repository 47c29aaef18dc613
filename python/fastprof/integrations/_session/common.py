"""Converts the user's options of an integration to the keywords of a ``Profiler``."""

from collections.abc import Callable, Mapping
from typing import Any

from fastprof.session.operators.profile import OperatorProfile
from fastprof.session.output.files import resolve
from fastprof.session.profiler import Profiler


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


def operator_options(handler: Any) -> dict[str, Any]:
    """Return the ``Profiler`` keywords for an Accelerate user's ``ProfileKwargs``.

    Its fields become ``operators``, and functions are recorded in the same steps.

    Raises:
        TypeError, ValueError: an unknown activity or schedule key, or a bad number.
    """
    operators = OperatorProfile.from_profile_kwargs(handler)
    schedule = {} if operators.schedule is None else {"schedule": operators.schedule}
    return {"operators": operators, **schedule}


class ScalarLogger:
    """Passes metrics to ``log(values)``; the framework knows its own global step."""

    __slots__ = ("_log",)

    def __init__(self, log: Callable[[Mapping[str, float]], object]) -> None:
        self._log = log

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        self._log(values)
