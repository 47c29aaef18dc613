"""The thread in which a rank publishes its times, and rank 0 reports late ranks.

The training thread only starts it and ends it.  A failure here ends the thread, is
reported once, and does not reach the training.
"""

from __future__ import annotations

import _thread
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from fastprof.clock import acquired, time
from fastprof.guards import dropped, own_errors
from fastprof.names import readable
from fastprof.ranks.exchange.channel import (
    DIRECT,
    REQUEST,
    SWITCH,
    VERDICTS,
    Channel,
    Ended,
    detail_key,
    window_key,
)
from fastprof.ranks.exchange.find import DIRECTORY, STORE, find_channel, job_mark, may_find_channel
from fastprof.session.part import Part

if TYPE_CHECKING:
    from fastprof.capture.options import Recorder
    from fastprof.ranks.exchange.groups import Groups
    from fastprof.ranks.groups.late import GroupJudge
    from fastprof.ranks.live.judge import Judge
    from fastprof.ranks.live.now import JobNow
    from fastprof.ranks.live.window import RankWindow
    from fastprof.session.environment.rank import Identity
    from fastprof.session.faults import Faults

#: Seconds between windows published and judged, and between looks for a request.
_PUBLISH_S = 5.0
_LOOK_S = 1.0
#: Rank 0 judges for at most 1/200 of the time.
_PART = 200.0
#: The end of a run waits this long for the thread, then leaves it alone.
_PATIENCE_S = 1.0
_SLICE_S = 0.05
#: The end of a run that prints a report waits this long for the last windows of other ranks.
LAST_S = 5.0
#: The same where nobody knows with which status the program ends: one that fails ends the others.
UNKNOWN_END_S = 1.0
#: In jobs of at most this many ranks, each checks at its end whether it is the last one.
_FEW = 64
#: Number of windows read at a time.
_AT_ONCE = 1024
#: Seconds after which a missing store counts as absent; looks for it become less frequent.
_FIND_S = 600.0
_RETRY_S = 5.0
#: How long to retry a store that no longer answers.
_LOST_S = 60.0
#: Number of steps after which to ask torch.distributed for the rank again.
_ASK_RANK = 10
#: Time between the connections of ranks.
_APART_S = 0.02
_MOST_APART_S = 20.0


