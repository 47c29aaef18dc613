"""Writes a line now and then during a long run: steps, their rate, and the slowest phase.

The line takes the place of the last one, if nobody has written anything since.  Otherwise it is a
new one: what the program prints stays, and so do its bars.
"""

import os
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
#: One line up, and empty it.
_OVER = "\x1b[1A\x1b[2K"


def written() -> int | None:
    """Return the number of bytes that this process has written anywhere; None: others may write.

    A child process may write to the same terminal, and what it has written is not known.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there is none
        pass
    except (OSError, AttributeError):
        return None
    else:
        return None
    try:
        with open("/proc/self/io") as stream:
            return next(int(line.split()[1]) for line in stream if line.startswith("wchar:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


class Progress:
    """A logger that writes a line, if the last one was some time ago."""

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
        written: Callable[[], int | None] = written,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._written = written
        #: What the process had written after the last line; None: unknown, or there is no line.
        self._since_line: int | None = None
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
        self._show(line)

    def _show(self, line: str) -> None:
        before, self._since_line = self._since_line, None
        # While rich draws bars, its own object is there: what it gets appears above them.
        stream = sys.stderr if type(sys.stderr).__module__ == "rich.file_proxy" else self._stream
        hidden = _bars_hidden(stream)
        if stream is not self._stream or hidden is not None:
            with hidden or nullcontext():
                stream.write(f"{line}\n")
                stream.flush()
            return
        is_last = before is not None and before == self._written()
        stream.write(f"{_OVER if is_last else ''}{line}\n")
        stream.flush()
        self._since_line = self._written()


def _bars_hidden(stream: TextIO) -> AbstractContextManager[Any] | None:
    """Return a context manager that takes tqdm's bars off the line; None: there are no bars."""
    tqdm: Any = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    hide = getattr(tqdm, "external_write_mode", None)
    if hide is None or not getattr(tqdm, "_instances", None):
        return None
    # Without its lock, which another thread of the program may hold.
    return hide(file=stream, nolock=True)  # type: ignore[no-any-return]
