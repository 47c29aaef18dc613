"""Times the batches of ``torch.utils.data.DataLoader`` without a change of the program.

It replaces ``__next__`` on the class of the iterators, so it does not matter who holds the
loader.  It times ``next()`` like :meth:`fastprof.Profiler.loader`, and leaves loaders alone
that are already timed that way.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from fastprof.capture.plain_steps import PlainFetch
from fastprof.capture.sections import profile_section
from fastprof.clock import time
from fastprof.guards import is_near_limit, own_errors
from fastprof.integrations._torch.phases import Phases
from fastprof.integrations._torch.plain_ends import PlainEnds
from fastprof.session import current
from fastprof.session.loaders.timing import NO_LOADER, LoaderEntry, check_loader
from fastprof.session.loaders.worker_stats import Pass as WatchedPass
from fastprof.session.own_time import SAMPLED, clock
from fastprof.session.patching.wrapping import FAILED
from fastprof.session.run import Run

_L = TypeVar("_L", bound=Iterable[Any])

DATA = profile_section("data")
STARTUP = profile_section("data_startup")

#: The user's settings of a loader: name, split ("": detect it) and weight.
_told: weakref.WeakKeyDictionary[Any, tuple[str | None, str, float | None]]
_told = weakref.WeakKeyDictionary()

#: Attribute of an iterator for its loader.
_LOADER = "_fastprof_loader"


def wrap(
    loader: _L, name: str | None = None, *, split: str | None = None, weight: float | None = None
) -> _L:
    """Name a data loader, for the current run or a later one.

    A loop under ``fastprof run`` or ``FASTPROF=1`` needs only
    ``for batch in fastprof.wrap(loader, name="main")``.  A ``torch.utils.data.DataLoader`` is
    returned unchanged: its batches are timed anyway, under that name.  Any other iterable is
    timed as by :meth:`fastprof.Profiler.loader` during a run, else returned unchanged.

    Args:
        loader: the iterable.
        name: its name in metric keys; None: ``loader0``, ``loader1``, ...
        split: ``"train"`` or ``"val"``; None: detected from gradients being off and the
            model's evaluation mode (for other iterables: ``"train"``).
        weight: its configured share in a mixture, shown in the report.

    Raises:
        TypeError, ValueError: an argument of the wrong type or out of range.
    """
    check_loader(loader, name, split or "train", weight)
    if is_data_loader(loader):
        _told[loader] = (name, split or "", weight)
        return loader
    run = current.running()
    if not isinstance(run, Run):
        return loader
    return run.loader(loader, name, split=split or "train", weight=weight)


def is_data_loader(loader: object) -> bool:
    """Return whether it is a DataLoader of torch, without importing torch."""
    return any(
        base.__module__ == "torch.utils.data.dataloader" and base.__name__ == "DataLoader"
        for base in type(loader).__mro__
    )


class _Pass:
    """One iterator: its loader, and the entry for which its batches count."""

    __slots__ = (
        "ahead", "calls", "entry", "iterator", "kept", "loader", "plain", "resumed", "settled",
        "took_ns", "validates", "watch",
    )  # fmt: skip

    def __init__(
        self, iterator: Any, loader: Any, took_ns: int | None = None, *, resumed: bool = False
    ) -> None:
        self.iterator: Callable[[], Any] = weakref.ref(iterator)
        self.loader: Callable[[], Any] = weakref.ref(loader)
        #: The iterator has a reference to its loader.
        self.kept = True
        self.entry: LoaderEntry | None = None
        #: The program's use of a batch has shown the purpose of the pass.
        self.settled = False
        #: Whether batches are fetched before the last one was used, detected from the number
        #: of module calls up to the last fetch.
        self.ahead = False
        self.calls = -1
        #: Time of ``iter()`` in ns; None from the first batch on, when the watch of its workers
        #: begins.  And whether the workers existed before.
        self.took_ns = took_ns
        self.resumed = resumed
        self.watch: WatchedPass | None = None
        #: Its next batch is for the same purpose as the last one, and nothing else is due.
        self.plain = False
        #: That purpose is a validation.
        self.validates = False

    def asked(self, calls: int) -> None:
        """Note that a batch was fetched after that number of module calls."""
        self.ahead = self.ahead or self.calls == calls
        self.calls = calls


class _Start(NamedTuple):
    """A running call of ``iter(loader)``."""

    #: The iterator that a loader with persistent workers keeps.
    kept: Any
    #: Closed when the call returns.
    workers: contextlib.ExitStack
    began: int
    #: Whether it left a step.
    apart: bool


class Loaders:
    """Times the batches of every DataLoader in the training thread.

    Args:
        fail: called with a description of the failure and the exception; then timing stops.
    """

    def __init__(
        self, run: Run, phases: Phases, fail: Callable[[str, BaseException], None]
    ) -> None:
        self._run = run
        self._loading = run.loading
        self._phases = phases
        self._fail = fail
        self._passes: weakref.WeakKeyDictionary[Any, _Pass] = weakref.WeakKeyDictionary()
        #: The pass of the last batch, and the passes not settled yet.
        self._last: _Pass | None = None
        #: The pass whose batch was asked for last; None: its iterator may have begun another.
        self._current: _Pass | None = None
        self._guessed: list[_Pass] = []
        self._last_training = NO_LOADER
        self._starting = 0
        self._start: _Start | None = None
        self._on = True
        # Returns the next batch of an iterator.
        self._fetch: Callable[[Any], Any] = self._fetch_plain
        self._original: Callable[[Any], Any] = next
        self._core: PlainFetch | None = None
        # The iterator of the last plain fetch, and whether C has fetched from it since a sample.
        self._served: Callable[[], Any] = lambda: None
        self._in_core = False
        self._loading.watches.keep_out_of_steps()
        phases.on_training = self._trains
        phases.on_evaluation = self._evaluates

    # -- DataLoader.__iter__

    def start_begins(self, args: Any, kwargs: Any) -> None:
        """Handle the call of ``iter(loader)``: workers start here."""
        if not self._on or not self._phases.here():
            return
        if not self._phases.fetching:  # the last one was abandoned
            self._starting = 0
        self._starting += 1
        if self._starting == 1 and self._phases.aside():
            validates = self._validates(args[0])
            self._phases.start_begins(validates)
            self._start = self._start_of(args[0])
            if STARTUP.enter_phase():
                # The next phase ends it if `iter()` does not come back here.
                STARTUP.leave_later()
            self._phases.fetching = True

    def start_ends(self, args: Any, kwargs: Any, result: Any) -> None:
        """Handle the return of ``iter(loader)``."""
        if not self._phases.here():
            if self._on and result is not FAILED and self._phases.may_move:
                self._know(args[0], result, _Pass(result, args[0]))
            return
        if not self._on or not self._starting:
            return
        self._starting -= 1
        start = None
        if self._starting == 0:
            start, self._start = self._start, None
            if start is not None:
                self._phases.fetching = False
                STARTUP.leave_now()
                start.workers.close()
                if start.apart:
                    self._loading.workers_end()
        if result is not FAILED:
            took_ns = None if start is None else time.perf_counter_ns() - start.began
            resumed = start is not None and start.kept is result
            known = _Pass(result, args[0], took_ns, resumed=resumed)
            self._know(args[0], result, known)

    def _know(self, loader: Any, iterator: Any, known: _Pass) -> None:
        self._passes[iterator] = known
        self._current = None
        self._unserve()
        # The iterator may outlive the loader, which is needed until the pass is settled.  A
        # loader may hold its iterator: these two must be able to die together.
        if loader is not iterator and getattr(loader, "_iterator", None) is not iterator:
            getattr(iterator, "__dict__", {})[_LOADER] = loader

    def _start_of(self, loader: Any) -> _Start:
        kept = getattr(loader, "_iterator", None)
        workers = contextlib.ExitStack()
        profiles = self._loading.watches.profiles
        if kept is None and profiles.on:
            # Workers get their owner before they start.
            entry = self._entry_of(loader)
            workers.enter_context(profiles.recorded(loader, entry.tag))
        # Not only the start of processes: else a step would have a part of the section.
        apart = self._loading.workers_begin("start")
        return _Start(kept, workers, time.perf_counter_ns(), apart)

    # -- _BaseDataLoaderIter.__next__

    def timed(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function like ``original``, which fetches the next batch of an iterator."""
        self._original = original

        @functools.wraps(original)
        def next_batch(iterator: Any) -> Any:
            return self._fetch(iterator)

        return next_batch

    def fetch_by(self, ends: PlainEnds) -> None:
        """Let C fetch the batches of loaders without workers while ``ends`` ends plain steps."""
        self._core = ends.fetch(self._fetch_plain, self._is_over, self._original)
        self._fetch = self._core.next

    def _fetch_plain(self, iterator: Any) -> Any:
        """Return the next batch, of a plain step if it is like the last one."""
        phases, loading, own = self._phases, self._loading, self._phases.own_time
        if phases.fetching:
            return self._original(iterator)
        known = self._current
        if known is None or not known.plain or known.iterator() is not iterator:
            return self._next(iterator)
        entry: Any = known.entry
        in_core = self._in_core and not known.validates
        samples = 0 if entry.batches % SAMPLED else 2 if in_core else SAMPLED
        ns, apart_ns, began = own.ns, own.apart_ns, clock() if samples else 0
        if not (phases.is_plain_validation() if known.validates else phases.is_plain_fetch()):
            return self._next(iterator)
        self._last, watch = known, known.watch
        if known.validates:
            known.asked(phases.calls)
            watch = None
        else:
            loading.train_tag = self._last_training = entry.tag
        # Without workers, only the time between two batches is to be known.
        observed = watch is not None and (samples or watch.workers)
        phases.fetching = True
        try:
            if samples:
                own.took(began, ns, apart_ns, samples)
                ns, apart_ns, began = own.ns, own.apart_ns, clock()
            if watch is not None and (observed or watch.delivered is not None):
                watch.before(iterator)
            if samples:  # without workers, only the batch after it has this, too
                each = watch is not None and watch.workers
                own.took(began, ns, apart_ns, samples if each else 2)
            batch = loading.next_batch(entry.tag, iterator, DATA, self._original)
            if watch is not None and observed:
                watch.after(iterator)
        except StopIteration:
            self._after_last(known)
            raise
        finally:
            phases.fetching = False
        if loading.counting:
            entry.batches += 1
        if samples:
            self._in_core = False
        elif not (known.validates or (watch and (watch.workers or watch.delivered is not None))):
            self._serve(iterator, entry)
        return batch

    def _serve(self, iterator: Any, entry: LoaderEntry) -> None:
        """Let C fetch the next batches of the iterator, up to the one that is measured."""
        most = -entry.batches % SAMPLED
        core = self._core
        if core is not None and most and core.begin(iterator, entry, entry.tag, most):
            self._in_core = True
            if self._served() is not iterator:
                # At its address another one may be made.
                self._served = weakref.ref(iterator, lambda _: core.end())

    def _unserve(self) -> None:
        if self._core is not None:
            self._core.end()

    def _is_over(self) -> None:
        """Handle the end of the iterator that C asked for a batch."""
        if self._last is not None:
            self._after_last(self._last)

    def _next(self, iterator: Any) -> Any:
        """Return the iterator's next batch, timed if the program asks for it."""
        phases, original = self._phases, self._original
        self._unserve()
        if not self._on or phases.fetching:
            return original(iterator)
        own = self._phases.own_time
        began, ns, apart_ns = clock(), own.ns, own.apart_ns
        try:
            counts = phases.here() or phases.fetch_moves_here()
            known = self._before(iterator) if counts else None
        except StopIteration:
            raise
        except own_errors() as error:  # the batches must come
            self._give_up(error)
            known = None
        entry = None if known is None else known.entry
        if known is None or entry is None:
            return original(iterator)
        watch = known.watch
        phases.fetching = True
        try:
            if watch is not None:
                watch.before(iterator)
            own.took(began, ns, apart_ns)
            batch = self._loading.next_batch(entry.tag, iterator, DATA, original)
            if watch is not None:
                watch.after(iterator)
        except StopIteration:
            self._after_last(known)
            raise
        finally:
            phases.fetching = False
        self._last = known
        known.asked(phases.calls)
        if not known.settled:
            phases.becomes_unsure()
            if known not in self._guessed:
                self._guessed.append(known)
        elif entry.split == "val":
            phases.becomes_unsure()
        else:
            self._last_training = entry.tag
        if entry.split == "train":
            self._loading.train_tag = entry.tag
        if self._loading.counting:
            entry.batches += 1
        unlimited = self._loading.limit.steps is None
        known.validates = entry.split == "val"
        workers = watch is not None and watch.workers
        known.plain = known.settled and not known.kept and unlimited
        known.plain = known.plain and not (known.validates and workers)
        return batch

    def _before(self, iterator: Any) -> _Pass | None:
        """Return the owner of the batch; None if other code times it.

        Raises:
            StopIteration: the run has reached its limit of steps.
        """
        if self._loading.limit.is_reached():
            self._phases.epoch_ends()
            raise StopIteration
        if DATA.phase_is_open():  # by Profiler.loader, or a section of the program
            return None
        known = self._current
        if known is None or known.iterator() is not iterator:
            known = self._passes.get(iterator)
            if known is None:  # made before the hooks were installed
                known = self._passes[iterator] = _Pass(iterator, iterator)
            self._current = known
        loader = known.loader()
        if loader is None:
            loader = iterator
        entry = known.entry
        if entry is None or not known.settled:
            entry = known.entry = self._entry_of(loader)
            known.settled = entry.told
        if known.settled and known.kept:
            known.kept = False
            vars(iterator).pop(_LOADER, None)
        self._phases.fetch_begins(entry.split == "val")
        took_ns, known.took_ns = known.took_ns, None
        if took_ns is not None:
            watch = self._loading.watches.of(entry.tag)
            known.watch = watch.begin(iterator, took_ns, loader, resumed=known.resumed)
        return known

    def _guess(self) -> tuple[str, bool]:
        """Return the purpose of a batch fetched now, and whether it is certain.

        Without gradients the program does not train.  It often sets the mode only after the
        fetch.  A program that only infers has one loop, which counts like that of a training.
        """
        if self._phases.infers:
            return "train", False
        if not self._phases.is_graded():
            return "val", True
        return "val" if self._phases.models.are_evaluated() else "train", False

    def _validates(self, loader: Any) -> bool:
        name, split, _ = _told.get(loader, (None, "", None))
        if not split:
            split, sure = self._guess()
            entry = self._loading.registry.find_guessed(loader, name, split, sure=sure)
            if entry is not None and entry.settled:
                split = entry.split
        return split == "val"

    def _entry_of(self, loader: Any, known: str = "") -> LoaderEntry:
        name, split, weight = _told.get(loader, (None, "", None))
        registry = self._loading.registry
        if split:
            entry = registry.entry(loader, name, split)
        else:
            split, sure = (known, True) if known else self._guess()
            entry = registry.guessed(loader, name, split, sure=sure)
            if known:
                entry.settled = True
        if weight is not None:
            entry.weight = float(weight)
        return entry

    def _after_last(self, known: _Pass) -> None:
        entry = known.entry
        if entry is not None and entry.split == "val":
            self._settle(known, "val")
            if not known.ahead:
                self._phases.end_evaluation()
        else:
            self._phases.epoch_ends()
        self._last = None
        self._unserve()

    # -- purpose of the batches

    def _trains(self) -> None:
        """Handle the begin of backward: the batches since the last one are for training."""
        for known in list(self._guessed):
            self._settle(known, "train")
        last = self._last
        if last is not None and last.entry is not None and last.entry.split == "val":
            last.settled = False
            self._settle(last, "train")

    def _evaluates(self) -> None:
        """Handle an evaluation of the model on the last fetched batch."""
        if self._last is not None:
            self._settle(self._last, "val")

    def _settle(self, known: _Pass, split: str) -> None:
        """Set the detected split of a pass; a split given by the user stays."""
        if known in self._guessed:
            self._guessed.remove(known)
        old, loader = known.entry, known.loader()
        if old is None or known.settled or old.told:
            return
        known.settled = True
        if loader is not None:
            entry = known.entry = self._entry_of(loader, split)
        else:
            entry = old
            self._loading.registry.settle(entry, split)
        if entry is not old and self._loading.counting:
            # Only one batch has been counted so far: the next one counts for the right entry.
            old.batches, entry.batches = old.batches - 1, entry.batches + 1
        train_tag = self._loading.train_tag
        if split == "train":
            self._loading.train_tag = self._last_training = entry.tag
        elif train_tag in (entry.tag, old.tag):
            self._loading.train_tag = self._last_training
        if entry is not old:
            self._run.recorder.set_loader(entry.tag)

    def _give_up(self, error: BaseException) -> None:
        self._on = is_near_limit(error)
        self._current = None
        self._unserve()
        self._fail("batches could not be timed", error)
