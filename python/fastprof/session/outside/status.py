"""What a run does just now, for ``fastprof watch``; made without a call in the training thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fastprof.clock import time
from fastprof.names import cut

if TYPE_CHECKING:
    from fastprof.capture.options import Recorder
    from fastprof.ranks.exchange.recording import Recording
    from fastprof.ranks.live.window import RankWindow
    from fastprof.session.environment.rank import Identity

#: After this time without a watcher the copies of the tree are dropped.
_UNWATCHED_S = 60.0
_FUNCTIONS = 8
_LINES = 6
#: Longest name and longest sentence.
_NAME, _TEXT = 200, 400
_US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class Now:
    """A run at one moment; times are ms per step in the last 10 s.

    ``beat`` counts the statuses.  ``block_ms`` are the step times of blocks of ``block_steps``
    steps, the newest last.  ``sections`` are (name, ms), ``functions`` (name, file, line, ms), both
    the longest first; ``functions`` is None while no step with functions was recorded.  ``gpu`` is
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

    def now(self) -> dict[str, Any]:
        """Return the fields of a :class:`Now`; the first one after a while lacks functions."""
        from fastprof.ranks.exchange.recording import Recording
        from fastprof.ranks.live.window import Request

        asked = time.monotonic()
        if self._recording is None or asked - self._last > _UNWATCHED_S:
            self._recording = Recording(self._recorder, "", 0, 1, os.uname().nodename)
        self._last = asked
        self._beat += 1
        window = self._recording.window()
        # The steps of all copies of the tree.
        detail = self._recording.detail(Request("", 0, 0, sys.maxsize, ()))
        functions = [
            (cut(name, _NAME), cut(file, _NAME), line, us / _US_PER_MS)
            for name, file, line, us, _ in detail.functions[:_FUNCTIONS]
        ]
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
                sections=_sections(window),
                functions=tuple(functions) or None,
                gpu=self._gpu(),
                said=tuple(cut(text, _TEXT) for text in self._said()[-_LINES:]),
            )
        )


def _sections(window: RankWindow) -> tuple[tuple[str, float], ...]:
    if not window.blocks:
        return ()
    first = len(window.columns)
    means = [fmean(column) / _US_PER_MS for column in zip(*window.blocks.values(), strict=True)]
    found = zip(window.sections, means[first:], strict=True)
    return tuple(sorted(found, key=lambda item: -item[1]))


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
