"""Observed data loaders: their names, and the iterators that time ``next()``."""

import hashlib
import operator
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from fastprof.capture.options import check_float
from fastprof.capture.sections import profile_section
from fastprof.guards import own_errors
from fastprof.session.loaders.worker_stats import Watches, watched
from fastprof.session.output.metric_names import component_among
from fastprof.session.own_time import OwnTime

SPLITS = ("train", "val")

#: The recorder's tag for work on a batch of no known loader, and its name in keys.
NO_LOADER = -1
UNKNOWN = "unknown"

#: With more loaders, a new one takes the number of a dead one in any part of the run.
_MOST_PARTS = 8

_DATA = profile_section("data")


@dataclass(slots=True, eq=False)
class LoaderEntry:
    """One loader as the recorder and the metric keys know it."""

    tag: int
    name: str
    split: str
    #: Configured share in a mixture of loaders, if the user stated one.
    weight: float | None = None
    batches: int = 0
    #: Whether the split is known, not guessed; and whether the user stated it.
    settled: bool = True
    told: bool = True
    #: The last part of the run that used it.
    part: int = 0


class LoaderRegistry:
    """Gives every loader its tag and its name.

    The same name (and split) is the same loader, for any object.  An unnamed loader is
    ``loader{i}``, in the order of appearance within its split.  The same object keeps its number,
    and an object that replaces a dead one of the same type takes over its number: a generator made
    anew in each epoch is one loader, not one per epoch.  A new optimizer begins another part of the
    run, in which a new loader of new data is another one.
    """

    def __init__(self) -> None:
        #: Number of the part of the run.
        self.part = 0
        self.entries: list[LoaderEntry] = []
        self._named: dict[tuple[str, str], LoaderEntry] = {}
        self._unnamed: list[tuple[LoaderEntry, Holder]] = []
        #: Datasets of the loaders without a stated split, by tag.
        self._data: dict[int, Holder] = {}
        self._taken: dict[str, set[str]] = {split: set() for split in SPLITS}
        # The name of work without a loader is not available for a loader.
        self._taken["train"].add(UNKNOWN)

    def entry(self, iterable: object, name: str | None, split: str) -> LoaderEntry:
        """Return the entry of ``iterable``, a new one if it is unknown."""
        if name is None:
            return self._entry_of_object(iterable, split)
        # Names can be megabytes: keep only a digest.
        key = (split, _digest(name))
        entry = self._named.get(key)
        if entry is None:
            entry = self._named[key] = self._new(name, split)
        return entry

    def guessed(
        self, iterable: object, name: str | None, split: str, *, sure: bool = False
    ) -> LoaderEntry:
        """Return the entry of a loader without a stated split, likewise.

        Args:
            iterable: the loader.  New loaders for each pass over the same data count as one.
            name: None: none was stated.
            split: the likely purpose of its batches.
            sure: the split is certain; else an entry with a known split counts.
        """
        entry = self.find_guessed(iterable, name, split, sure=sure)
        if entry is None:
            entry = self._new(name or self._number(split), split)
            entry.settled = entry.told = False
            if name is None:
                self._unnamed.append((entry, Holder(iterable)))
            else:
                self._named[split, _digest(name)] = entry
        if name is None:
            self._data[entry.tag] = Holder(data_of(iterable))
        if not entry.settled:
            self._move(entry, split)
        entry.part = self.part
        return entry

    def find_guessed(
        self, iterable: object, name: str | None, split: str, *, sure: bool = False
    ) -> LoaderEntry | None:
        """Return the entry that :meth:`guessed` made of that loader; None: there is none."""
        if name is not None:
            named = [self._named.get((other, _digest(name))) for other in SPLITS]
            return _best([entry for entry in named if entry is not None], split, sure)
        # Of this loader, of an earlier one over the same data, of a similar one.
        found: list[list[LoaderEntry]] = [[], [], []]
        data = data_of(iterable)

        def same_part(entry: LoaderEntry) -> bool:
            return entry.part == self.part or len(self.entries) >= _MOST_PARTS

        for entry, holder in self._unnamed:
            if entry.told:
                continue
            theirs, gone = self._data[entry.tag], holder.is_free_for(iterable)
            if holder.holds(iterable):
                found[0].append(entry)
            elif theirs.holds(data):
                # Trainers keep every validation loader that they made.
                if gone or (entry.settled and entry.split == split == "val"):
                    found[1].append(entry)
            elif gone and entry.split == split and theirs.is_free_for(data) and same_part(entry):
                found[2].append(entry)
        for entries in found:
            best = _best(entries, split, sure)
            if best is not None:
                places = [entry for entry, _ in self._unnamed]
                self._unnamed[places.index(best)] = (best, Holder(iterable))
                return best
        return None

    def settle(self, entry: LoaderEntry, split: str) -> None:
        """Set the split of ``entry``, if it was not known."""
        if not entry.settled:
            entry.settled = True
            self._move(entry, split)

    def _move(self, entry: LoaderEntry, split: str) -> None:
        if entry.split == split:
            return
        old, entry.split = entry.split, split
        self._taken[old].discard(entry.name)
        for (known, digest), named in list(self._named.items()):
            if named is entry:
                del self._named[known, digest]
                self._named[split, digest] = entry
                break
        else:
            entry.name = self._number(split, entry)
        entry.name = component_among(entry.name, self._taken[split])
        self._taken[split].add(entry.name)

    def _entry_of_object(self, iterable: object, split: str) -> LoaderEntry:
        free = None
        for i, (entry, holder) in enumerate(self._unnamed):
            if entry.split != split:
                continue
            if holder.holds(iterable):
                return entry
            if free is None and holder.is_free_for(iterable):
                free = i
        if free is not None:
            entry = self._unnamed[free][0]
            self._unnamed[free] = (entry, Holder(iterable))
            return entry
        entry = self._new(self._number(split), split)
        self._unnamed.append((entry, Holder(iterable)))
        return entry

    def _number(self, split: str, but: LoaderEntry | None = None) -> str:
        unnamed = [entry for entry, _ in self._unnamed if entry is not but]
        count = sum(1 for entry in unnamed if entry.split == split)
        while f"loader{count}" in self._taken[split]:
            count += 1
        return f"loader{count}"

    def _new(self, name: str, split: str) -> LoaderEntry:
        taken = self._taken[split]
        clean = component_among(name, taken)
        taken.add(clean)
        entry = LoaderEntry(len(self.entries), clean, split)
        self.entries.append(entry)
        return entry


