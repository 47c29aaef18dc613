"""Options of a recorder, checked before anything starts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from fastprof._core import PHASES, Recorder

__all__ = ["PHASES", "Recorder", "RecorderOptions", "check_float", "check_int", "recorder_options"]

BACKENDS = ("auto", "setprofile", "monitoring")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderOptions:
    """How to record function calls; the defaults suit most programs.

    Args:
        backend: the hook for function calls: ``"setprofile"``, ``"monitoring"``
            (CPython 3.12 and later) or ``"auto"``, the cheaper one that works here.
        max_nodes: calling contexts kept per thread; more are counted as truncated.
        max_depth: calling depth kept; deeper calls are counted as truncated.
        worker_functions: True: also record the functions in worker processes of torch's
            loaders; ``"auto"``: in single batches of the first passes, which slows the workers by
            at most 5 %.  The report has a separate table of them.
        outliers: number of slowest steps for which to keep the times of functions, so that
            the report can show what was different; 0: none.

    Raises:
        TypeError, ValueError: a value of the wrong type or out of range.
    """

    backend: str = "auto"
    max_nodes: int = 1_000_000
    max_depth: int = 1024
    outliers: int = 5
    worker_functions: bool | Literal["auto"] = False

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(f"backend is {self.backend!r:.80}, expected one of {BACKENDS}")
        if not (isinstance(self.worker_functions, bool) or self.worker_functions == "auto"):
            raise ValueError(
                f"worker_functions is {self.worker_functions!r:.80}, expected one of "
                "(True, False, 'auto')"
            )
        check_int("max_nodes", self.max_nodes, low=16, high=500_000_000)
        check_int("max_depth", self.max_depth, low=4, high=60_000)
        check_int("outliers", self.outliers, low=0, high=100)

    def create(self, *, skip_steps: int = 3) -> Recorder:
        """Return a recorder with these options; it records nothing before it is started.

        Args:
            skip_steps: first steps that stay out of the step statistics (warm-up).
        """
        return Recorder(
            backend=self.backend,
            skip_steps=skip_steps,
            max_nodes=self.max_nodes,
            max_depth=self.max_depth,
            outliers=self.outliers,
        )


def recorder_options(value: RecorderOptions | Mapping[str, Any] | None) -> RecorderOptions:
    """Return ``value`` as options; None: the defaults.

    Raises:
        TypeError, ValueError: neither options nor a dict of them, or one is out of range.
    """
    if value is None:
        return RecorderOptions()
    if isinstance(value, RecorderOptions):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(
            f"recorder is {type(value).__name__}, expected fastprof.RecorderOptions or a dict"
        )
    known = [field.name for field in fields(RecorderOptions)]
    for name in value:
        if name not in known:
            raise ValueError(f"recorder: no option {name!r:.80}; there are: {', '.join(known)}")
    return RecorderOptions(**value)


def check_int(name: str, value: object, *, low: int, high: int = 2**31 - 1) -> int:
    """Return ``value`` if it is an integer from ``low`` to ``high``.

    Raises:
        TypeError: it is not an integer (a bool is not one).
        ValueError: it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r:.80}, expected an integer")
    if not low <= value <= high:
        raise ValueError(f"{name} is {value!r:.80}, expected {low} to {high}")
    return value


def check_float(name: str, value: object) -> float:
    """Return ``value`` as a finite float.

    Raises:
        TypeError: it is not a number (a bool is not one).
        ValueError: it is infinite or not a number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r:.80}, expected a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} is {value!r:.80}, expected a finite number")
    return number
