"""Measures how a loader gets its batches: whether one was ready, how long its workers take.

A :class:`LoaderWatch` per loader adds up; the code that iterates a loader notifies it of ``iter()``
and every ``next()``.  There are two such places: ``Profiler.loader()`` and the wrapper of torch's
loader classes for scripts that wrap nothing; only one of them watches an iterator.

The data on worker processes comes from the attributes of torch's iterator, and two of its methods
are replaced during the run: ``_get_data``, in which the loop waits for workers, and
``_shutdown_workers``.  So is ``__init__`` of all iterators with workers: steps do not contain the
start and the end of worker processes, in whatever loop.  An attribute that differs from the known
releases switches this off, which is reported once.

**Load time** is found without looking into a worker: a worker takes its tasks in the order in which
they were sent.  It begins a batch when its last one was finished or when the task was sent,
whichever was later.  Both are visible here if the loop was waiting when the batches arrived.
Batches that arrived at other times have no load time.
"""

import os
import select
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, Protocol

from fastprof.clock import time
from fastprof.guards import dropped, own_errors
from fastprof.session.faults import Faults
from fastprof.session.loaders.worker_profiles import WorkerProfiles
from fastprof.session.patching.replaced import Replaced
from fastprof.session.patching.wrapping import FAILED, Args, Kwargs, wrap
from fastprof.snapshot.history_sums import Loading
from fastprof.snapshot.kinds import int_or_none
from fastprof.snapshot.loaders import DEPTHS, MAX_WORKERS, LoadTime, WorkerStats

#: Attribute of a watched iterator for its :class:`Pass`.
_MARK = "_fastprof_pass"

_clock = time.perf_counter_ns


class RunState(Protocol):
    """The part of the run that the watches use."""

    @property
    def counting(self) -> bool: ...
    @property
    def measuring(self) -> bool: ...
    @property
    def away_ns(self) -> int: ...
    def workers_begin(self, what: str) -> bool: ...
    def workers_end(self) -> None: ...