class _Ending:
    """A flag to wait for, which a forked child and a signal handler may set, too.

    ``threading.Event`` has a lock; a thread that does not exist in the child may hold it.
    """

    def __init__(self) -> None:
        self._is_set = False
        #: Open when the flag is set.
        self.gate = _thread.allocate_lock()
        self.gate.acquire()

    def set(self) -> None:
        """Set the flag and end the waiting."""
        self._is_set = True
        with suppress(RuntimeError):  # it is open
            self.gate.release()

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is set, at most ``seconds``; return whether it is set."""
        if not self._is_set and self.gate.acquire(timeout=max(0.0, seconds)):
            with suppress(RuntimeError):
                self.gate.release()
        return self._is_set


class LiveRanks(Part):
    """A rank among the others of its job."""

    kind = "ranks"
    in_loop = True

    def __init__(
        self, recorder: Recorder, identity: Identity, mode: bool | str, faults: Faults
    ) -> None:
        self._recorder = recorder
        self._identity = identity
        self._mode = mode if os.environ.get(SWITCH) != "0" else False
        self._faults = faults
        self._ending = _Ending()
        #: Set when the last window was made: the thread no longer needs the recorder.
        self._taken = _Ending()
        self._running = Lock()
        self._job: JobNow | None = None
        #: Whether rank 0 may wait for the others at the end; None: it does not ask them.
        self._may_wait: Callable[[], bool] | None = None
        self._last_s = LAST_S
        #: When the end of the run stops waiting for the other ranks, and for the thread.
        self._hears_until = self._ends_at = 0.0
        #: False: another process has this rank.
        self.owns = True
        self._started = False
        self._why_not = ""
        self._mark = ""
        self._metrics: Mapping[str, float] = {}
        self._say: Callable[[str], None] = faults.log

    def next_step(self, count: int) -> int:
        # Only an initialised torch.distributed knows some ranks: ask for them early.
        return 1 if count < 1 else _ASK_RANK if count < _ASK_RANK else sys.maxsize

    def at_step(self, count: int) -> None:
        if count <= _ASK_RANK:
            self._identity.ask()
            self.begin()

    def begin(self) -> None:
        """Start if the job has several ranks; called again when more is known."""
        if self._started or self._mode is False or self._ending.is_set():
            return
        if self._identity.world_size < 2 or not may_find_channel():
            return
        self._started = True
        # Once: programs set variables such as MASTER_PORT later.
        self._mark = job_mark(self._identity.world_size)
        self._running.acquire()
        # Not threading.Thread: settings of the program for all its threads must not apply here.
        try:
            _thread.start_new_thread(self._recorder.run_unrecorded, (self._run,))
        except BaseException:
            self._started = False
            self._running.release()
            raise

    def ask(self, wait: Callable[[], bool], at_most_s: float | None = None) -> None:
        """Let rank 0 collect the last windows of the others for :meth:`job` when it ends.

        Args:
            wait: whether rank 0 may wait for their last windows; called repeatedly.
            at_most_s: how long it may wait, in s; None: as long as usual.
        """
        if self._identity.rank == 0:
            self._may_wait = wait
            self._last_s = LAST_S if at_most_s is None else at_most_s

    def end(self, count: int = 0) -> None:
        """End the thread, or leave it alone while it waits for another process."""
        waits = self._may_wait is not None and self._may_wait()
        self._hears_until = time.monotonic() + (self._last_s if waits else 0.0)
        self._ends_at = self._hears_until + _PATIENCE_S
        self._ending.set()
        if self._started and self._may_wait is not None:
            acquired(self._taken.gate, _PATIENCE_S)
        elif self._started:
            if acquired(self._running, _PATIENCE_S):
                self._running.release()
        elif self._mode is True or (self._mode and _is_first(self._identity)):
            self._why_not = _why_not(self._identity)
        if self._why_not:
            self._faults.notes.append(self._why_not)
            self._why_not = ""

    def job(self) -> JobNow | None:
        """Return the state of all ranks at their end, after :meth:`end`; None: not known.

        Waits for other ranks until a few seconds after :meth:`end` was called.
        """
        if not self._started or self._may_wait is None:
            return None
        waited = self._may_wait()
        for _ in range(round((LAST_S + _PATIENCE_S) / _SLICE_S)):
            if acquired(self._running, _SLICE_S):
                self._running.release()
                break
            # If the thread may no longer wait, it has read all windows that it could.
            if time.monotonic() >= self._ends_at or waited != self._may_wait():
                break
        return self._job

    def forget(self) -> None:
        """Do nothing any more: a forked child does not have the thread."""
        self._ending.set()
        self._started = False
        self._mode = False

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics of the ranks on rank 0; empty on others."""
        return self._metrics

    # -- in the thread ---------------------------------------------------------

    def _run(self) -> None:
        channel = None
        try:
            channel = self._find()
            if channel is not None:
                self._talk(channel)
        except Ended:
            self._metrics = {}
        except own_errors() as error:  # nothing may reach the training code
            self._metrics = {}
            if channel is None and self._mode is not True and not os.environ.get(DIRECTORY):
                self._why_not = _no_channel(error)
            elif not self._ending.is_set():
                more = "" if channel is None else " any more"
                self._faults.add("ranks_errors", f"Ranks are not compared{more}", error)
        finally:
            self._taken.set()
            self._running.release()

    def _find(self) -> Channel | None:
        """Wait for the channel, which a program may create late."""
        world, job = self._identity.world_size, self._mark
        pause = _LOOK_S + self._apart_s()
        since: float | None = None  # it has been failing
        not_yet = _TOO_SHORT
        while not self._ending.wait(pause):
            try:
                channel = find_channel(job, world)
            except OSError as error:
                self._why_not = _no_channel(error)
                since = since or time.monotonic()
                if time.monotonic() - since > _FIND_S:
                    raise
                pause = min(2 * pause, _RETRY_S) + self._apart_s()
                continue
            if channel is not None:
                self._why_not = ""
                return channel
            pause = _LOOK_S + self._apart_s()
            not_yet = _NOT_USED
        if self._mode is True and not self._why_not:
            self._why_not = not_yet
        return None

    def _apart_s(self) -> float:
        return min(_APART_S * self._identity.rank, _MOST_APART_S)

    def _talk(self, channel: Channel) -> None:
        talk = _Talk(channel, self._mark, self._recorder, self._identity, self._say)
        pause, heard = talk.pause(), time.monotonic()
        lost = False
        try:
            while talk.owns and not self._ending.wait(pause):
                try:
                    if lost:
                        talk.listen_anew()
                    talk.go_on()
                except (ConnectionError, TimeoutError):
                    if time.monotonic() - heard > _LOST_S:
                        raise
                    pause = _RETRY_S * (1 + lost) + self._apart_s()
                    lost = True
                    continue
                pause, heard, lost = talk.pause(), time.monotonic(), False
                self._metrics = talk.metrics
        finally:
            self.owns = talk.owns
            # A rank whose thread fails continues to train: it has not ended.
            last = talk.last() if self._ending.is_set() and not lost else None
            self._taken.set()
            if last is None:
                channel.close(last=False)
            else:
                until = None if self._may_wait is None else self._hears_until
                talk.end(last, until, self._take_job)

    def _take_job(self, job: JobNow) -> None:
        self._job = job


