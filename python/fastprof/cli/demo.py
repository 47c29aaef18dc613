"""``fastprof demo``: a network with a problem, the finding, the fix, and what the fix brought.

It trains a small real network for a few seconds, twice: with a planted problem, and without.
"""

import argparse
import importlib.util
import inspect
import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any, Protocol, TextIO

import fastprof
from fastprof import profile_section
from fastprof.cli.demo_data import IndexedLabels, SearchedLabels
from fastprof.cli.output import standard_output
from fastprof.cli.parsing import Parser
from fastprof.comparison.layout import verdict_lines
from fastprof.report.figures import change, number, plural
from fastprof.session.profiler import run_of
from fastprof.tables.cells import Table
from fastprof.tables.layout import table_lines, width_of, wrapped

#: Exit status after an interrupt from the keyboard.
_INTERRUPTED = 130
_FILE = "demo_data.py"
_NEXT = "Your own program: fastprof run train.py"
_DEFAULT_SECONDS = 4.0
_FEWEST_STEPS = 60
#: The demo compares the loss of the first and the last steps, this many each.
_WINDOW = 10


class Loss(Protocol):
    """The result of a forward pass."""

    def backward(self) -> object: ...

    def item(self) -> float: ...


class Task(Protocol):
    """A network with its data, in PyTorch or in pure Python."""

    @property
    def description(self) -> str: ...

    @property
    def batches(self) -> Iterable[Any]: ...

    def loss(self, batch: Any) -> Loss: ...

    def update(self) -> None: ...


class Limit:
    """The end of the run: after a number of steps or, without one, after some seconds.

    Too few steps could not be compared, so a slow machine gets up to twice the time.
    """

    def __init__(self, steps: int | None, seconds: float) -> None:
        self._steps = steps
        self._seconds = seconds
        self._begin = time.monotonic()

    def share(self, done: int) -> float:
        """Return the finished part of the run, from 0 to 1."""
        if self._steps is not None:
            return min(1.0, done / self._steps)
        passed = (time.monotonic() - self._begin) / self._seconds
        return min(1.0, max(min(passed, done / _FEWEST_STEPS), passed / 2))