class Watches:
    """The watches of one run, and their shared data.

    Args:
        run: the run; watches count only while ``run.counting``.
    """

    def __init__(self, run: RunState, faults: Faults, profiles: WorkerProfiles) -> None:
        self.run = run
        self.faults = faults
        self.profiles = profiles
        self.on = True
        self._by_tag: dict[int, LoaderWatch] = {}
        self._replaced = Replaced()
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()
        #: The iterator whose workers start or end now, outside of steps, by address.
        self._apart = 0
        #: Time in ``next()`` of all watched iterators so far.
        self.loading_ns = 0

    def of(self, tag: int) -> "LoaderWatch":
        watch = self._by_tag.get(tag)
        if watch is None:
            watch = self._by_tag[tag] = LoaderWatch(self, tag)
        return watch

    def stats(self, tag: int) -> WorkerStats | None:
        """Return the data on the loader ``tag``; None: it is not a loader of torch's."""
        watch = self._by_tag.get(tag)
        return None if watch is None else watch.stats()

    def now(self, tag: int) -> Loading | None:
        """Return what the workers of the loader ``tag`` did so far; None: it has none."""
        watch = self._by_tag.get(tag)
        if watch is None or not watch.workers:
            return None
        loads = [load[:2] for load in list(watch.loads.values())]
        return Loading(
            workers=watch.workers,
            batches=watch.ready + watch.blocked,
            blocked=watch.blocked,
            blocked_ns=watch.blocked_ns,
            loads=sum(count for count, _ in loads),
            load_ns=sum(ns for _, ns in loads),
        )

    def close(self) -> None:
        """Restore all methods, and collect the workers' files."""
        for iterator in list(self._open):
            pass_ = watched(iterator)
            if pass_ is not None:
                pass_.count_dead(iterator)
        self.restore()
        self.profiles.close()

    def restore(self) -> None:
        """Restore all methods."""
        self._replaced.restore()

    def give_up(self, error: BaseException) -> None:
        """Stop watching workers: an attribute is not as expected."""
        if self.faults.is_gap("loader_errors", error):
            return
        self.on = False
        self.faults.add("loader_errors", "fastprof: workers are not watched any more", error)

    def stand_in(self, iterator: Any) -> None:
        """Replace methods of this kind of iterator to notice waits and shutdowns."""
        self._open.add(iterator)
        self._replace(type(iterator), "_get_data", _before_get, _after_get)
        self._replace(
            type(iterator), "_shutdown_workers", self._before_shutdown, self._after_shutdown
        )

    def keep_out_of_steps(self) -> None:
        """Let steps not contain the start and the end of workers, of any loader of torch's."""
        module = sys.modules.get("torch.utils.data.dataloader")
        kind = getattr(module, "_MultiProcessingDataLoaderIter", None)
        if not isinstance(kind, type) or not self.run.counting:
            return
        try:
            self._replace(kind, "__init__", self._before_start, self._after_start)
            self._replace(kind, "_shutdown_workers", self._before_shutdown, self._after_shutdown)
        except StopIteration as error:  # an unknown release has no such method
            self.give_up(error)

    def _leave_step(self, what: str, iterator: Any) -> None:
        if self.run.workers_begin(what):
            self._apart = id(iterator)

    def _return_to_step(self, iterator: Any) -> None:
        if self._apart == id(iterator):
            self._apart = 0
            self.run.workers_end()

    def _before_start(self, args: Args, kwargs: Kwargs) -> None:
        self._leave_step("start", args[0])

    def _after_start(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        self._return_to_step(args[0])

    def _before_shutdown(self, args: Args, kwargs: Kwargs) -> None:
        iterator = args[0]
        if not iterator._shutdown:
            self._leave_step("end", iterator)
        pass_ = watched(iterator)
        if pass_ is not None:
            pass_.shutdown_begins(iterator)

    def _after_shutdown(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        pass_ = watched(args[0])
        if pass_ is not None:
            pass_.shutdown_ended()
        self._return_to_step(args[0])

    def _replace(
        self,
        kind: type,
        name: str,
        before: Callable[[Args, Kwargs], None],
        after: Callable[[Args, Kwargs, Any], None],
    ) -> None:
        owner = next(cls for cls in kind.__mro__ if name in cls.__dict__)
        original = owner.__dict__[name]
        if not self._replaced.has(original):
            self._replaced.put(owner, name, wrap(original, before, after))


class LoaderWatch:
    """One loader over all its passes; it has most fields of :class:`WorkerStats`."""

    def __init__(self, shared: Watches, tag: int) -> None:
        self.shared = shared
        self.tag = tag
        self.known = False
        self.workers = 0
        self.prefetch: int | None = None
        self.batch_size: int | None = None
        self.persistent = False
        self.start_method: str | None = None
        self.ready = 0
        self.ready_ns = 0
        self.blocked = 0
        self.blocked_ns = 0
        self.depth = [0] * DEPTHS
        self.loads: dict[int, list[int]] = {}
        self.starts = [0, 0]
        self.resumes = [0, 0]
        self.firsts = [0, 0]
        self.shutdowns = [0, 0]
        self.caught_up = [0, 0]
        self.between = [0, 0]
        self.died = 0
        self.processes = 0

    def open(self, loader: Any, make: Callable[[Any], Iterator[Any]] = iter) -> Iterator[Any]:
        """Return ``make(loader)``, an iterator, and begin to watch it.

        Exceptions of ``make`` pass through; nothing else is raised.
        """
        shared = self.shared
        shared.keep_out_of_steps()
        kept = _own(loader).get("_iterator")
        began = _clock()
        if kept is None and shared.profiles.on:
            with shared.profiles.recorded(loader, self.tag):
                iterator = make(loader)
        else:
            iterator = make(loader)
        self.begin(iterator, _clock() - began, loader, resumed=iterator is kept)
        return iterator

    def begin(
        self,
        iterator: Any,
        took_ns: int | None = None,
        loader: Any = None,
        *,
        resumed: bool = False,
    ) -> "Pass | None":
        """Begin to watch an iterator, if it is one of torch's loaders' and the run is active.

        Args:
            iterator: the iterator, before its first fetch in this pass.
            took_ns: duration of ``iter()`` in ns; None: unknown.
            loader: its loader, for the batch size; None: unknown.
            resumed: its workers are those of the previous pass.
        """
        shared = self.shared
        if not shared.on or not shared.run.counting:
            return None
        try:
            # By its attributes: torch may be missing, and is not imported.
            own = _own(iterator)
            if "_sampler_iter" not in own or type(own.get("_num_workers")) is not int:
                return None
            pass_ = Pass(self, iterator)
            setattr(iterator, _MARK, pass_)
            self._describe(iterator, loader)
            if not resumed:
                self.processes += pass_.workers
            if took_ns is not None:
                _add(self.resumes if resumed else self.starts, took_ns)
            if pass_.workers:
                shared.stand_in(iterator)
        except own_errors() as error:
            shared.give_up(error)
            return None
        return pass_

    def _describe(self, iterator: Any, loader: Any) -> None:
        self.known = True
        self.workers = iterator._num_workers
        self.persistent = bool(getattr(iterator, "_persistent_workers", False))
        self.prefetch = int_or_none(getattr(iterator, "_prefetch_factor", None))
        if loader is not None:
            size = getattr(loader, "batch_size", None)
            if size is None:
                size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
            self.batch_size = int_or_none(size)
        workers = getattr(iterator, "_workers", None)
        if workers:
            # A process of a context: ForkProcess, SpawnProcess, ForkServerProcess.
            method = getattr(workers[0], "_start_method", None)
            self.start_method = method if isinstance(method, str) else None

    def loaded(self, worker: int, took_ns: int) -> None:
        load = self.loads.setdefault(worker, [0, 0, 0])
        load[0] += 1
        load[1] += took_ns
        load[2] = max(load[2], took_ns)

    def stats(self) -> WorkerStats | None:
        """Return the sums so far, frozen; None: nothing was watched."""
        if not self.known:
            return None
        merged = self.shared.profiles.of(self.tag)
        loads = tuple(LoadTime(w, *load) for w, load in sorted(self.loads.items()))
        measured = merged is not None and bool(merged.loads)
        if merged is not None and measured:
            loads = tuple(load for _, load in sorted(merged.loads.items()))
        profiled = 0 if merged is None else merged.processes
        made: dict[str, Any] = {
            "cpus": _cpus(),
            "loads": loads,
            "measured": measured,
            "profiled": profiled,
            "windows": profiled > 0 and self.shared.profiles.windows,
        }
        for name in (f.name for f in fields(WorkerStats) if f.name not in made):
            value = getattr(self, name)
            made[name] = tuple(value) if isinstance(value, list) else value
        return WorkerStats(**made)


class Pass:
    """One pass over a loader of torch's.

    It belongs to the iterator and does not keep it alive: a dropped iterator must shut its workers
    down at once.
    """

    __slots__ = (
        "_asked_ns", "_began", "_blocked_ns", "_depth", "_done", "_ending", "_first",
        "_get_began", "_get_empty", "_newest_ns", "_sent", "_sent_ns", "_shutdown_began",
        "_since_ns", "_watch", "delivered", "workers",
    )  # fmt: skip

    def __init__(self, watch: LoaderWatch, iterator: Any) -> None:
        workers = iterator._num_workers
        if not 0 <= workers <= MAX_WORKERS:
            raise ValueError(f"_num_workers is {workers!r:.80}, expected a number of processes")
        self._watch = watch
        self.workers = workers
        self._first = True
        self._began = 0
        #: The time outside of loading and in steps when the last batch came, if work on it counts.
        self.delivered: int | None = None
        self._blocked_ns = -1
        self._depth = 0
        # State of the tasks: when each was sent, and per worker when its last batch arrived and
        # whether the loop was waiting for it then.
        self._sent = iterator._send_idx if workers else 0
        now = _clock()
        self._sent_ns: dict[int, int] = dict.fromkeys(range(self._sent), now)
        self._done: dict[int, tuple[int, bool]] = {}
        self._get_began = 0
        self._get_empty = False
        # No task was sent in this next() before, nor the newest one before that time; how long
        # ago that is, if all batches have come (else -1).
        self._asked_ns = self._newest_ns = now
        self._since_ns = -1
        self._shutdown_began = 0
        #: Its workers that were alive then.
        self._ending: list[Any] = []

    def before(self, iterator: Any) -> None:
        """Prepare for a call of ``next(iterator)``."""
        self._blocked_ns = -1
        delivered, self.delivered = self.delivered, None
        if delivered is not None and self._watch.shared.run.measuring:
            _add(self._watch.between, max(0, self._working_ns(_clock()) - delivered))
        if self.workers and self._watch.shared.on:
            try:
                self._depth = _batches_ready(iterator)
                caught_up = self._depth >= len(iterator._task_info) > 0
            except own_errors() as error:
                self._watch.shared.give_up(error)
                caught_up = False
            self._since_ns = _clock() - self._newest_ns if caught_up else -1
        self._began = self._asked_ns = _clock()

    def after(self, iterator: Any) -> None:
        """Handle a batch returned by ``next(iterator)``."""
        watch = self._watch
        if not watch.shared.on:
            return
        now = _clock()
        counting = watch.shared.run.counting
        watch.shared.loading_ns += now - self._began
        if watch.shared.run.measuring:
            self.delivered = self._working_ns(now)
        if self._first:
            self._first = False
            if counting:
                _add(watch.firsts, now - self._began)
        elif self.workers and counting:
            watch.depth[min(self._depth.bit_length(), DEPTHS - 1)] += 1
            if self._since_ns >= 0:
                _add(watch.caught_up, self._since_ns)
            if self._blocked_ns < 0:
                watch.ready += 1
                watch.ready_ns += now - self._began
            else:
                watch.blocked += 1
                watch.blocked_ns += self._blocked_ns
        if self.workers:
            try:
                sent = iterator._send_idx
                if sent > self._sent:
                    self._newest_ns = self._asked_ns
                for index in range(self._sent, sent):
                    self._sent_ns[index] = now
                self._sent = sent
            except own_errors() as error:
                watch.shared.give_up(error)

    def _working_ns(self, now: int) -> int:
        """Return a clock that runs in steps while no batch is loaded."""
        shared = self._watch.shared
        return now - shared.loading_ns - shared.run.away_ns

    def get_begins(self, iterator: Any) -> None:
        """Note that the loop takes the next arrival, and waits for it if there is none."""
        self._get_empty = _is_empty(iterator._data_queue)
        self._get_began = _clock()

    def get_ended(self, iterator: Any, result: Any) -> None:
        """Note that the loop got it."""
        now = _clock()
        watch = self._watch
        if not watch.shared.on:
            return
        if self._asked_ns == self._began:
            self._asked_ns = now  # tasks are sent for batches that have arrived
        index, data = result
        if type(index) is not int:
            return  # a worker's answer that it continues with the next pass
        waited = self._get_empty
        if waited:
            self._blocked_ns = max(0, self._blocked_ns) + now - self._get_began
        task = iterator._task_info.get(index)
        if task is None:
            return  # a remainder of an aborted pass
        worker = task[0]
        sent_ns = self._sent_ns.pop(index, None)
        done = self._done.get(worker)
        self._done[worker] = (now, waited)
        if done is None or not waited or not watch.shared.run.counting or _is_message(data):
            return
        if sent_ns is not None and sent_ns >= done[0]:
            watch.loaded(worker, now - sent_ns)
        elif done[1]:
            watch.loaded(worker, now - done[0])

    def shutdown_begins(self, iterator: Any) -> None:
        """Note that the loader is about to end its workers."""
        self._shutdown_began = 0
        if not iterator._shutdown:
            if self._watch.shared.run.counting:
                self.count_dead(iterator)
                self._ending = [w for w in iterator._workers if w.exitcode is None]
            self._shutdown_began = _clock()

    def shutdown_ended(self) -> None:
        watch = self._watch
        if self._shutdown_began and watch.shared.run.counting:
            _add(watch.shutdowns, _clock() - self._shutdown_began)
            with dropped():
                # The loop may see a worker's closed pipe before the worker has an exit status.  The
                # loader itself ends workers by SIGTERM.
                killed = [w for w in self._ending if (w.exitcode or 0) < 0]
                watch.died += sum(1 for w in killed if w.exitcode != -signal.SIGTERM)
            with dropped():
                watch.shared.profiles.merge_many()
        self._shutdown_began, self._ending = 0, []

    def count_dead(self, iterator: Any) -> None:
        """Count the workers that have died, unless they were ended deliberately."""
        with dropped():
            if not iterator._shutdown:
                self._watch.died += sum(1 for w in iterator._workers if w.exitcode not in (None, 0))


def watched(iterator: Any) -> Pass | None:
    """Return the pass that watches ``iterator``; None: it is not watched."""
    found = _own(iterator).get(_MARK)
    return found if isinstance(found, Pass) else None


# ---- replacing methods of the iterator ----


def _before_get(args: Args, kwargs: Kwargs) -> None:
    pass_ = watched(args[0])
    if pass_ is not None:
        _or_give_up(pass_, pass_.get_begins, args[0])


def _after_get(args: Args, kwargs: Kwargs, result: Any) -> None:
    pass_ = watched(args[0])
    if pass_ is not None and result is not FAILED:
        _or_give_up(pass_, pass_.get_ended, args[0], result)


def _or_give_up(pass_: Pass, action: Callable[..., None], *args: Any) -> None:
    shared = pass_._watch.shared
    if shared.on:
        try:
            action(*args)
        except own_errors() as error:
            shared.give_up(error)


# ---- reading the iterator ----


def _batches_ready(iterator: Any) -> int:
    """Return the number of batches that have arrived, in or out of order, or wait to be taken."""
    arrived = len(iterator._task_info) - iterator._tasks_outstanding
    try:
        waiting = iterator._data_queue.qsize()
    except NotImplementedError:  # macOS
        waiting = 0 if _is_empty(iterator._data_queue) else 1
    return max(0, int(arrived + waiting))


def _is_empty(queue: Any) -> bool:
    """Return whether the loop would wait for the next arrival."""
    reader = getattr(queue, "_reader", None)
    if reader is None:  # the queue of the thread that pins memory
        return bool(queue.empty())
    if not hasattr(select, "poll"):
        return bool(queue.empty())
    # Ten times cheaper than the queue's own check.
    poll = select.poll()
    poll.register(reader.fileno(), select.POLLIN)
    return not poll.poll(0)


def _own(thing: Any) -> dict[str, Any]:
    """Return attributes in an object's own dictionary; runs no code of its class."""
    try:
        own = object.__getattribute__(thing, "__dict__")
    except own_errors():  # it has slots, or is not a plain object
        return {}
    return own if type(own) is dict else {}


def _is_message(data: Any) -> bool:
    """Return whether a worker sent something else than a batch: an error, or its end."""
    return type(data).__name__ in ("_IterableDatasetStopIteration", "ExceptionWrapper")


def _add(pair: list[int], ns: int) -> None:
    pair[0] += 1
    pair[1] += ns


def _cpus() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()
