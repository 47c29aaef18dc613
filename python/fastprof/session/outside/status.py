"""What a run does just now, for ``fastprof watch``; made without a call in the training thread."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fastprof.clock import time
from fastprof.names import cut
from fastprof.report.stats import rarer

if TYPE_CHECKING:
    from fastprof.capture.options import Recorder
    from fastprof.ranks.exchange.recording import Recording
    from fastprof.session.environment.rank import Identity

#: After this time without a watcher the copies of the tree are dropped.
_UNWATCHED_S = 60.0
_FUNCTIONS = 8
#: Seconds after which functions are looked up again: it takes up to a fiftieth of a second.
_FUNCTIONS_S = 20.0
_LINES = 6
#: Longest name and longest sentence.
_NAME, _TEXT = 200, 400
_SECTIONS = 12
_US_PER_MS, _NS_PER_MS = 1e3, 1e6
#: Number of steps whose sections count.
_LAST = 1000


@dataclass(frozen=True, slots=True)
class Now:
    """A run at one moment; times are ms per step.

    ``beat`` counts the statuses.  ``block_ms`` are the step times of blocks of ``block_steps``
    steps in the last 10 s, the newest last.  ``sections`` are (name, ms), ``functions`` (name,
    file, line, part of the time of all), both the longest first; ``functions`` is None while no
    step with functions was recorded.  ``gpu`` is
    memory of torch's allocator in bytes: allocated, reserved.  ``said`` are the latest sentences of
    the run, the newest last.
    """

    beat: int
    steps: int
    phase: str
    place: str
    block_steps: int
    block_ms: tuple[float, ...]
    sections: tuple[tuple[str, float], ...]
    functions: tuple[tuple[str, str, int, float], ...] | None
    gpu: tuple[int, int] | None
    said: tuple[str, ...]


class Status:
    """Makes the statuses of one run.

    Args:
        said: returns the latest sentences of the run.
        gpu: returns the GPU memory as in :class:`Now`.
    """

    def __init__(
        self,
        recorder: Recorder,
        identity: Identity,
        said: Callable[[], Sequence[str]],
        gpu: Callable[[], tuple[int, int] | None],
    ) -> None:
        self._recorder = recorder
        self._identity = identity
        self._said = said
        self._gpu = gpu
        self._recording: Recording | None = None
        self._last = 0.0
        self._beat = 0
        self._so_far: tuple[tuple[str, str, int, float], ...] | None = None
        self._functions_at = 0.0

    def now(self) -> dict[str, Any]:
        """Return the fields of a :class:`Now`."""
        from fastprof.ranks.exchange.recording import Recording

        asked = time.monotonic()
        if self._recording is None or asked - self._last > _UNWATCHED_S:
            self._functions_at = 0.0
            self._recording = Recording(self._recorder, "", 0, 1, os.uname().nodename)
        self._last = asked
        self._beat += 1
        window = self._recording.window()
        return asdict(
            Now(
                beat=self._beat,
                steps=window.steps,
                phase=window.phase,
                place=window.place,
                block_steps=window.size,
                block_ms=tuple(
                    window.blocks[start][0] / _US_PER_MS for start in sorted(window.blocks)
                ),
                sections=self._sections(window.steps),
                functions=self._functions(),
                gpu=self._gpu(),
                said=tuple(cut(text, _TEXT) for text in self._said()[-_LINES:]),
            )
        )

    def _functions(self) -> tuple[tuple[str, str, int, float], ...] | None:
        """Return the functions of the last windows, if any had functions, or of the run so far."""
        from fastprof.ranks.live.window import Request

        assert self._recording is not None
        now = time.monotonic()
        found = self._recording.detail(Request("", 0, 0, sys.maxsize, ())).functions
        if sum(us for *_, us, _ in found) == 0:
            if now < self._functions_at:
                return self._so_far
            found = self._recording.functions_so_far()
        self._functions_at = now + _FUNCTIONS_S
        # Not per step: only some of them record functions.
        all_us = sum(us for *_, us, _ in found)
        shares = [
            (cut(name, _NAME), cut(file, _NAME), line, us / all_us)
            for name, file, line, us, _ in found[:_FUNCTIONS]
            if us > 0
        ]
        self._so_far = tuple(shares) or None
        return self._so_far

    def _sections(self, steps: int) -> tuple[tuple[str, float], ...]:
        """Return the sections of the last steps.

        Those that most steps do not record are taken from the steps with functions, as in a report.
        """
        full, of = _columns(self._recorder.window(0))
        last, n = _columns(self._recorder.window(max(0, steps - _LAST), True))
        if not n:
            last, n = full, of
        counts = [
            {name: sum(map(bool, row)) for name, row in rows.items()} for rows in (last, full)
        ]
        off = rarer(counts[0], n, counts[1], of)
        found = {name: sum(row) / n / _NS_PER_MS for name, row in last.items() if name not in off}
        found |= {name: sum(full[name]) / of / _NS_PER_MS for name in off}
        return tuple(sorted(found.items(), key=lambda item: -item[1])[:_SECTIONS])


def _columns(raw: Mapping[str, Any] | None) -> tuple[dict[str, array[int]], int]:
    """Return the times of the sections by name, and the number of steps."""
    if raw is None:
        return {}, 0
    return {name: array("q", data) for name, data in raw["sections"]}, len(raw["number"]) // 8


def now_from(value: dict[str, Any]) -> Now:
    """Return the status that a process has written.

    Raises:
        ValueError: it is another version's.
    """
    try:
        functions, gpu = value["functions"], value["gpu"]
        return Now(
            beat=int(value["beat"]),
            steps=int(value["steps"]),
            phase=str(value["phase"]),
            place=str(value["place"]),
            block_steps=max(1, int(value["block_steps"])),
            block_ms=tuple(float(ms) for ms in value["block_ms"]),
            sections=tuple((str(name), float(ms)) for name, ms in value["sections"]),
            functions=None if functions is None else tuple(
                (str(name), str(file), int(line), float(ms)) for name, file, line, ms in functions
            ),
            gpu=None if gpu is None else (int(gpu[0]), int(gpu[1])),
            said=tuple(str(text) for text in value["said"]),
        )  # fmt: skip
    except (KeyError, TypeError, IndexError, ValueError, OverflowError):
        raise ValueError("the process has another version of fastprof") from None
