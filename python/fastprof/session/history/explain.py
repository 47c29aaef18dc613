"""Says what a change of the step time consists of, in one sentence of measured differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastprof.report.figures import duration, percent
from fastprof.session.history.causes import Compared, causes, signed
from fastprof.session.history.sides import (
    CAUSE,
    REST,
    Side,
    Suspicion,
    end_text,
    functions,
    in_section,
    place_of,
    side_of,
    since_text,
)
from fastprof.snapshot import Key
from fastprof.snapshot.history import Contexts

#: Fewest steps with functions on each side.
FEWEST_FULL = 4
#: Parts of the step are longer by about the same factor if these factors differ by less than this
#: part of the change.  Such a change is named from this size on, or if it is a wait for a CPU.
_ALIKE, _LEAST_ALIKE = 0.5, 0.15


def needs_functions(change: Suspicion) -> bool:
    """Return whether functions since the change were not recorded yet."""
    return side_of(change.since).whole.full.count < FEWEST_FULL


def is_named(change: Suspicion, sections: Sequence[str]) -> bool:
    """Return whether the change is one of the program's, or a large one of the machine."""
    before, since = side_of(change.before), side_of(change.since)
    grown = since.step_ms / before.step_ms - 1
    if not _is_alike(before, since, sections) or abs(grown) >= _LEAST_ALIKE:
        return True
    waits = since.per_step(since.steps.cpu_wait_ns) - before.per_step(before.steps.cpu_wait_ns)
    return waits / (since.step_ms - before.step_ms) >= 0.5


def sentence(
    change: Suspicion,
    sections: Sequence[str],
    contexts: Contexts,
    keys: Sequence[Key],
    began_unix_ms: int,
) -> str:
    """Return the change and what was measured on both sides of it.

    Args:
        change: what was found.
        sections: names of top-level sections by their numbers.
        contexts: those of the segments.
        keys: the keys of contexts.
        began_unix_ms: when the run began.
    """
    before, since = side_of(change.before), side_of(change.since)
    grown = since.step_ms / before.step_ms - 1
    word = "longer" if grown > 0 else "shorter"
    size = f"{percent(abs(grown))} % {word}"
    times = f"{duration(since.step_ms)} instead of {duration(before.step_ms)}"
    when = since_text(change.first, change.at_ns, began_unix_ms)
    if change.drift:
        head = f"{when} steps take ever {word}, {size} {end_text(change.since)} ({times})"
    else:
        head = f"{when} steps take {size} ({times})"
    compared = Compared(before, since, change.since)
    parts = [*_sections_of(before, since, sections, contexts, keys)]
    parts += causes(compared, meanwhile=False)
    said = [", ".join(parts) or "no cause was measured", *causes(compared, meanwhile=True)]
    return f"{head}: {'; '.join(said)}"


def _sections_of(
    before: Side,
    since: Side,
    sections: Sequence[str],
    contexts: Contexts,
    keys: Sequence[Key],
) -> Iterator[str]:
    """Return the words about the sections that differ most."""
    if _is_alike(before, since, sections):
        yield "all parts of a step by the same factor, as on a slower machine"
        return
    whole = since.step_ms - before.step_ms
    differences = _by_section(before, since, sections)
    named = [name for name in differences if abs(differences[name] / whole) >= CAUSE]
    for name in sorted(named, key=lambda name: -abs(differences[name]))[:2]:
        where = function_of(before, since, name, contexts, keys, differences[name])
        yield f"{name} {signed(differences[name])}{where}"


def _by_section(before: Side, since: Side, sections: Sequence[str]) -> dict[str, float]:
    """Return the differences in ms per step."""
    a, b = _sections(before, sections), _sections(since, sections)
    return {name: b.get(name, 0.0) - a.get(name, 0.0) for name in a | b}


def _sections(side: Side, sections: Sequence[str]) -> dict[str, float]:
    found = {sections[i]: side.per_step(ns) for i, _, ns in side.steps.rows}
    found[REST] = side.step_ms - sum(found.values())
    return found


def _is_alike(before: Side, since: Side, sections: Sequence[str]) -> bool:
    """Return whether at least two large parts of the step changed by about the same factor."""
    a, b = _sections(before, sections), _sections(since, sections)
    large = [name for name in a if a[name] >= 0.1 * before.step_ms]
    if len(large) < 2 or sum(a[name] for name in large) < 0.7 * before.step_ms:
        return False
    grown = [b.get(name, 0.0) / a[name] - 1 for name in large]
    whole = since.step_ms / before.step_ms - 1
    return all(abs(one - whole) < _ALIKE / 2 * abs(whole) for one in grown)


def function_of(
    before: Side,
    since: Side,
    section: str,
    contexts: Contexts,
    keys: Sequence[Key],
    wanted_ms: float,
) -> str:
    """Return the function that has most of the difference of a section, or nothing."""
    counts = before.whole.full.count, since.whole.full.count
    if min(counts) < FEWEST_FULL:
        return ""
    meant = in_section(section)
    a = functions(before.whole, contexts, keys, counts[0], meant)
    b = functions(since.whole, contexts, keys, counts[1], meant)
    return place_of(a, b, wanted_ms)
