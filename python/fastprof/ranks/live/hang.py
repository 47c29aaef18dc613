"""Finds which ranks hang or send no heartbeat, as far as the last windows of the ranks show it."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastprof.ranks.blocks import HeardRank
from fastprof.ranks.live.text import hang_text, place_of, rank_named, still_text
from fastprof.ranks.model import named
from fastprof.report.figures import plural

#: Number of ranks asked, or named, at a time.
ASKED = 5


@dataclass(frozen=True, slots=True)
class QuietRanks:
    """The ranks that have ended no step for long.

    ``ranks`` train, and ``quiet`` of them are quiet.  Of these, ``waiting`` wait for others, and of
    ``unclear`` ones it is not known whether their GPUs do.  ``stand`` lists those that are not
    known to wait, or some of them; ``wait`` lists the waiting ones, or none.  Others send no
    heartbeat: ``silents`` ranks, and ``silent`` lists them, or some of them.  No rank
    has ended a step since ``moved_at``.
    """

    ranks: int
    quiet: int
    waiting: int
    unclear: int
    stand: Sequence[HeardRank]
    wait: Sequence[HeardRank]
    silents: int
    silent: Sequence[HeardRank]
    moved_at: float

    def hang(self, gpus: bool) -> tuple[tuple[int, ...], str]:
        """Return the ranks to name, and the sentence; none: nothing is known.

        Args:
            gpus: the ranks use GPUs.  A GPU with unfinished work may wait for other ranks, or
                compute for ever: if every GPU has work, no rank is known to be the cause.
        """
        if self.waiting >= max(1, self.ranks // 2) and not self.unclear:
            if self.stand:
                return tuple(sorted(r.window.rank for r in self.stand)), self._standing_text()
            if not gpus:
                return (-1,), self._waiting_text()
        every = [*self.stand, *self.wait]
        if not gpus or (len(every) < self.quiet and (self.stand or self.unclear)):
            return (), ""
        found = tuple(sorted(rank.window.rank for rank in every)) or (-1,)
        return found, self._places_text(every)

    def text(self, now: float) -> tuple[str, bool]:
        """Return which ranks send no heartbeat, are stalled or wait; whether others end steps."""
        moves = self.silents + self.quiet < self.ranks
        stands = self.quiet - self.waiting
        if not self.silents and not stands and (moves or not self.waiting):
            return "", moves
        if not self.silents and not stands and not self.unclear:
            return still_text(now - self.moved_at, self._waiting_text()), moves
        wait = named([r.window.rank for r in self.wait]) if self.wait else ""
        if self.waiting and not wait:
            wait = plural(self.waiting, "rank")
        still_s = 0.0 if moves else now - self.moved_at
        said = hang_text(
            self.silent, self.silents, self.stand, stands, wait, self.waiting, still_s, now
        )
        return said, moves

    def _standing_text(self) -> str:
        where = "; ".join(f"{rank_named(r.window)} {_stands(r)}" for r in self.stand[:ASKED])
        more = self.quiet - self.waiting - min(len(self.stand), ASKED)
        where += f"; {plural(more, 'more rank')} elsewhere" if more > 0 else ""
        others = "the other waits" if self.waiting == 1 else f"{plural(self.waiting, 'other')} wait"
        return f"{where}, and {others}."

    def _waiting_text(self) -> str:
        """Return that all ranks wait, and where: in different collectives they wait for ever."""
        text = "each rank waits for the others"
        places = _by_place(self.wait)
        if len(self.wait) < self.waiting or not places:
            return f"{text}."
        if len(places) == 1:
            return f"{text}, in {places[0][0]}."
        return f"{text}: {_listed(places)} They may have called different collectives."

    def _places_text(self, ranks: Sequence[HeardRank]) -> str:
        """Return where all ranks stand, and what is known of their GPUs."""
        places = _by_place(ranks)
        where = _listed(places) if places else ""
        if self.unclear:
            where += " Only the records of their GPUs would show which of them wait for others."
        elif not self.stand:
            where += (
                " Each rank waits for others, or its GPU has unfinished work, so the cause is not "
                "known."
            )
        return where.strip()


def _by_place(ranks: Sequence[HeardRank]) -> list[tuple[str, list[int]]]:
    """Return the places of ranks and their numbers, the place of the fewest first."""
    by_place: dict[str, list[int]] = {}
    for rank in ranks:
        by_place.setdefault(place_of(rank.window), []).append(rank.window.rank)
    return sorted(by_place.items(), key=lambda item: len(item[1]))


def _listed(places: Sequence[tuple[str, list[int]]]) -> str:
    parts = [
        f"{named(sorted(of))} {'is' if len(of) == 1 else 'are'} in {place}" for place, of in places
    ]
    more = f"; {plural(len(parts) - ASKED, 'more place')}" if len(parts) > ASKED else ""
    return f"{'; '.join(parts[:ASKED])}{more}."


def _stands(rank: HeardRank) -> str:
    idle = " while its GPU has no work" if rank.window.gpu_busy is False else ""
    return f"is in {place_of(rank.window)}{idle}"
