"""Writes a line now and then during a long run: steps, their rate, and the slowest phase."""

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TextIO

from fastprof.clock import time
from fastprof.report.figures import duration, number
from fastprof.session.output.metrics import Metric

#: Least number of seconds between lines.
EVERY_S = 10.0

_PHASE = re.compile(r"profile/train/dl_[^/]+/time_(data|forward|backward|optimizer)_ms")


class Progress:
    """A logger that writes a line, if the last one was some time ago."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        #: Time and number of the last step; None before the first: imports precede it.
        self._since: float | None = None
        self._step = 0
        #: The latest metrics of the run, with their sums; set once there is a run.
        self.last_metrics: Callable[[], Mapping[str, Metric]] = dict
        self._phases: dict[str, float] = {}

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Take the metrics of one emission."""
        now = self._clock()
        if self._since is None:
            self._since, self._step = now, step
            return
        # Sums over the steps of the line: a mean per micro-batch is no part of a step.
        last = self.last_metrics()
        for key in metrics:
            match = _PHASE.fullmatch(key)
            if match is not None and key in last:
                self._phases[match[1]] = self._phases.get(match[1], 0.0) + last[key].sum_ms
        passed, steps = now - self._since, step - self._step
        if passed < EVERY_S:
            return
        phases, self._phases = self._phases, {}
        self._since, self._step = now, step
        line = f"fastprof: step {step}, {number(steps / passed)} steps/s"
        if phases and steps:
            worst = max(phases, key=lambda name: phases[name])
            line += f", most in {worst} ({duration(phases[worst] / steps)} per step)"
        with _bars_hidden(self._stream):
            self._stream.write(line + "\n")
            self._stream.flush()


def _bars_hidden(stream: TextIO) -> AbstractContextManager[Any]:
    """Return a context manager that takes tqdm's bars off the line, if the program has any."""
    tqdm: Any = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    hide = getattr(tqdm, "external_write_mode", None)
    # Without its lock, which another thread of the program may hold.
    return nullcontext() if hide is None else hide(file=stream, nolock=True)
