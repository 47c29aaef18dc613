"""A rank's exchange of values with the others, over time."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fastprof.clock import time
from fastprof.guards import dropped, own_errors
from fastprof.names import readable
from fastprof.ranks.exchange import pace
from fastprof.ranks.exchange.channel import (
    DIRECT,
    REQUEST,
    VERDICTS,
    Channel,
    Ended,
    detail_key,
    window_key,
)

if TYPE_CHECKING:
    from fastprof.capture.options import Recorder
    from fastprof.ranks.exchange.groups import Groups
    from fastprof.ranks.groups.late import GroupJudge
    from fastprof.ranks.live.judge import Judge
    from fastprof.ranks.live.now import JobNow
    from fastprof.ranks.live.window import RankWindow
    from fastprof.session.environment.rank import Identity

#: Rank 0 judges for at most 1/200 of the time.
_PART = 200.0

#: In jobs of at most this many ranks, each checks at its end whether it is the last one.
_FEW = 64

#: Number of windows read at a time.
_AT_ONCE = 1024


class Talk:
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
            return pace.LOOK_S
        now = time.monotonic()
        next_at = min(self._publish_at, self._judge_at, self._lead_at)
        return max(0.05, min(pace.LOOK_S, next_at - now))

    def go_on(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if now >= self._publish_at:
            if not self._is_ours(now):
                return
            self._publish(self._recording.window())
            self._publish_at = now + pace.PUBLISH_S
            self._judge_at = self._judge_at or now + pace.LOOK_S
        self._answer()
        if self._groups is not None and now >= self._lead_at:
            began = time.thread_time()
            self._groups.publish(now)
            self._lead_at = now + max(pace.PUBLISH_S, (time.thread_time() - began) * _PART)
        if self._judge is None:
            return
        if now >= self._judge_at or self._judge.request() is not None:
            began = time.thread_time()
            self._listen(self._judge, now)
            took = time.thread_time() - began
            if now >= self._judge_at:
                self._judge_at = now + max(pace.PUBLISH_S, took * _PART)

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
            if len(ended) >= world - 1 or began + took >= until or paused >= pace.LAST_S:
                break
            pause = min(max(pace.SLICE_S, 4 * took), max(0.0, until - began))
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
            return self.owns and now - before[2] > 2 * pace.PUBLISH_S
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
