"""The sentences about ranks while the job runs."""

from collections.abc import Sequence

from fastprof.names import readable
from fastprof.ranks.blocks import HeardRank
from fastprof.ranks.live.amount import Begin
from fastprof.ranks.live.window import RankWindow
from fastprof.ranks.model import FunctionExcess, Straggler, WorkBetweenSteps, named
from fastprof.report.figures import duration, plural, with_percent
from fastprof.report.rows import UNACCOUNTED

#: The beginning of the sentence on ranks that end no step, and the sentence after it.
HANGS, MOVES = "No step has ended for", "Steps end again."
#: A function with this share of the delay, and of the difference in a section, ran in it.
_SAME = 0.6
#: A difference that is longer than the delay by this factor contains waits that the delay does not.
_LONGER = 1.1
#: More ranks without a heartbeat, or stalled ones, than these share one sentence.
NAMED = 3


def rank_named(window: RankWindow) -> str:
    """Return the name of a rank at the start of a sentence: ``Rank 2 (host n5)``."""
    return f"Rank {_with_host(window.rank, window.host)}"


def late_rank(late: Straggler) -> str:
    """Return the name of a late rank at the start of a sentence."""
    return f"Rank {_with_host(late.rank, late.host)}"


def _with_host(rank: int, host: str | None) -> str:
    return f"{rank} (host {readable(host, 60)})" if host else f"{rank}"


def silent_text(new: Sequence[HeardRank], count: int, more: bool, now: float) -> list[str]:
    """Return the sentences on ranks that no longer send heartbeats.

    Args:
        new: those with known details.
        count: the number of all.
        more: others sent none before.
        now: on the clock of their arrival times.
    """
    if count <= NAMED and count == len(new):
        return [
            f"{rank_named(rank.window)} has sent no heartbeat for {_since_heard(rank, now)}: it "
            f"was last seen{_where_seen(rank)}."
            for rank in new
        ]
    text = f"{plural(count, 'more rank' if more else 'rank')} have sent no heartbeat"
    if new:
        shortest = max(new, key=lambda rank: rank.heard)
        text += (
            f" for {_since_heard(shortest, now)} or more, such as {_inside(new[0])}: it was last "
            f"seen{_where_seen(new[0])}"
        )
    return [f"{text}."]


def heard_text(again: Sequence[HeardRank], count: int) -> list[str]:
    """Return the sentences on ``count`` ranks that send heartbeats again; some are known."""
    if count <= NAMED and count == len(again):
        return [f"{rank_named(rank.window)} has a heartbeat again." for rank in again]
    return [f"{plural(count, 'rank')} {'has' if count == 1 else 'have'} a heartbeat again."]


def hang_text(
    silent: Sequence[HeardRank],
    silents: int,
    stand: Sequence[HeardRank],
    stands: int,
    wait: str,
    waits: int,
    still_s: float,
    now: float,
) -> str:
    """Return one sentence on the ranks without a heartbeat, the stalled and the waiting ones.

    Args:
        silent: ranks without a heartbeat, or some of them.
        silents: the number of all.
        stand: stalled ranks, or some of them.
        stands: the number of all.
        wait: names the waiting ranks.
        waits: their number.
        still_s: how long no rank has ended a step; 0: some still do.
        now: on the clock of their arrival times.
    """
    parts = []
    if silents <= NAMED:
        parts += [
            f"{rank_named(rank.window)} has sent no heartbeat for {_since_heard(rank, now)}, last "
            f"seen{_where_seen(rank)}"
            for rank in silent
        ]
    elif silent:
        shortest = max(silent, key=lambda rank: rank.heard)
        parts.append(
            f"{plural(silents, 'rank')} have sent no heartbeat for {_since_heard(shortest, now)} "
            f"or more, such as {_inside(silent[0])}, last seen{_where_seen(silent[0])}"
        )
    if stands <= NAMED:
        parts += [f"{rank_named(rank.window)} is in {place_of(rank.window)}" for rank in stand]
    elif stand:
        parts.append(
            f"{plural(stands, 'rank')} end no step, such as {_inside(stand[0])} in "
            f"{place_of(stand[0].window)}"
        )
    if wait:
        parts.append(f"{wait} {'waits' if waits == 1 else 'wait'}")
    text = "; ".join(parts)
    return still_text(still_s, f"{text}.") if still_s else f"{text[:1].upper()}{text[1:]}."


def still_text(still_s: float, text: str) -> str:
    """Return that no step has ended for ``still_s``, and ``text`` on the ranks."""
    return f"{HANGS} {duration(still_s * 1000)}: {text}"


def _since_heard(rank: HeardRank, now: float) -> str:
    return duration((now - rank.heard) * 1000)