class _Talk:
    """Exchanges values with a channel over time."""

    def __init__(
        self,
        channel: Channel,
        job: str,
        recorder: Recorder,
        identity: Identity,
        say: Callable[[str], None],
    ) -> None:
        from fastprof.ranks.exchange.recording import Recording

        self._channel = channel
        self._rank, self._world = identity.rank, identity.world_size
        self._recording = Recording(recorder, job, self._rank, self._world, os.uname().nodename)
        self._job = job
        self._say = say
        self._judge: Judge | None = None
        #: Rank 0 does not read each of many ranks itself.
        self._groups: Groups | None = None
        if self._world > DIRECT:
            from fastprof.ranks.exchange.groups import Groups

            self._groups = Groups(channel, job, self._rank, self._world)
        if self._rank == 0:
            self._judge = _judge(job, self._world)
        self._publish_at = 0.0
        self._judge_at = math.inf if self._judge is None else 0.0
        leads = self._groups is not None and self._groups.leads
        self._lead_at = 0.0 if leads else math.inf
        self._asked = self._answered = 0
        self._said_ignored = False
        self.metrics: Mapping[str, float] = {}
        #: Process and beat of another process that published as this rank, and when first seen.
        self._other: tuple[int, int, float] | None = None
        #: False: another process has this rank.
        self.owns = True

    def pause(self) -> float:
        """Return the seconds until something is due."""
        if self._other is not None:
            return _LOOK_S
        now = time.monotonic()
        next_at = min(self._publish_at, self._judge_at, self._lead_at)
        return max(0.05, min(_LOOK_S, next_at - now))

    def go_on(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if now >= self._publish_at:
            if not self._is_ours(now):
                return
            self._publish(self._recording.window())
            self._publish_at = now + _PUBLISH_S
            self._judge_at = self._judge_at or now + _LOOK_S
        self._answer()
        if self._groups is not None and now >= self._lead_at:
            began = time.thread_time()
            self._groups.publish(now)
            self._lead_at = now + max(_PUBLISH_S, (time.thread_time() - began) * _PART)
        if self._judge is None:
            return
        if now >= self._judge_at or self._judge.request() is not None:
            began = time.thread_time()
            self._listen(self._judge, now)
            took = time.thread_time() - began
            if now >= self._judge_at:
                self._judge_at = now + max(_PUBLISH_S, took * _PART)

    def listen_anew(self) -> None:
        """Forget a time in which no heartbeat could arrive: it counts for no rank."""
        now = time.monotonic()
        if self._groups is not None:
            self._groups.listen_anew(now)
        if self._judge is not None:
            self._judge.listen_anew(now)

    def last(self) -> RankWindow | None:
        """Return the last window of a rank that ends; None: it has none to publish."""
        try:
            return self._recording.window(ended=True) if self._publish_at and self.owns else None
        except own_errors():  # the recorder is already gone
            return None

    def end(self, last: RankWindow, until: float | None, tell: Callable[[JobNow], None]) -> None:
        """Publish that this rank has ended; rank 0 first reads the last windows of the others.

        Args:
            until: when rank 0 stops waiting for the others; None: it does not ask them.
        """
        is_last = False
        with dropped():  # the store is already gone
            if self._judge is not None and until is not None:
                self._ask_all(self._judge, last, until, tell)
            self._publish(last)
            # The last rank clears the channel; in large jobs only rank 0 reads all values.
            asks = self._judge is not None or self._world <= _FEW
            is_last = asks and self._all_ended()
        with dropped():
            self._channel.close(last=is_last)

    def _ask_all(
        self, judge: Judge, last: RankWindow, until: float, tell: Callable[[JobNow], None]
    ) -> None:
        try:
            # A rank that sees that all have ended clears the channel: rank 0 must read it first.
            self._publish(replace(last, ended=False))
            tell(self._hear_out(judge, last, until))
        except (OSError, Ended):  # the store is already gone
            pass
        except own_errors() as error:  # this rank must still publish its end
            self._say(f"Ranks could not be compared at the end: {readable(str(error), 300)}.")

    def _hear_out(self, judge: Judge, last: RankWindow, until: float) -> JobNow:
        from fastprof.ranks.live.window import encode
        from fastprof.ranks.row import MAX_RANKS

        if self._groups is not None:  # in large jobs, wait for no rank
            began = time.monotonic()
            self._hear(judge, began)
            return judge.job_now(began)
        world = min(self._world, MAX_RANKS)
        paused = 0.0
        while True:
            began = time.monotonic()
            for rank, value in self._windows(until):
                if rank and value is not None:
                    judge.hear(rank, value, began)
            took = time.monotonic() - began
            ended = [rank for rank, window in judge.windows.items() if rank and window.ended]
            if len(ended) >= world - 1 or began + took >= until or paused >= LAST_S:
                break
            pause = min(max(_SLICE_S, 4 * took), max(0.0, until - began))
            time.sleep(pause)
            paused += pause
        judge.hear(self._rank, encode(last), began)
        return judge.job_now(began)

    def _is_ours(self, now: float) -> bool:
        """Return whether no other process has this rank, such as the parent of this process.

        A process that a rank starts inherits its number.  Of two processes, the later one
        gives way to the earlier one if that one continues.  If both have written, as after the
        earlier one was stopped for a while, a child gives way to its parent; otherwise the
        process with the larger process number gives way.
        """
        from fastprof.ranks.live.window import decode

        key = window_key(self._rank)
        value = self._channel.get([key]).get(key)
        try:
            there = None if value is None else decode(value)
        except ValueError:
            there = None
        if (
            there is None
            or (there.job, there.rank) != (self._job, self._rank)
            or there.ended
            or os.getpid() in (there.process, there.parent)
            or not _runs_here(there)
        ):
            self._other = None
            return True
        if self._publish_at:
            # It has written since this one did, so it continues.  Both decide so: one is left.
            self._other = None
            self.owns = os.getpid() < there.process != os.getppid()
            return self.owns
        before, self._other = self._other, (there.process, there.beat, now)
        if before is not None and before[0] == there.process:
            self.owns = before[1] == there.beat  # else it continues
            self._other = before
            # It does not continue: it hangs, or it is dead and another process has its number.
            return self.owns and now - before[2] > 2 * _PUBLISH_S
        return False

    def _all_ended(self) -> bool:
        from fastprof.ranks.live.window import decode

        return all(value is not None and decode(value).ended for _, value in self._windows())

    def _windows(self, until: float = math.inf) -> Iterator[tuple[int, bytes | None]]:
        """Yield each rank and its window (None: it is missing); stop at ``until``.

        The number of ranks comes from the environment: a list of all may not fit into memory.
        """
        from fastprof.ranks.row import MAX_RANKS

        world = min(self._world, MAX_RANKS)
        for first in range(0, world, _AT_ONCE):
            if first and time.monotonic() >= until:
                return
            keys = {window_key(rank): rank for rank in range(first, min(first + _AT_ONCE, world))}
            found = self._channel.get(list(keys))
            yield from ((rank, found.get(key)) for key, rank in keys.items())

    def _publish(self, window: RankWindow) -> None:
        from fastprof.ranks.live.window import encode

        self._channel.put(window_key(self._rank), encode(window))

    def _answer(self) -> None:
        from fastprof.ranks.live.window import decode_request, encode_detail

        value = self._channel.get([REQUEST]).get(REQUEST)
        if value is None:
            return
        try:
            request = decode_request(value)
        except ValueError:
            return
        if request.job != self._job or request.number == self._answered:
            return
        self._answered = request.number
        if self._rank in request.ranks:
            detail = self._recording.detail(request)
            self._channel.put(detail_key(self._rank), encode_detail(detail))

    def _hear(self, judge: Judge, now: float) -> None:
        if self._groups is not None and isinstance(judge, _group_judge()):
            self._groups.tell(judge, now)
            return
        for rank, value in self._windows():
            if value is not None:
                judge.hear(rank, value, now)

    def _listen(self, judge: Judge, now: float) -> None:
        from fastprof.ranks.live.window import encode_request

        if now >= self._judge_at:
            self._hear(judge, now)
        request = judge.request()
        if request is not None and request.number == self._asked:
            keys = {detail_key(rank): rank for rank in request.ranks}
            for key, value in self._channel.get(list(keys)).items():
                judge.tell(keys[key], value)
        said = judge.look(now)
        for line in said:
            self._say(line)
        self.metrics = judge.metrics
        request = judge.request()
        if request is not None and request.number != self._asked:
            self._asked = request.number
            self._channel.put(REQUEST, encode_request(request))
        if said:
            self._channel.put(VERDICTS, "\n".join(judge.lines).encode("utf-8", "replace")[-4000:])
        if judge.ignored and not self._said_ignored:
            self._said_ignored = True
            why = ", ".join(sorted(judge.ignored))
            self._say(f"Values that other ranks published were ignored: {why}.")


def _group_judge() -> type[GroupJudge]:
    from fastprof.ranks.groups.late import GroupJudge

    return GroupJudge


def _judge(job: str, world_size: int) -> Judge:
    from fastprof.ranks.live.judge import Judge

    return (_group_judge() if world_size > DIRECT else Judge)(job, world_size)


_TOO_SHORT = "Ranks were not compared while the job ran: it ended before they met."
_NOT_USED = (
    "Ranks were not compared while the job ran: neither torch.distributed nor jax.distributed was "
    "initialised."
)


def _is_first(identity: Identity) -> bool:
    return identity.world_size > 1 and identity.rank == 0


def _runs_here(window: RankWindow) -> bool:
    """Return whether the process that published ``window`` runs on this machine."""
    if window.host != os.uname().nodename or not window.process:
        return False
    try:
        os.kill(window.process, 0)
    except PermissionError:  # of another user
        return True
    except (OSError, OverflowError):
        return False
    return True


def _why_not(identity: Identity) -> str:
    if identity.world_size < 2:
        return "Ranks were not compared while the job ran: this process is the only rank."
    return (
        "Ranks were not compared while the job ran: set FASTPROF_RANKS_DIR to a directory that "
        "all ranks can write to, or MASTER_ADDR and MASTER_PORT to the store at which they meet."
    )


def _no_channel(error: Exception) -> str:
    if os.environ.get(DIRECTORY):
        return f"Ranks were not compared while the job ran: {error}."
    address = ":".join(readable(os.environ.get(name, ""), 200) for name in STORE)
    return (
        f"Ranks were not compared while the job ran: the store at {address} (MASTER_ADDR and "
        f"MASTER_PORT) could not be used: {readable(str(error), 300)}. "
        "FASTPROF_RANKS_DIR can name a directory to use instead."
    )
