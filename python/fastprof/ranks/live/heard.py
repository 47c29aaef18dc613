"""Collects the windows of each rank while the job runs; finds lost and stalled ranks."""

from collections import Counter
from collections.abc import Collection, Mapping
from statistics import median

from fastprof.ranks.blocks import HeardRank, add_blocks
from fastprof.ranks.live.hang import QuietRanks
from fastprof.ranks.live.now import SILENT_S
from fastprof.ranks.live.text import MOVES, heard_text, silent_text, still_text
from fastprof.ranks.live.window import RankWindow, decode, is_unclear, is_waiting
from fastprof.ranks.row import MAX_RANKS

_LONG_STEPS = 5.0
#: Missing heartbeats are reported again for this many times as many ranks.
_GROWN = 2


class HeardRanks:
    """Takes the windows of ranks and reports those without a heartbeat and stalled ones.

    Args:
        job: the job; windows of other jobs are ignored.
        world_size: number of ranks.
    """

    def __init__(self, job: str, world_size: int) -> None:
        self._job = job
        self._world = min(world_size, MAX_RANKS)
        self._ranks: dict[int, HeardRank] = {}
        self._stuck: tuple[int, ...] = ()
        self._stuck_at = 0.0
        self._silent_told = 0
        #: Number of ignored values by reason.
        self.ignored: Counter[str] = Counter()

    def hear(self, rank: int, data: bytes, now: float) -> None:
        """Take the value published as ``rank``; ``now``: seconds of any one clock."""
        try:
            window = decode(data)
        except ValueError:
            self.ignored["damaged, or of another version of fastprof"] += 1
            return
        if window.job != self._job or window.rank != rank or rank >= self._world:
            self.ignored["of another job or rank"] += 1
            return
        known = self._ranks.get(rank)
        if known is None:
            known = self._ranks[rank] = HeardRank(window, now, now)
        elif window.beat != known.window.beat:
            before = known.window
            if window.works or (window.steps, window.phase) != (before.steps, before.phase):
                known.moved = now
            if window.steps < known.window.steps or not known.lives:  # it has restarted
                known.blocks.clear()
            known.lives = True
            known.window, known.heard = window, now
        else:
            return
        add_blocks(known, window)

    def listen_anew(self, now: float) -> None:
        """Count time without a heartbeat from ``now`` on: until now none could arrive."""
        for rank in self._ranks.values():
            rank.heard = rank.moved = now
        self._stuck_at = now

    @property
    def windows(self) -> dict[int, RankWindow]:
        return {number: rank.window for number, rank in sorted(self._ranks.items())}

    @property
    def ranks(self) -> Mapping[int, HeardRank]:
        """The state of each rank."""
        return self._ranks

    def _silent(self, now: float) -> list[str]:
        """Return sentences on ranks that send no heartbeat, or send some again."""
        unnamed = self._unnamed()
        silent, new, again = 0, [], []
        for _, rank in sorted(self._ranks.items()):
            is_silent = rank.lives and now - rank.heard >= SILENT_S and not rank.window.ended
            silent += is_silent
            if is_silent and not rank.said:
                new.append(rank)
            elif rank.said and not is_silent:
                if unnamed:  # it may be one of them
                    continue
                again.append(rank)
            rank.said = is_silent
        said, before = [], self._silent_told
        count = silent + unnamed
        heard = 0 if unnamed else before - (silent - len(new))
        if heard > 0:
            said += heard_text(again, heard)
            before -= heard
        if count > before and (new if not unnamed else count >= _GROWN * before):
            said += silent_text(new, count - before, before > 0, now)
            before = count
        self._silent_told = before
        return said

    def _unnamed(self) -> int:
        """Return the number of ranks without a heartbeat about which nothing else is known."""
        return 0

    def _standing(self, now: float) -> list[str]:
        """Return sentences on stalled ranks while others wait for them."""
        of = self._quiet(now)
        gpus = any(rank.window.cuda for rank in self._ranks.values())
        found, text = of.hang(gpus) if of.quiet == of.ranks >= 2 else ((), "")
        if not found:
            moved = bool(self._stuck) and of.moved_at > self._stuck_at
            self._stuck = () if moved else self._stuck
            return [MOVES] if moved else []
        if found == self._stuck:
            return []
        self._stuck, self._stuck_at = found, now
        return [still_text(now - of.moved_at, text)]

    def _quiet(self, now: float, *, once: bool = False) -> QuietRanks:
        """Return the ranks that have ended no step for long.

        ``once``: also those with only one heartbeat, which may be of an earlier start.
        """
        ranks = [
            r
            for _, r in sorted(self._ranks.items())
            if (r.lives or once) and not r.window.ended and r.window.steps
        ]
        patience = patience_s(ranks)
        silent = [r for r in ranks if now - r.heard >= SILENT_S]
        quiet = [r for r in ranks if now - r.moved >= patience and now - r.heard < SILENT_S]
        wait = [r for r in quiet if is_waiting(r.window)]
        return QuietRanks(
            ranks=len(ranks),
            quiet=len(quiet),
            waiting=len(wait),
            unclear=sum(is_unclear(r.window) for r in quiet),
            stand=[r for r in quiet if not is_waiting(r.window)],
            wait=wait,
            silents=len(silent),
            silent=silent,
            moved_at=max((r.moved for r in ranks), default=0.0),
        )


def patience_s(ranks: Collection[HeardRank]) -> float:
    """Return the seconds without a step after which a rank is stalled."""
    rows = [row["wall"] for rank in ranks for row in list(rank.blocks.values())[-2:]]
    return max(SILENT_S, _LONG_STEPS * (median(rows) / 1e6 if rows else 0.0))
