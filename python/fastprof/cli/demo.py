"""``fastprof demo``: train a small real network for a few seconds and show its report."""

import argparse
import importlib.util
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Protocol, TextIO

import fastprof
from fastprof import profile_section
from fastprof.cli.output import standard_output
from fastprof.cli.parsing import Parser
from fastprof.report.figures import plural

_LOG_EVERY = 10
_DEFAULT_SECONDS = 3.0
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


class LastMetrics:
    """A logger like those of trainers; it keeps the last values and their step."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.step = 0

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        self.metrics.update(metrics)
        self.step = step


class Limit:
    """The end of the run: after a number of steps or, without one, after some seconds."""

    def __init__(self, steps: int | None, seconds: float) -> None:
        self._steps = steps
        self._seconds = seconds
        self._begin = time.monotonic()

    def share(self, done: int) -> float:
        """Return the finished part of the run, from 0 to 1."""
        if self._steps is not None:
            return min(1.0, done / self._steps)
        return min(1.0, (time.monotonic() - self._begin) / self._seconds)


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


def make_task(backend: str | None) -> Task:
    """Return the network to train: ``"torch"``, ``"pure"``, or None for the best available one.

    Raises:
        ImportError: PyTorch was chosen and cannot be imported.
    """
    if backend is None:
        backend = "torch" if importlib.util.find_spec("torch") is not None else "pure"
    if backend == "torch":
        from fastprof.cli.demo_torch import TorchTask

        return TorchTask()
    from fastprof.cli.demo_pure import PureTask

    return PureTask()


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
        description="Train a small real network for a few seconds and print its report.",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="train this many steps")
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        default=_DEFAULT_SECONDS,
        help="without --steps: train this long (default: %(default)g)",
    )
    parser.add_argument(
        "--backend",
        choices=("pure", "torch"),
        help="pure Python, or PyTorch (default: PyTorch if it is installed)",
    )
    parser.add_argument("--save", metavar="PATH", help="also save the run, e.g. demo.fprof")
    options: argparse.Namespace = parser.parse_args(argv)
    if options.steps is not None and options.steps < 1:
        parser.error(f"--steps is {options.steps}, expected at least 1")
    if not (options.seconds > 0 and math.isfinite(options.seconds)):
        parser.error(f"--seconds is {options.seconds:g}, expected a positive number")
    return options


def run_demo(argv: Sequence[str] | None = None) -> int:
    """Run the demo: progress on stderr; report and metrics on stdout.

    Returns:
        0; 1 if PyTorch was chosen and is missing or the run could not be saved; 130 after an
        interrupt from the keyboard (the report then covers the recorded part).

    Raises:
        SystemExit: wrong arguments, or help was requested.
    """
    options = _parse(argv)
    try:
        task = make_task(options.backend)
    except ImportError as error:
        print(f"fastprof demo: {error}; try --backend pure", file=sys.stderr)
        return 1
    print(f"Training {task.description}.", file=sys.stderr)
    logger = LastMetrics()
    losses: list[float] = []
    code = 0
    progress = Progress(sys.stderr)
    every = min(_LOG_EVERY, options.steps or _LOG_EVERY)
    profiler = fastprof.Profiler(logger=logger, log_every=every)
    try:
        with profiler:
            train(task, profiler, Limit(options.steps, options.seconds), progress, losses)
    except KeyboardInterrupt:
        code = 130
    report = profiler.report()
    saved = ""
    if options.save is not None:
        try:
            report.save(options.save)
            saved = f"\nSaved: {options.save}\n"
        except OSError as error:
            print(f"fastprof demo: the run was not saved: {error}", file=sys.stderr)
            code = 1
    with standard_output() as stream:
        stream.write(f"\n{_summary(losses)}\n\n{report}\n")
        if logger.metrics:
            stream.write(f"\nMetrics as the logger received them last, at step {logger.step}:\n")
            stream.writelines(f"{key}: {value:.2f}\n" for key, value in logger.metrics.items())
        stream.write(saved)
    return code