def _best(entries: list[LoaderEntry], split: str, sure: bool) -> LoaderEntry | None:
    """Return a loader's entry for ``split`` if that is sure, else one with a known split."""
    guessed = [entry for entry in entries if not entry.told]
    # A loader used for training, and sometimes for evaluation, is mostly used for training.
    guessed.sort(key=lambda entry: entry.split != split if sure else entry.split == "val")
    for entry in guessed:
        if entry.split == split if sure else entry.settled:
            return entry
    return next((entry for entry in guessed if not entry.settled), None)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def data_of(loader: object) -> object:
    """Return the source of a loader's, or its iterator's, batches."""
    for name in ("dataset", "_dataset"):
        data = getattr(loader, name, None)
        if data is not None:
            return data
    return loader


class Holder:
    """Remembers an object without keeping it alive."""

    __slots__ = ("_id", "_ref", "_type")

    def __init__(self, target: object) -> None:
        self._id = id(target)
        self._type = type(target)
        self._ref: weakref.ref[object] | None
        try:
            self._ref = weakref.ref(target)
        except TypeError:
            # A list, for example.  Only its address identifies it: if it dies and another list gets
            # the address, that one takes over the number as well.
            self._ref = None

    def holds(self, target: object) -> bool:
        if self._ref is None:
            return self._id == id(target) and self._type is type(target)
        return self._ref() is target

    def is_free_for(self, target: object) -> bool:
        return self._ref is not None and self._ref() is None and self._type is type(target)


