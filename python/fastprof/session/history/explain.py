"""Says what a change of the step time consists of, in one sentence of measured differences."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

from fastprof.clock import time
from fastprof.ranks.row import program_of
from fastprof.report.figures import duration, percent
from fastprof.report.figures import size as written_size
from fastprof.session.history.watcher import Suspicion
from fastprof.snapshot import Key
from fastprof.snapshot.history import Contexts, Segment, SegmentSteps, joined
from fastprof.snapshot.run_phases import STEPS

#: A part of the difference that makes a cause.
_CAUSE = 0.3
#: Fewest steps with functions on each side.
FEWEST_FULL = 4
#: Parts of the step are longer by about the same factor if these factors differ by less than this
#: part of the change.  Such a change is named from this size on, or if it is a wait for a CPU.
_ALIKE, _LEAST_ALIKE = 0.5, 0.15
_REST = "(in no section)"
#: Memory that grows is named from this rate on, in bytes per step, and this part of it.
_GROWS, _GROWTH = 1024.0, 0.05
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Side:
    """Sums of one side of a change."""

    whole: Segment
    steps: SegmentSteps

    def per_step(self, ns: int) -> float:
        """Return ns over the steps as ms per step."""
        return ns / max(1, self.steps.count) / _NS_PER_MS

    @property
    def step_ms(self) -> float:
        return self.per_step(self.steps.sum_ns)


def side_of(parts: Sequence[Segment]) -> Side:
    """Return the sums of segments; of steps without functions, if these are most."""
    whole = reduce(joined, parts)
    return Side(whole, whole.plain if whole.plain.count >= whole.full.count else whole.full)


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
    when = f"step {_number(change.first + 1)} ({_moment(began_unix_ms, change.at_ns)})"
    if change.drift:
        last = change.since[-1]
        end = _number(last.first + last.steps)
        head = f"since {when} steps take ever {word}, {size} by step {end} ({times})"
    else:
        head = f"since {when} steps take {size} ({times})"
    causes = _causes(before, since, sections, contexts, keys)
    memory = _memory(change.since) if grown > 0 else ""
    return f"{head}: {', '.join(causes) or 'no cause was measured'}{memory}"


def _causes(
    before: Side,
    since: Side,
    sections: Sequence[str],
    contexts: Contexts,
    keys: Sequence[Key],
) -> list[str]:
    whole = since.step_ms - before.step_ms
    found: list[str] = []
    if _is_alike(before, since, sections):
        found.append("all parts of a step by the same factor, as on a slower machine")
    else:
        differences = _by_section(before, since, sections)
        named = [name for name in differences if abs(differences[name] / whole) >= _CAUSE]
        for name in sorted(named, key=lambda name: -abs(differences[name]))[:2]:
            where = _function(before, since, name, contexts, keys, differences[name])
            found.append(f"{name} {_signed(differences[name])}{where}")
    counters = (
        ("garbage collection", before.steps.gc_ns, since.steps.gc_ns),
        ("waiting for a CPU", before.steps.cpu_wait_ns, since.steps.cpu_wait_ns),
    )
    for name, was, now in counters:
        ms = since.per_step(now) - before.per_step(was)
        if ms / whole >= _CAUSE:
            found.append(f"{name} {_signed(ms)} of it")
        elif ms / whole <= -_CAUSE:  # the change is larger without it
            found.append(f"in spite of {name} {_signed(ms)}")
    faults = since.steps.faults / since.steps.count - before.steps.faults / before.steps.count
    if whole > 0 and faults >= 1:
        found.append(f"{faults:.0f} more page faults per step wait for the disk")
    return found


def _by_section(before: Side, since: Side, sections: Sequence[str]) -> dict[str, float]:
    """Return the differences in ms per step."""
    a, b = _sections(before, sections), _sections(since, sections)
    return {name: b.get(name, 0.0) - a.get(name, 0.0) for name in a | b}


def _sections(side: Side, sections: Sequence[str]) -> dict[str, float]:
    found = {sections[i]: side.per_step(ns) for i, _, ns in side.steps.rows}
    found[_REST] = side.step_ms - sum(found.values())
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


def _function(
    before: Side,
    since: Side,
    section: str,
    contexts: Contexts,
    keys: Sequence[Key],
    wanted_ms: float,
) -> str:
    """Return the function that has most of the difference of a section, or nothing."""
    if min(before.whole.full.count, since.whole.full.count) < FEWEST_FULL:
        return ""
    a, b = (_functions(side, section, contexts, keys) for side in (before, since))
    differences = {place: b.get(place, 0.0) - a.get(place, 0.0) for place in a | b}
    if not differences:
        return ""
    place = max(differences, key=lambda place: differences[place] * wanted_ms)
    if differences[place] / wanted_ms < _CAUSE:
        return ""
    name, file, line = place
    return f" in {name} ({os.path.basename(file)}:{line})"


def _functions(
    side: Side, section: str, contexts: Contexts, keys: Sequence[Key]
) -> dict[tuple[str, str, int], float]:
    n = len(contexts)
    ns = [0] * n
    spent = side.whole.spent
    for at, own in zip(spent.context, spent.self_ns, strict=True):
        ns[at] = own
    inside: list[str] = []
    for above, key in zip(contexts.parent, contexts.key, strict=True):
        name = inside[above] if above >= 0 else _REST
        inside.append(keys[key].name if keys[key].kind == "section" and name == _REST else name)
    outside = {
        i + 1
        for i in range(n)
        if contexts.phase[i] != STEPS or inside[i] != section
    }  # fmt: skip
    found = program_of(
        (-1, *(above + 1 for above in contexts.parent)),
        (len(keys), *contexts.key),
        (0, *ns),
        (*keys, Key("root", "", 0, "", "")),
        outside,
        side.whole.full.count,
    )
    return {place: function.ms for place, function in found.items()}


def _memory(since: Sequence[Segment]) -> str:
    """Return how fast memory grows since the change, if it does in most segments."""
    found = ""
    for name, values in (
        ("memory of the process", [one.rss_bytes for one in since]),
        ("GPU memory", [one.gpu_bytes for one in since]),
    ):
        known = [value for value in values if value is not None]
        if len(known) < len(values) or len(known) < 3:
            continue
        steps = since[-1].first + since[-1].steps - since[0].first - since[0].steps
        grown = known[-1] - known[0]
        rising = sum(b > a for a, b in pairwise(known))
        steady = rising >= 0.7 * (len(known) - 1)
        if steady and grown >= max(_GROWS * steps, _GROWTH * known[0]):
            rate = written_size(round(1000 * grown / steps))
            found += f"; {name} grows {rate} per 1000 steps meanwhile"
    return found


def _signed(ms: float) -> str:
    return f"{'+' if ms > 0 else '-'}{duration(abs(ms))}"


def _number(number: int) -> str:
    return f"{number:,}" if number > 9999 else str(number)


def _moment(began_unix_ms: int, ns: int) -> str:
    return time.strftime("%H:%M", time.localtime(began_unix_ms / 1000 + ns / 1e9))