class Progress:
    """Writes a line at the first step and at every quarter of the run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next = 0.0

    def show(self, share: float, step: int, loss: float) -> None:
        """Take the finished part of the run, from 0 to 1, and its last step."""
        if share >= self._next:
            self._next = math.floor(share * 4 + 1) / 4
            print(f"step {step}: loss {loss:.3f} ({share:.0%})", file=self._stream, flush=True)


def make_task(backend: str | None, *, fixed: bool) -> Task:
    """Return the network to train: ``"torch"``, ``"pure"``, or None for the best available one.

    Args:
        fixed: without the planted problem.

    Raises:
        ImportError: PyTorch was chosen and cannot be imported.
    """
    if backend is None:
        backend = "torch" if importlib.util.find_spec("torch") is not None else "pure"
    if backend == "torch":
        from fastprof.cli.demo_torch import TorchTask

        return TorchTask(fixed=fixed)
    from fastprof.cli.demo_pure import PureTask

    return PureTask(fixed=fixed)


def _endless(batches: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from batches


def train(
    task: Task, profiler: fastprof.Profiler, limit: Limit, progress: Progress, losses: list[float]
) -> None:
    """Run the loop as a user would write it, and append the loss of every step to ``losses``."""
    loader = profiler.loader(task.batches, name="main")
    for step, batch in enumerate(_endless(loader), start=1):
        with profile_section("forward"):
            loss = task.loss(batch)
        with profile_section("backward"):
            loss.backward()
        with profile_section("optimizer"):
            task.update()
        with profile_section("callbacks"):
            losses.append(loss.item())
            share = limit.share(step)
            progress.show(share, step, losses[-1])
        profiler.step()
        if share >= 1.0:
            break


def _summary(losses: Sequence[float]) -> str:
    if not losses:
        return "no step was completed"
    window = min(_WINDOW, len(losses))
    first, last = fmean(losses[:window]), fmean(losses[-window:])
    return f"{plural(len(losses), 'step')}, loss {first:.3f} -> {last:.3f}"


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="fastprof demo",
        description="Train a small real network that has a problem, show the finding, fix it, and "
        "compare the two runs.",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="train this many steps in each run")
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        default=_DEFAULT_SECONDS,
        help="without --steps: train this long in each run (default: %(default)g)",
    )
    parser.add_argument(
        "--backend",
        choices=("pure", "torch"),
        help="pure Python, or PyTorch (default: PyTorch if it is installed)",
    )
    parser.add_argument(
        "--save", metavar="PATH", help="also save the run with the problem, e.g. demo.fprof"
    )
    options: argparse.Namespace = parser.parse_args(argv)
    if options.steps is not None and options.steps < 1:
        parser.error(f"--steps is {options.steps}, expected at least 1")
    if not (options.seconds > 0 and math.isfinite(options.seconds)):
        parser.error(f"--seconds is {options.seconds:g}, expected a positive number")
    return options


def run_demo(argv: Sequence[str] | None = None) -> int:
    """Run the demo: progress on stderr; report, fix and comparison on stdout.

    Returns:
        0; 1 if PyTorch was chosen and is missing or the run could not be saved; 130 after an
        interrupt from the keyboard (the report then covers the recorded part).

    Raises:
        SystemExit: wrong arguments, or help was requested.
    """
    options = _parse(argv)
    try:
        task = make_task(options.backend, fixed=False)
    except ImportError as error:
        print(f"fastprof demo: {error}; try --backend pure", file=sys.stderr)
        return 1
    print(f"Training {task.description}.", file=sys.stderr)
    before, text, code = _record(task, options)
    with standard_output() as stream:
        stream.write(f"\nA program with a problem: {text}.\n\n")
        before.show(stream)
        stream.write("\n")
        saved = "" if options.save is None else _save(before, options.save)
        stream.write(saved)
        if options.save is not None and not saved:
            code = code or 1
        if code == _INTERRUPTED:
            return code
        stream.write(f"The fix, in {_FILE}:\n\n{_fix()}\n")
        stream.flush()
        print("Training again, with the fix.", file=sys.stderr)
        after, text, interrupted = _record(make_task(options.backend, fixed=True), options)
        code = interrupted or code
        stream.write(f"\nWith the fix: {text}.\n\n")
        lines = _compared(fastprof.compare(before, after), width_of(stream))
        stream.write("\n".join([*lines, "", _NEXT, ""]))
    return code


def _record(task: Task, options: argparse.Namespace) -> tuple[fastprof.Report, str, int]:
    """Train, and return the report, a summary of the training, and the exit status."""
    losses: list[float] = []
    code = 0
    profiler = fastprof.Profiler(overhead=0)
    run_of(profiler).functions.is_called = False  # by the demo itself
    try:
        with profiler:
            limit = Limit(options.steps, options.seconds)
            train(task, profiler, limit, Progress(sys.stderr), losses)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    return profiler.report(), _summary(losses), code


def _compared(comparison: fastprof.Comparison, width: int) -> list[str]:
    """Return the verdict of a comparison, and the parts of a step."""
    lines = []
    for line in verdict_lines(comparison, comparison.pairs[0]):
        lines += wrapped(line, width, rest="  ")
    rows = tuple(
        (row.name, number(row.before_ms), number(row.after_ms), change(row.change))
        for row in comparison.effects
        if row.change is not None
    )
    headers = ("ms per step", "before", "after", "change")
    return [*lines, "", *table_lines(Table("", headers, rows), width)]


def _save(report: fastprof.Report, path: str) -> str:
    """Save the run and return a line about it; empty: that failed, and stderr says why."""
    try:
        report.save(path)
    except OSError as error:
        print(f"fastprof demo: the run was not saved: {error}", file=sys.stderr)
        return ""
    return f"Saved: {path}\n\n"


def _fix() -> str:
    """Return the fix of the planted problem as a difference of its source lines."""
    lines = []
    for sign, function in (("-", SearchedLabels.label), ("+", IndexedLabels.label)):
        code = inspect.getsource(function).splitlines()[1:]
        lines += [f"{sign} {line}" for line in code]
    return "\n".join(lines)