class ValidationState(Protocol):
    """The part of :class:`fastprof.session.validation.Validation` that an iterator uses."""

    open: int
    round: int

    def begins(self) -> None: ...
    def ends(self) -> None: ...
    def training_goes_on(self) -> None: ...


class LoopState(Protocol):
    """The part of the run that a loader's iterator uses."""

    counting: bool
    train_tag: int

    @property
    def validation(self) -> ValidationState: ...
    @property
    def next_batch(self) -> Callable[..., Any]: ...
    @property
    def watches(self) -> Watches: ...
    @property
    def registry(self) -> LoaderRegistry: ...
    @property
    def own_time(self) -> OwnTime: ...
    def leave_validation(self) -> None: ...


class _Proxy:
    """What the program may do with a wrapped loader or iterator: everything but iterate untimed.

    Iterators that are loaders themselves have a length and items, and programs use them.
    """

    __slots__ = ("_fp_of",)

    def __init__(self, of: Any) -> None:
        self._fp_of = of

    def __len__(self) -> int:
        return len(self._fp_of)

    def __bool__(self) -> bool:
        # Without this, a loader without len() could not be used as a condition.
        return bool(self._fp_of)

    def __getitem__(self, index: Any) -> Any:
        return self._fp_of[index]

    def __getattr__(self, name: str) -> Any:
        # Copy and pickle make a half-made object, which must not look up itself.
        if name.startswith("_fp_"):
            raise AttributeError(name)
        return getattr(self._fp_of, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_fp_"):  # copy fills a copy this way
            object.__setattr__(self, name, value)
            return
        setattr(self._fp_of, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._fp_of, name)


class TimedLoader(_Proxy):
    """An iterable with timed iterators; everything else is the iterable's own.

    It can be iterated repeatedly, ``len()`` passes through, and attributes are read from and
    written to the wrapped loader (``loader.sampler.set_epoch(epoch)``).
    """

    __slots__ = ("_fp_entry", "_fp_run")

    def __init__(self, run: LoopState, entry: LoaderEntry, loader: Iterable[Any]) -> None:
        self._fp_run = run
        self._fp_entry = entry
        super().__init__(loader)

    def __iter__(self) -> "TimedIterator":
        run, entry = self._fp_run, self._fp_entry
        return timed_iterator(run, entry, run.watches.of(entry.tag).open(self._fp_of))

    def __repr__(self) -> str:
        return f"<fastprof loader {self._fp_entry.name!r} of {self._fp_of!r}>"


class TimedIterator(_Proxy):
    """One pass over a loader; ``next()`` is timed as section ``data``."""

    __slots__ = ("_fp_entry", "_fp_next", "_fp_pass", "_fp_run", "_fp_section")

    def __init__(self, run: LoopState, entry: LoaderEntry, iterator: Iterator[Any]) -> None:
        self._fp_run = run
        self._fp_entry = entry
        super().__init__(iterator)
        self._fp_next = run.next_batch
        self._fp_section = _DATA
        #: The watch of its workers; None for other iterators than those of torch's loaders.
        self._fp_pass = watched(iterator)

    def __iter__(self) -> "TimedIterator":
        return self

    def __next__(self) -> Any:
        entry = self._fp_entry
        if self._fp_run.validation.open:
            self._fp_run.validation.training_goes_on()
        if self._fp_pass is None:
            batch = self._fp_next(entry.tag, self._fp_of, self._fp_section)
        else:
            batch = self._fp_fetch(entry.tag)
        run = self._fp_run
        run.train_tag = entry.tag
        if run.counting:
            entry.batches += 1
        return batch

    def _fp_fetch(self, tag: int) -> Any:
        iterator, watch, own = self._fp_of, self._fp_pass, self._fp_run.own_time
        if watch is None:
            return self._fp_next(tag, iterator, self._fp_section)
        # Without workers, only the time between two batches is to be known, in some plain steps.
        observed = own.samples or watch.workers
        if observed or watch.delivered is not None:
            watch.before(iterator)
        batch = self._fp_next(tag, iterator, self._fp_section)
        if observed:
            watch.after(iterator)
        return batch

    def __length_hint__(self) -> int:
        return operator.length_hint(self._fp_of)


class ValidationIterator(TimedIterator):
    """One pass over a validation loader; reaching its end or dropping it ends the pass."""

    __slots__ = ("_fp_open", "_fp_round", "_fp_thread")

    def __init__(self, run: LoopState, entry: LoaderEntry, iterator: Iterator[Any]) -> None:
        super().__init__(run, entry, iterator)
        self._fp_thread = threading.get_ident()
        self._fp_open = False
        self._fp_round = 0

    def __next__(self) -> Any:
        entry = self._fp_entry
        if not self._fp_open or self._fp_round != self._fp_run.validation.round:
            self._fp_open = True
            self._fp_round = self._fp_run.validation.round
            self._fp_run.validation.begins()
        try:
            batch = self._fp_fetch(entry.tag)
        except StopIteration:
            self._fp_close()
            self._fp_run.leave_validation()
            raise
        if self._fp_run.counting:
            entry.batches += 1
        return batch

    def _fp_close(self) -> None:
        if self._fp_open:
            self._fp_open = False
            # Training continued: this pass is over, and the open one is another.
            if self._fp_round == self._fp_run.validation.round:
                self._fp_run.validation.ends()

    def __del__(self) -> None:
        # A loop that ends with ``break`` drops its iterator at once.  If the garbage collector
        # drops it later, in any thread, the pass stays open until the end of the run: a logger must
        # not be called from there.  Later work still belongs to the batch fetched last: ``batch =
        # next(iter(loader))`` drops its iterator as well.
        try:
            if self._fp_open and threading.get_ident() == self._fp_thread:
                self._fp_close()
        except own_errors():  # half-made, or the interpreter is shutting down
            pass


def timed_iterator(run: LoopState, entry: LoaderEntry, iterator: Iterator[Any]) -> TimedIterator:
    kind = ValidationIterator if entry.split == "val" else TimedIterator
    return kind(run, entry, iterator)


def check_loader(iterable: object, name: object, split: object, weight: object) -> None:
    """Check the arguments of ``Profiler.loader``.

    Raises:
        TypeError, ValueError: an argument of the wrong type or out of range.
    """
    if name is not None and not isinstance(name, str):
        raise TypeError(f"loader name is {name!r:.80}, expected a string")
    if name == "":
        raise ValueError("loader name is empty; leave it out for loader0, loader1, ...")
    if split not in SPLITS:
        raise ValueError(f"loader split is {split!r:.80}, expected one of {SPLITS}")
    if weight is not None and check_float("loader weight", weight) < 0:
        raise ValueError(f"loader weight is {weight!r:.80}, expected 0 or more")
    if not hasattr(iterable, "__iter__") and not hasattr(iterable, "__getitem__"):
        raise TypeError(f"loader is {type(iterable).__name__}, which cannot be iterated")


def wrap(
    run: LoopState,
    iterable: Iterable[Any],
    name: str | None,
    split: str,
    weight: float | None,
) -> Iterable[Any]:
    """Return ``iterable`` timed as the loader of that name; see ``Profiler.loader``."""
    if isinstance(iterable, (TimedLoader, TimedIterator)):
        if name is None:
            return iterable
        iterable = iterable._fp_of
    entry = run.registry.entry(iterable, name, split)
    if weight is not None:
        entry.weight = float(weight)
    if isinstance(iterable, Iterator):
        if watched(iterable) is None:
            run.watches.of(entry.tag).begin(iterable)
        return timed_iterator(run, entry, iterable)
    return TimedLoader(run, entry, iterable)
