"""Batches of ``torch.utils.data.DataLoader`` under observation, without an edit.

The iterators' ``__next__`` is replaced on their class, so it does not matter who holds the
loader.  ``next()`` is timed as by :meth:`fastprof.Profiler.loader`; a loader that is timed
that way already is left alone.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fastprof.capture.sections import profile_section
from fastprof.session import current
from fastprof.session.loaders import LoaderEntry, check_loader
from fastprof.session.own_time import clock
from fastprof.session.profiler import Profiler
from fastprof.session.worker_stats import Pass as WatchedPass
from fastprof.session.wrapping import FAILED

if TYPE_CHECKING:
    from fastprof.integrations.torch_phases import Phases

_L = TypeVar("_L", bound=Iterable[Any])

DATA = profile_section("data")
STARTUP = profile_section("data_startup")

#: What the user said of a loader: name, split ("" is to be found out) and weight.
_told: weakref.WeakKeyDictionary[Any, tuple[str | None, str, float | None]]
_told = weakref.WeakKeyDictionary()


def wrap(
    loader: _L, name: str | None = None, *, split: str | None = None, weight: float | None = None
) -> _L:
    """Name a data loader, for the run that is going on or one that comes.

    ``for batch in fastprof.wrap(loader, name="main")``: that is all a loop needs under
    ``fastprof run`` or ``FASTPROF=1``.  A ``torch.utils.data.DataLoader`` is returned as it
    is: its batches are timed anyway, under that name.  Any other iterable is timed as by
    :meth:`fastprof.Profiler.loader` if a run is going on, else returned as it is.

    Args:
        loader: what is iterated.
        name: its name in metric keys; None: ``loader0``, ``loader1``, ...
        split: ``"train"`` or ``"val"``; None: by whether gradients are off and the model is
            in evaluation mode (for other iterables: ``"train"``).
        weight: its configured share in a mixture, shown in the report.

    Raises:
        TypeError, ValueError: an argument of the wrong type or out of range.
    """
    check_loader(loader, name, split or "train", weight)
    if is_data_loader(loader):
        _told[loader] = (name, split or "", weight)
        return loader
    run = current.running()
    if not isinstance(run, Profiler):
        return loader
    return run.loader(loader, name, split=split or "train", weight=weight)


def is_data_loader(loader: object) -> bool:
    """Whether it is one of torch's, without importing torch."""
    return any(
        base.__module__ == "torch.utils.data.dataloader" and base.__name__ == "DataLoader"
        for base in type(loader).__mro__
    )


class _Pass:
    """One iterator: whose it is, and its entries as a training and a validation loader."""

    __slots__ = ("entries", "loader", "resumed", "took_ns", "watch")

    def __init__(
        self, iterator: Any, loader: Any, took_ns: int | None = None, *, resumed: bool = False
    ) -> None:
        # An iterator may outlive its loader, which is then kept for it; but one that its
        # loader keeps must not be kept by this.
        kept = loader is iterator or getattr(loader, "_iterator", None) is iterator
        self.loader: Callable[[], Any] = weakref.ref(loader) if kept else lambda: loader
        self.entries: dict[str, LoaderEntry] = {}
        #: How long ``iter()`` took in ns, until the first batch: its workers are watched from
        #: then on.  And whether they were there before.
        self.took_ns = took_ns
        self.resumed = resumed
        self.watch: WatchedPass | None = None


class _Start(NamedTuple):
    """A call of ``iter(loader)`` under way."""

    #: The iterator that a loader with persistent workers keeps.
    kept: Any
    #: Undone when it returns.
    workers: contextlib.ExitStack
    began: int


