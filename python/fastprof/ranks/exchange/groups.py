"""In jobs of many ranks, leaders join the windows of ranks, so that rank 0 reads little.

The first of 32 consecutive ranks is their leader: it publishes the group of their windows.
Leaders of 32 such groups do the same, until few enough are left for rank 0.  Launchers number
the ranks of a machine consecutively, so most of a leader's ranks are on its machine or near it.
If a leader sends no heartbeat, the reader of its group makes the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastprof.ranks.exchange.channel import DIRECT, Channel, group_key, window_key
from fastprof.ranks.groups.summary import RankGroup, group_of, merge
from fastprof.ranks.groups.wire import decode_group, encode_group
from fastprof.ranks.live.heard import HeardRanks, patience_s
from fastprof.ranks.live.now import SILENT_S
from fastprof.ranks.row import MAX_RANKS

if TYPE_CHECKING:
    from fastprof.ranks.groups.late import GroupJudge

#: Number of values that a leader reads.
FAN = 32


class Groups:
    """Reads and publishes groups, for a leader and for rank 0.

    Args:
        job, rank, world_size: as in :class:`~fastprof.ranks.live.window.RankWindow`.
    """

    def __init__(self, channel: Channel, job: str, rank: int, world_size: int) -> None:
        self._channel = channel
        self.rank = rank
        self._job, self._size = job, world_size
        self._world = min(world_size, MAX_RANKS)
        #: Number of times that groups are merged before rank 0 reads them.
        self.levels = 0
        while -(-self._world // FAN**self.levels) > DIRECT:
            self.levels += 1
        self._heard: dict[int, HeardRanks] = {}
        #: For each group: its last value, when that was new by this machine's clock, and whether
        #: its leader is alive: a second value came, so the first was not from an earlier start.
        self._read: dict[tuple[int, int], tuple[RankGroup | None, float, bool]] = {}
        self._beat = 0

    @property
    def leads(self) -> bool:
        """Whether this rank publishes a group."""
        return self.levels > 0 and self.rank % FAN == 0

    def publish(self, now: float, *levels: int) -> None:
        """Publish the groups that this rank leads; ``levels``: only these."""
        self._beat += 1
        for level in levels or range(1, self.levels + 1):
            apart = FAN**level
            if self.rank % apart:
                break
            number = self.rank // apart
            group = self._make(level, number, now)
            value = encode_group(merge(group, RankGroup(self._job, self._size, beat=self._beat)))
            self._channel.put(group_key(level, number), value)

    def whole(self, now: float) -> RankGroup:
        """Return the group of all ranks, for rank 0."""
        return self._merged(self.levels, self._numbers(), now)

    def tell(self, judge: GroupJudge, now: float) -> None:
        """Hand the state of all ranks to the judge of rank 0."""
        judge.hear_group(self.whole(now), now)
        keys = {window_key(rank): rank for rank in judge.followed}
        if keys:
            for key, value in self._channel.get(list(keys)).items():
                judge.hear(keys[key], value, now)

    def listen_anew(self, now: float) -> None:
        """Count time without a heartbeat from ``now`` on: until now none could arrive."""
        for heard in self._heard.values():
            heard.listen_anew(now)
        self._read = {key: (group, now, lives) for key, (group, _, lives) in self._read.items()}

    def keys(self) -> list[str]:
        """Return the keys of the groups that rank 0 reads."""
        return [group_key(self.levels, number) for number in self._numbers()]

    def _numbers(self) -> range:
        return range(-(-self._world // FAN**self.levels))

    def _make(self, level: int, number: int, now: float) -> RankGroup:
        first = number * FAN
        if level > 1:
            count = -(-self._world // FAN ** (level - 1))
            return self._merged(level - 1, range(first, min(first + FAN, count)), now)
        heard = self._heard.setdefault(number, HeardRanks(self._job, self._size))
        keys = {window_key(rank): rank for rank in range(first, min(first + FAN, self._world))}
        for key, value in self._channel.get(list(keys)).items():
            heard.hear(keys[key], value, now)
        ranks = heard.ranks
        patience = patience_s(list(ranks.values()))
        return group_of(self._job, self._size, ranks, now, SILENT_S, patience)

    def _merged(self, level: int, numbers: range, now: float) -> RankGroup:
        keys = {group_key(level, number): number for number in numbers}
        values = self._channel.get(list(keys))
        whole = RankGroup(self._job, self._size)
        for key, number in keys.items():
            group, since, lives = self._read.get((level, number), (None, now, False))
            found = self._decoded(values.get(key))
            if found is not None and (group is None or found.beat != group.beat):
                group, since, lives = found, now, group is not None
                if level == 1 and number * FAN != self.rank:
                    self._heard.pop(number, None)  # its leader sends heartbeats again
            self._read[level, number] = group, since, lives
            if lives and level == 1 and now - since >= SILENT_S / 2 and number not in self._heard:
                self._take_over(number, since, now)
            if now - since >= SILENT_S:
                group = self._make(level, number, now)
            if group is not None:
                whole = merge(whole, group)
        return whole

    def _take_over(self, number: int, since: float, now: float) -> None:
        """Read the ranks of a leader that may be gone; all were alive until ``since``."""
        self._make(1, number, now)
        for rank in self._heard[number].ranks.values():
            rank.lives, rank.heard, rank.moved = True, since, since

    def _decoded(self, value: bytes | None) -> RankGroup | None:
        if value is None:
            return None
        try:
            group = decode_group(value)
        except ValueError:
            return None
        return group if (group.job, group.world_size) == (self._job, self._size) else None
