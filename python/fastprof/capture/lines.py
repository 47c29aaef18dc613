"""Samples of the lines on which a thread spends its time."""

from collections.abc import Mapping

from fastprof._core import Recorder

#: (file, first line, function, line) -> number of samples
Lines = Mapping[tuple[str, int, str, int], int]

#: Lines beyond so many are left out, libraries' among them.
_MOST = 40_000


class LineSampler:
    """Collects the samples of one recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.found: dict[tuple[str, int, str, int], int] = {}

    def begin(self, interval_ns: int, limit_ns: int, most: int) -> bool:
        """Begin to sample the calling thread; return whether that is possible."""
        return self._recorder.begin_lines(interval_ns, limit_ns, most)

    def take(self, *, wait: bool) -> bool:
        """Add the samples of a window that has ended; return whether it has.  ``wait``: end it."""
        rows = self._recorder.take_lines(wait)
        for file, first, name, line, samples in rows or ():
            at = (file, first, name, line)
            if at in self.found or len(self.found) < _MOST:
                self.found[at] = self.found.get(at, 0) + samples
        return rows is not None
