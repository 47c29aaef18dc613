"""Functions on the current run, and section reports for a loop that only uses its sections."""

from typing import Any, Literal

from fastprof.capture.options import check_int
from fastprof.session import current
from fastprof.session.output.periodic import SORTS
from fastprof.session.output.printer import ReportPrinter
from fastprof.session.profiler import Profiler, run_of
from fastprof.session.run import Run


class TrainingProfiling:
    """A run that prints a text report every N steps and at the end.

    Made by :func:`start_training_profiling`; a context manager that stops it.
    """

    def __init__(self, profiler: Profiler) -> None:
        #: The run itself, for ``report()`` and ``snapshot()``.
        self.profiler = profiler

    def step(self) -> int:
        """End a step; return the number of steps so far."""
        return self.profiler.step()

    def stop(self) -> None:
        """End the run and print the final report; does nothing the second time."""
        self.profiler.stop()

    def __enter__(self) -> "TrainingProfiling":  # noqa: PYI034 - Self is new in 3.11
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def start_training_profiling(
    log_every: int = 50,
    *,
    sort: str = "first",
    stream: Any = None,
    functions: bool | Literal["auto"] = False,
    **options: Any,
) -> TrainingProfiling:
    """Start a run that reports its sections as text, and return its handle.

    End each training step with ``handle.step()`` or :func:`step`.  The final report is
    printed by ``handle.stop()``, or when the interpreter exits.

    Args:
        log_every: steps between reports, and between metrics.
        sort: order of the rows: ``"first"`` (use) or ``"total"`` (time).
        stream: where the reports go; None: ``sys.stdout``.
        functions: record function calls as well, for ``handle.profiler.report()``.
        options: options of :class:`~fastprof.Profiler`.

    Raises:
        TypeError, ValueError: an argument of the wrong type or out of range.
        StateError: another run is active.
    """
    check_int("log_every", log_every, low=1)
    if sort not in SORTS:
        raise ValueError(f"sort is {sort!r:.80}, expected one of {SORTS}")
    if stream is not None and not callable(getattr(stream, "write", None)):
        raise TypeError(f"stream is {type(stream).__name__}, expected a text stream")
    profiler = Profiler(functions=functions, log_every=log_every, **options)
    run_of(profiler).parts.of(ReportPrinter).print_every(log_every, sort, stream)
    return TrainingProfiling(profiler.start())


def stop() -> Profiler | None:
    """End the current run, wherever it was started; return its profiler.

    For a run whose handle is lost, such as that of a notebook's cell which failed before its
    ``stop()``.  Without a run it does nothing and returns None.
    """
    run = current.running()
    if not isinstance(run, Run):
        return None
    profiler: Profiler | None = run.profiler
    if profiler is not None:  # else it is ending
        profiler.stop()
    return profiler


def step() -> int:
    """End a step of the current run; return the number of steps so far.

    Without a run it does nothing and returns 0, so it may stay in the code, like sections.
    """
    run = current.running()
    return run.step() if isinstance(run, Run) else 0