def _inside(rank: HeardRank) -> str:
    """Return the name of a rank within a sentence."""
    return f"r{rank_named(rank.window)[1:]}"


def place_of(window: RankWindow) -> str:
    """Return where a training thread is: the phase of the run between steps, section, function."""
    phase = window.phase if window.phase in ("setup", "validation", "checkpoint") else ""
    place = window.place
    if phase and not place.startswith(phase):
        place = f"{phase}, {place}" if place else phase
    return readable(place, 200) or "no section"


def _where_seen(rank: HeardRank) -> str:
    where = f" in {readable(rank.window.place, 200)}" if rank.window.place else ""
    return f"{where} after step {rank.window.steps}"


def late_text(late: Straggler, begin: Begin, again: bool) -> str:
    """Return who is late, since when, where, at what cost; ``again``: a known delay changed."""
    verb = "is now late" if again else "is late"
    text = f"{late_rank(late)} {verb} by {duration(late.late_ms)} per step{late.left_out}"
    if not again:
        comma = "," if late.left_out else ""
        text += f"{comma} {begin.text}"
    where = _where(late)
    text += f": {where}" if where else ""
    most = "up to" if late.is_most else "about"
    text += f"; this costs the job {most} {with_percent(late.late_share)}{late.uncounted}."
    return f"{text}{_also(late)}"


def may_be_late_text(late: Straggler) -> str:
    """Return who may be late; the test finds as much by chance once in 2,000 times."""
    text = f"{late_rank(late)} may be late by {duration(late.late_ms)} per step{late.during}"
    return f"{text}{late.left_out}; it is not certain yet."


def _where(late: Straggler) -> str:
    """Return the section and the function with most of the delay, then waits for a CPU."""
    section = ""
    in_section = 0.0
    if late.signal == "cpu":
        section = "torch computes longer in backward"
    elif late.section is not None:
        section = (
            "code in no section" if late.section == UNACCOUNTED else readable(late.section, 60)
        )
        if late.section_ms is not None and late.section_others_ms is not None:
            in_section = late.section_ms - late.section_others_ms
    where = section + (_more(late, in_section) if in_section else "")
    if late.functions:
        most = late.functions[0]
        more = most.ms - most.others_ms
        # Nothing shows in which section a function ran, unless it has most of the difference.
        if in_section and more < _SAME * max(in_section, late.late_ms):
            where += f", and of all functions most in {_function(late, most, more)}"
        elif in_section:
            where += f", in {most.text}"
        else:
            where += f"{', ' if where else ''}{_function(late, most, more)}"
    if late.cpu_wait is not None:
        here, there = (duration(ms) for ms in late.cpu_wait)
        where += f"{'; ' if where else ''}it waits for a CPU for {here} per step, the others for "
        where += there
    return where


def _function(late: Straggler, of: FunctionExcess, ms: float) -> str:
    more = _more(late, ms)
    return f"{of.subject}{more}" if more else of.text


def _more(late: Straggler, ms: float) -> str:
    """Return a difference, unless waits for a CPU make it longer than a delay without them."""
    return "" if late.without_cpu_wait and ms > _LONGER * late.late_ms else f" +{duration(ms)}"


def _also(late: Straggler) -> str:
    return f" Late as well: {named(late.also)}." if late.also else ""


def stall_text(
    rank: int,
    late_ms: float,
    section: str | None,
    first: int,
    last: int,
    count: int,
    total_ms: float,
) -> str:
    """Return that a rank was late once, by ``late_ms`` in steps ``first`` to ``last``.

    ``count``: it is the rank's stall of this number; ``total_ms`` is the sum of all of them.
    """
    steps = f"step {first}" if first == last else f"steps {first} to {last}"
    where = ""
    if section is not None:
        where = (
            " in code in no section" if section == UNACCOUNTED else f" in {readable(section, 60)}"
        )
    often = "once" if count == 1 else f"for the {ordinal(count)} time"
    whole = "" if count == 1 else f"; {duration(total_ms)} in total so far"
    return f"Rank {rank} was late {often}: by {duration(late_ms)}{where}, in {steps}{whole}."


def between_text(work: WorkBetweenSteps) -> str:
    """Return the sentence on work of a rank between steps for which the others wait."""
    where = "" if work.function is None else f", {work.function.text},"
    return (
        f"The others wait for rank {_with_host(work.rank, work.host)} between steps: "
        f"{work.what}{where} takes it {duration(work.wait_ms)} per step,{work.alike} averaged over "
        f"the last 15 s; this costs the job up to {with_percent(work.share)} of that time."
    )


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ..."""
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"