class Loaders:
    """Times the batches of every DataLoader in the training thread.

    Args:
        profiler: the run.
        phases: told of every fetch.
        fail: called with what failed and the exception; batches are then left alone.
    """

    def __init__(
        self, profiler: Profiler, phases: Phases, fail: Callable[[str, BaseException], None]
    ) -> None:
        self._profiler = profiler
        self._phases = phases
        self._fail = fail
        self._passes: weakref.WeakKeyDictionary[Any, _Pass] = weakref.WeakKeyDictionary()
        self._fetching = False
        self._starting = 0
        self._start: _Start | None = None
        self._on = True

    # -- DataLoader.__iter__

    def start_begins(self, args: Any, kwargs: Any) -> None:
        """``iter(loader)`` is called: workers start here."""
        if not self._on or not self._phases.here():
            return
        self._starting += 1
        if self._starting == 1 and not self._fetching and self._phases.aside():
            validates = self._validates(args[0])
            self._phases.fetch_begins(validates)
            self._start = self._start_of(args[0], validates)
            if STARTUP.enter_phase():
                # Ended by the next phase, should `iter()` not come back here.
                STARTUP.leave_later()

    def start_ends(self, args: Any, kwargs: Any, result: Any) -> None:
        """``iter(loader)`` has returned ``result``."""
        if not self._on or not self._starting or not self._phases.here():
            return
        self._starting -= 1
        start = None
        if self._starting == 0:
            STARTUP.leave_now()
            start, self._start = self._start, None
            if start is not None:
                start.workers.close()
        if result is not FAILED:
            took_ns = None if start is None else time.perf_counter_ns() - start.began
            resumed = start is not None and start.kept is result
            self._passes[result] = _Pass(result, args[0], took_ns, resumed=resumed)

    def _start_of(self, loader: Any, validates: bool) -> _Start:
        kept = getattr(loader, "_iterator", None)
        workers = contextlib.ExitStack()
        profiles = self._profiler.watches.profiles
        if kept is None and profiles.on:
            # They must be told before they start, and so whose they are.
            entry = self._entry({}, loader, "val" if validates else "train")
            workers.enter_context(profiles.recorded(loader, entry.tag))
        return _Start(kept, workers, time.perf_counter_ns())

    # -- _BaseDataLoaderIter.__next__

    def next(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """Return the iterator's next batch, timed if it is the program that asks."""
        if not self._on or self._fetching or not self._phases.here():
            return original(iterator)
        own = self._phases.own_time
        began, ns, apart_ns = clock(), own.ns, own.apart_ns
        try:
            entry, watch = self._before(iterator)
        except StopIteration:
            raise
        except Exception as error:  # the batches must come
            self._give_up(error)
            entry = watch = None
        if entry is None:
            return original(iterator)
        self._fetching = True
        try:
            if watch is not None:
                watch.before(iterator)
            own.took(began, ns, apart_ns)
            batch = self._profiler.next_batch(entry.tag, iterator, DATA)
            if watch is not None:
                watch.after(iterator)
        except StopIteration:
            self._after_last(entry)
            raise
        finally:
            self._fetching = False
        profiler = self._profiler
        if entry.split == "train":
            profiler.train_tag = entry.tag
        if profiler.counting:
            entry.batches += 1
        return batch

    def _before(self, iterator: Any) -> tuple[LoaderEntry | None, WatchedPass | None]:
        """Whose batch it is, None if somebody else times it; and how it is watched.

        Raises:
            StopIteration: the run has made as many steps as it was to make.
        """
        limit = getattr(self._profiler, "max_steps", None)
        if limit is not None and self._profiler.steps >= limit:
            self._phases.end_evaluation()
            raise StopIteration
        if DATA.phase_is_open():  # by Profiler.loader, or a section of the program
            return None, None
        known = self._passes.get(iterator)
        if known is None:  # made before the hooks were there
            known = self._passes[iterator] = _Pass(iterator, iterator)
        loader = known.loader()
        if loader is None:
            loader = iterator
        validates = self._validates(loader)
        self._phases.fetch_begins(validates)
        entry = self._entry(known.entries, loader, "val" if validates else "train")
        took_ns, known.took_ns = known.took_ns, None
        if took_ns is not None:
            watch = self._profiler.watches.of(entry.tag)
            known.watch = watch.begin(iterator, took_ns, loader, resumed=known.resumed)
        return entry, known.watch

    def _validates(self, loader: Any) -> bool:
        told = _told.get(loader)
        if told is not None and told[1]:
            return told[1] == "val"
        return self._phases.validates()

    def _entry(self, known: dict[str, LoaderEntry], loader: Any, split: str) -> LoaderEntry:
        entry = known.get(split)
        if entry is None:
            name, _, weight = _told.get(loader, (None, "", None))
            entry = self._profiler._registry.entry(loader, name, split)
            if weight is not None:
                entry.weight = float(weight)
            known[split] = entry
        return entry

    def _after_last(self, entry: LoaderEntry) -> None:
        if entry.split == "val":
            self._phases.end_evaluation()

    def _give_up(self, error: BaseException) -> None:
        self._on = False
        self._fail("batches could not be timed", error)

    def close(self) -> None:
        """Nothing is timed from now on."""
        self._on = False
