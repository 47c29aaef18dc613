"""Code inside a loader's worker process: records its functions and saves them.

This is the only code of fastprof in a worker.  It reaches the worker as its ``worker_init_fn``, by
fork or pickled, and writes a file to the folder of the training process.  If it fails, the worker
continues without being recorded.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastprof.clock import time
from fastprof.guards import dropped, own_errors

#: Limits of a worker's tree and file.
MAX_NODES = 50_000
MAX_BYTES = 32 << 20

#: Between fetches the worker renews the file after twice the time of the last one, at most this
#: many seconds later, but rarely enough to take at most one part in this many of its time.
_SAVE_EVERY_S = 2.0
_SAVE_SHARE = 50

#: In windows, a recorded batch is followed by this many times its duration without recording.
_WINDOW_REST = 20
_NEVER = float("inf")

#: Suffixes of a worker's files: its work so far, and all of it.
PART, WHOLE = ".part", ".json"

#: Lines are sampled in windows of this length, until there are so many samples.
_LINES_NS, _LINES_EVERY_NS, _LINE_SAMPLES = 400_000_000, 2_000_000, 2000

_FETCHERS = ("_MapDatasetFetcher", "_IterableDatasetFetcher")


class WorkerInit:
    """A ``worker_init_fn`` that begins to record the worker, then calls the program's own.

    Args:
        original: the loader's ``worker_init_fn``, or None.
        folder: the folder for the worker's file; only its owner may write there.
        tag: the loader's number.
        windows: record single batches now and then, not all of the worker's life.
    """

    def __init__(
        self,
        original: Callable[[int], object] | None,
        folder: str,
        tag: int,
        backend: str,
        max_depth: int,
        windows: bool = False,
    ) -> None:
        # Sent to a worker twice, it would record twice.
        self.original: Callable[[int], object] | None
        self.original = original.original if isinstance(original, WorkerInit) else original
        self.folder = folder
        self.tag = tag
        self.backend = backend
        self.max_depth = max_depth
        self.windows = windows

    def __call__(self, worker: int) -> None:
        with dropped():
            _WorkerRecording(self, worker).start()
        if self.original is not None:
            self.original(worker)


class _WorkerRecording:
    """One worker's recorder, and the times of its fetches."""

    def __init__(self, init: WorkerInit, worker: int) -> None:
        from fastprof.capture.lines import LineSampler
        from fastprof.capture.options import RecorderOptions

        self._path = Path(init.folder) / f"{init.tag}-{worker}-{os.getpid()}"
        self._worker = worker
        self._recorder = RecorderOptions(
            backend=init.backend, max_nodes=MAX_NODES, max_depth=init.max_depth
        ).create()
        self._lines = LineSampler(self._recorder)
        self._sampling = False
        self._windows_of_lines = _LINE_SAMPLES * _LINES_EVERY_NS // _LINES_NS
        self._error = ""
        self._fetches = [0, 0, 0]
        self._began = time.perf_counter()
        self._next_save = 0.0
        self._windows = init.windows
        # In windows: the open one's begin, and the earliest begin of the next.
        self._window_began: float | None = None
        # The first batch is unlike the others: it opens files and fills caches.
        self._next_window = _NEVER

    def start(self) -> None:
        from multiprocessing.util import Finalize

        if not self._windows:
            self._enable()
        # Exit handlers do not run in worker processes, but these do: before the process waits for
        # the queues to the training process.
        Finalize(None, self._finish, exitpriority=100)
        self._watch_fetches()
        if self._error:
            self._save(PART)

    def _enable(self) -> None:
        try:
            self._recorder.enable()
        except own_errors() as error:
            self._error = f"{type(error).__name__}: {error}"[:400]

    def _watch_fetches(self) -> None:
        fetch = sys.modules.get("torch.utils.data._utils.fetch")
        for name in _FETCHERS:
            fetcher = getattr(fetch, name, None)
            if fetcher is not None:
                fetcher.fetch = _timed(fetcher.fetch, self._fetch_begins, self._fetch_ended)

    def _fetch_begins(self) -> None:
        now = time.perf_counter()
        if self._windows and not self._error and now >= self._next_window:
            self._window_began = now
            self._enable()
        # In windows, the functions have to be known first.
        if self._next_window != _NEVER and not self._error:
            self._sample_lines()

    def _sample_lines(self) -> None:
        """Go on with sampling lines, which ends by itself; what ended is saved with the rest."""
        if self._sampling and self._lines.take(wait=False):
            self._sampling = False
        if not self._sampling and self._windows_of_lines > 0:
            self._windows_of_lines -= 1
            self._sampling = self._lines.begin(_LINES_EVERY_NS, _LINES_NS, _LINE_SAMPLES)

    def _fetch_ended(self, took_ns: int | None) -> None:
        """``took_ns`` is None if there is no batch: the stream's end, or the dataset's error."""
        began, self._window_began = self._window_began, None
        if began is not None:
            self._recorder.disable()
        now = time.perf_counter()
        if began is not None:
            self._next_window = now + _WINDOW_REST * (now - began)
        elif self._next_window == _NEVER:
            self._next_window = now
        # The hook makes a recorded batch of a window longer than others.
        if took_ns is not None and began is None:
            self._fetched(took_ns)

    def _fetched(self, took_ns: int) -> None:
        fetches = self._fetches
        fetches[0] += 1
        fetches[1] += took_ns
        fetches[2] = max(fetches[2], took_ns)
        now = time.perf_counter()
        if now >= self._next_save:
            # A worker kept for the next epoch does not exit before the run ends.
            if not self._windows:
                self._recorder.pause_functions()
            self._save(PART)
            if not self._windows:
                self._recorder.resume_functions()
            after = time.perf_counter()
            pause = min(_SAVE_EVERY_S, after - self._began)
            self._next_save = after + max(pause, _SAVE_SHARE * (after - now))

    def _finish(self) -> None:
        with dropped():
            self._recorder.disable()
            self._lines.take(wait=True)
        self._save(WHOLE)
        with contextlib.suppress(OSError):
            self._path.with_suffix(PART).unlink()

    def _save(self, suffix: str) -> None:
        """Write the file completely or not at all; without a file the worker is not counted."""
        with dropped():
            text = json.dumps(self._content(), separators=(",", ":"))
            if len(text) > MAX_BYTES:
                return
            temporary = self._path.with_suffix(".tmp")
            temporary.write_text(text, encoding="ascii")
            temporary.replace(self._path.with_suffix(suffix))

    def _content(self) -> dict[str, Any]:
        data = self._recorder.export()
        return {
            "worker": self._worker,
            "error": self._error,
            "backend": data["backend"] or "",  # none: it has had no window so far
            "fetches": self._fetches,
            "keys": data["keys"],
            "forms": data["forms"],
            "threads": data["threads"],
            "lines": [[*at, samples] for at, samples in self._lines.found.items()],
        }


def _timed(
    fetch: Callable[..., Any], first: Callable[[], None], then: Callable[[int | None], None]
) -> Callable[..., Any]:
    from fastprof.session.patching.wrapping import FAILED, Args, Kwargs, wrap

    began = 0

    def before(args: Args, kwargs: Kwargs) -> None:
        nonlocal began
        first()
        began = time.perf_counter_ns()

    def after(args: Args, kwargs: Kwargs, result: Any) -> None:
        took_ns = time.perf_counter_ns() - began
        then(None if result is FAILED else took_ns)

    return wrap(fetch, before, after)
