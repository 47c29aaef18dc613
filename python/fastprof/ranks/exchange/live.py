"""The thread in which a rank publishes its times, and rank 0 reports late ranks.

The training thread only starts it and ends it.  A failure here ends the thread, is
reported once, and does not reach the training.
"""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING

from fastprof.clock import acquired, time
from fastprof.guards import own_errors
from fastprof.names import readable
from fastprof.ranks.exchange import pace
from fastprof.ranks.exchange.channel import SWITCH, Channel, Ended
from fastprof.ranks.exchange.ending import Ending
from fastprof.ranks.exchange.find import DIRECTORY, STORE, find_channel, job_mark, may_find_channel
from fastprof.ranks.exchange.talk import Talk
from fastprof.session.part import Part

if TYPE_CHECKING:
    from fastprof.capture.options import Recorder
    from fastprof.ranks.live.now import JobNow
    from fastprof.session.environment.rank import Identity
    from fastprof.session.faults import Faults

#: Number of steps after which to ask torch.distributed for the rank again.
_ASK_RANK = 10


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
        self._ending = Ending()
        #: Set when the last window was made: the thread no longer needs the recorder.
        self._taken = Ending()
        self._running = Lock()
        self._job: JobNow | None = None
        #: Whether rank 0 may wait for the others at the end; None: it does not ask them.
        self._may_wait: Callable[[], bool] | None = None
        self._last_s = pace.LAST_S
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
            self._last_s = pace.LAST_S if at_most_s is None else at_most_s

    def end(self, count: int = 0) -> None:
        """End the thread, or leave it alone while it waits for another process."""
        waits = self._may_wait is not None and self._may_wait()
        self._hears_until = time.monotonic() + (self._last_s if waits else 0.0)
        self._ends_at = self._hears_until + pace.PATIENCE_S
        self._ending.set()
        if self._started and self._may_wait is not None:
            acquired(self._taken.gate, pace.PATIENCE_S)
        elif self._started:
            if acquired(self._running, pace.PATIENCE_S):
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
        for _ in range(round((pace.LAST_S + pace.PATIENCE_S) / pace.SLICE_S)):
            if acquired(self._running, pace.SLICE_S):
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
        pause = pace.LOOK_S + self._apart_s()
        since: float | None = None  # it has been failing
        not_yet = _TOO_SHORT
        while not self._ending.wait(pause):
            try:
                channel = find_channel(job, world)
            except OSError as error:
                self._why_not = _no_channel(error)
                since = since or time.monotonic()
                if time.monotonic() - since > pace.FIND_S:
                    raise
                pause = min(2 * pause, pace.RETRY_S) + self._apart_s()
                continue
            if channel is not None:
                self._why_not = ""
                return channel
            pause = pace.LOOK_S + self._apart_s()
            not_yet = _NOT_USED
        if self._mode is True and not self._why_not:
            self._why_not = not_yet
        return None

    def _apart_s(self) -> float:
        return min(pace.APART_S * self._identity.rank, pace.MOST_APART_S)

    def _talk(self, channel: Channel) -> None:
        talk = Talk(channel, self._mark, self._recorder, self._identity, self._say)
        pause, heard = talk.pause(), time.monotonic()
        lost = False
        try:
            while talk.owns and not self._ending.wait(pause):
                try:
                    if lost:
                        talk.listen_anew()
                    talk.go_on()
                except (ConnectionError, TimeoutError):
                    if time.monotonic() - heard > pace.LOST_S:
                        raise
                    pause = pace.RETRY_S * (1 + lost) + self._apart_s()
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


_TOO_SHORT = "Ranks were not compared while the job ran: it ended before they met."
_NOT_USED = (
    "Ranks were not compared while the job ran: neither torch.distributed nor jax.distributed was "
    "initialised."
)


def _is_first(identity: Identity) -> bool:
    return identity.world_size > 1 and identity.rank == 0


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
