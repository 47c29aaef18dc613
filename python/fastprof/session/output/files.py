"""The files of a run: paths checked at the start, written at the end and in between."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from fastprof.clock import time
from fastprof.guards import own_errors
from fastprof.render.formats import format_of
from fastprof.results.report import Report
from fastprof.session.environment.rank import Identity
from fastprof.session.faults import Faults
from fastprof.session.part import Part

#: Saving in between may take at most this share of wall time.
_SAVE_SHARE = 0.01
#: Seconds between readings of the clock, as far as steps go on as before.
_ASK_EVERY_S = 1.0
#: Seconds between saves.
SAVE_EVERY_S = 60.0

Pathish = str | os.PathLike[str]


def resolve(output: Pathish | Sequence[Pathish] | None) -> tuple[Path, ...]:
    """Return ``output`` as absolute paths, which a later ``os.chdir`` does not change.

    Raises:
        TypeError: an item is not a path.
        ValueError: a path contains a NUL, is empty, or has an unknown suffix.
        IsADirectoryError: a path that is a directory.
        FileNotFoundError: the directory of a path does not exist.
    """
    if output is None:
        return ()
    if isinstance(output, (str, os.PathLike)) or not isinstance(output, Iterable):
        return (_resolve(output),)
    return tuple([_resolve(item) for item in output])


def _resolve(item: object) -> Path:
    if not isinstance(item, (str, os.PathLike)):
        raise TypeError(f"output is {item!r:.80}, expected a path")
    path = os.fspath(item)
    if not isinstance(path, str):
        raise TypeError(f"output is {item!r:.80}, expected a path of type str")
    if not path or "\0" in path:
        raise ValueError(f"output is {path!r:.80}, expected the path of a file")
    # Not resolve(): keep the user's links in the path.
    absolute = Path.cwd() / path
    if absolute.is_dir():
        raise IsADirectoryError(f"output {path!r} is a directory, expected the path of a file")
    if not absolute.parent.is_dir():
        raise FileNotFoundError(f"output {path!r}: there is no directory {str(absolute.parent)!r}")
    format_of(path)
    return absolute


def path_of_rank(path: str, identity: Identity, rank: int | None = None) -> str:
    """Return ``path`` for this rank: every process of a distributed job has a separate file.

    Args:
        path: the path for all ranks.
        identity: the process's.
        rank: the rank as the run knows it; None: that of ``identity``.
    """
    if identity.world_size == 1:
        return path
    whole = Path(path)
    return str(whole.with_name(f"rank{identity.rank if rank is None else rank}_{whole.name}"))


class Outputs(Part):
    """Saves a run to its paths, at the end and about every minute before.

    Slow saving becomes less frequent, so that it takes at most one percent of the time. A path that
    cannot be written is reported once and not tried again until the end.

    Args:
        report: returns the report of the run.
        aside: makes the context in which to save before the end.
    """

    kind = "save"

    def __init__(
        self,
        paths: tuple[Path, ...],
        faults: Faults,
        report: Callable[[], Report],
        identity: Identity,
        aside: Callable[[], AbstractContextManager[object]] = nullcontext,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.paths = paths
        self._report = report
        self._identity = identity
        self._aside = aside
        self._faults = faults
        self._clock = clock
        self._due = 0.0
        self._asked = (0, 0.0)  # count of steps and time when the clock was last read
        self._next = 1
        self._failing: set[Path] = set()

    @property
    def has_output(self) -> bool:
        return bool(self.paths)

    def begin(self) -> None:
        """Measure the time to the first save from now."""
        self._asked = (0, self._clock())
        self._due = self._asked[1] + SAVE_EVERY_S

    def next_step(self, count: int) -> int:
        return self._next if self.paths else sys.maxsize

    def at_step(self, count: int) -> None:
        """Save if that is due."""
        if not self.paths or count < self._next:
            return
        now = self._clock()
        if now < self._due:
            # Asking costs some microseconds; short steps are many.
            steps, elapsed = count - self._asked[0], now - self._asked[1]
            rate = steps / elapsed if elapsed > 0 else 1.0
            self._asked = (count, now)
            self._next = count + max(1, int(rate * min(self._due - now, _ASK_EVERY_S)))
            return
        self._next = count + 1
        with self._aside():
            began = self._clock()
            self._save([path for path in self.paths if path not in self._failing])
            ended = self._clock()
            self._due = ended + max(SAVE_EVERY_S, (ended - began) / _SAVE_SHARE)

    def publish(self, count: int) -> None:
        """Save to every path: a full disk may have room again."""
        self._save(self.paths)

    def _save(self, paths: Sequence[Path]) -> None:
        if not paths:
            return
        try:
            made = self._report()
        except own_errors() as error:  # the training continues without
            self._faults.add("report_errors", "fastprof: building the report failed", error)
            return
        for path in paths:
            try:
                made.save(path_of_rank(str(path), self._identity))
            except own_errors() as error:  # full disk, no permission, ...
                self._failing.add(path)
                self._faults.add("save_errors", f"Saving the run to {str(path)!r} failed", error)
