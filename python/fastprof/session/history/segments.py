"""Makes the segments of a run from its recording, without stopping it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from sys import maxsize
from typing import TYPE_CHECKING, Any

from fastprof.capture.convert import key_from
from fastprof.clock import time
from fastprof.session.environment.resident import resident_bytes
from fastprof.session.history.contexts import LEAST, RunContexts
from fastprof.session.history.explain import sentence
from fastprof.session.history.meanwhile import Meanwhile
from fastprof.session.history.passes import Lasting, lasting_sentence
from fastprof.session.history.sides import Suspicion, side_of
from fastprof.session.history.stalls import stalls_sentence
from fastprof.snapshot import Key
from fastprof.snapshot.history import (
    LONG_TIMES,
    MAX_CHANGES,
    SAMPLED,
    Change,
    Contexts,
    History,
    Long,
    Sampled,
    Segment,
    SegmentSteps,
    add,
    bucket,
    frozen,
    longest,
)

if TYPE_CHECKING:
    from fastprof.capture.options import Recorder

_NS_PER_S = 1e9
_MOST_SECTIONS = 64
#: Times of steps that are read for a segment, of each kind: of more, the newest steps.
MOST_TIMES = 1 << 14
_COLUMNS = 8


class Segments:
    """The segments of one run; one thread at a time uses them.

    Args:
        gpu: returns GPU memory in bytes: allocated, reserved; None: unknown.
        meanwhile: what runs next to the steps.
        began_ns: when the run began, by ``time.perf_counter_ns()``.
    """

    def __init__(
        self,
        recorder: Recorder,
        gpu: Callable[[], tuple[int, int] | None],
        meanwhile: Meanwhile,
        began_ns: int,
    ) -> None:
        self._recorder = recorder
        self._gpu = gpu
        self._meanwhile = meanwhile
        meanwhile.since(None)
        self._contexts = RunContexts(recorder)
        #: Names of top-level sections; segments have their numbers.
        self.sections: list[str] = []
        self.segments: list[Segment] = []
        self.changes: list[Change] = []
        self._next = 0  # number of the first step that is in no segment
        self._began_ns = began_ns
        now_ms = time.time_ns() // 10**6
        self._began_unix_ms = max(0, now_ms - (time.perf_counter_ns() - began_ns) // 10**6)
        self._end_ns = 0
        self._phases: Sequence[int] = ()

    def take(self, fewest: int) -> Segment | None:
        """Make the segment since the last one; None: fewer than ``fewest`` steps have ended."""
        now = self._recorder.window(maxsize)
        steps = 0 if now is None else now["steps"]
        if now is None or steps - self._next < fewest:
            if not steps:  # set-up and imports are in no segment
                self._contexts.skip()
                self._meanwhile.since(now)
                self._phases = () if now is None else now["phases_ns"]
                self._end_ns = time.perf_counter_ns() - self._began_ns
            return None
        newest = MOST_TIMES // (_COLUMNS + len(now["sections"]))
        first = max(self._next, steps - newest)
        raw = self._recorder.window(first) or now
        plain = self._recorder.window(first, True) or raw
        if plain["number"] == raw["number"]:  # no step is without functions
            plain = raw
        now_ns = time.perf_counter_ns() - self._began_ns
        walls = sorted(array("q", raw["wall_ns"] + (b"" if plain is raw else plain["wall_ns"])))
        long_ns = LONG_TIMES * walls[len(walls) // 2] if walls else 0.0
        full = self._steps(raw, steps, long_ns)
        spent, idle_ns = self._contexts.spent(int(LEAST * (full.sum_ns or now_ns - self._end_ns)))
        gpu = self._gpu()
        meanwhile = self._meanwhile.since(raw)
        made = Segment(
            first=self._next,
            steps=steps - self._next,
            start_ns=self._end_ns,
            end_ns=now_ns,
            full=full,
            plain=SegmentSteps() if plain is raw else self._steps(plain, steps, long_ns),
            phases_ns=tuple(
                max(0, b - a) for a, b in zip_longest(self._phases, raw["phases_ns"], fillvalue=0)
            ),
            idle_ns=idle_ns,
            spent=spent,
            rss_bytes=resident_bytes(),
            gpu_bytes=None if gpu is None else gpu[0],
            loading=meanwhile.loading,
            gpu_clock=meanwhile.gpu_clock,
            waits_ns=meanwhile.waits_ns,
            passes=meanwhile.passes,
        )
        self._next, self._end_ns, self._phases = steps, now_ns, raw["phases_ns"]
        add(self.segments, made)
        return made

    def _steps(self, raw: Mapping[str, Any], end: int, long_ns: float) -> SegmentSteps:
        numbers = array("q", raw["number"])
        while numbers and numbers[-1] >= end:
            numbers.pop()
        n = len(numbers)
        if not n:
            return SegmentSteps()
        wall = array("q", raw["wall_ns"])[:n]
        times = {name: array("q", raw[f"{name}_ns"])[:n] for name in ("cpu", "gc", "cpu_wait")}
        faults = array("q", raw["faults"])[:n]
        rows, columns = [], []
        sections = {name: array("q", data)[:n] for name, data in raw["sections"]}
        for name in sections:
            if name not in self.sections and len(self.sections) < _MOST_SECTIONS:
                self.sections.append(name)
        at = _sample(numbers)
        for section, name in enumerate(self.sections):
            column = sections.get(name)
            ran = 0 if column is None else n - column.count(0)
            columns.append(tuple(0 if column is None else max(0, column[i]) for i in at))
            if column is not None and ran:
                rows.append((section, ran, max(0, sum(column))))
        counts: dict[int, int] = {}
        for ns in wall:
            number = bucket(ns)
            counts[number] = counts.get(number, 0) + 1
        known = {name: column for name, column in times.items() if min(column) >= 0}
        return SegmentSteps(
            count=n,
            sum_ns=sum(wall),
            sum_sq=sum(ns * ns for ns in wall) / _NS_PER_S**2,
            min_ns=min(wall),
            max_ns=max(wall),
            cpu_ns=sum(known.get("cpu", ())),
            gc_ns=sum(known.get("gc", ())),
            cpu_wait_ns=sum(known.get("cpu_wait", ())),
            faults=max(0, sum(faults)),
            hist=tuple(sorted(counts.items())),
            rows=tuple(rows),
            sampled=Sampled(
                tuple(numbers[i] for i in at),
                tuple(wall[i] for i in at),
                tuple(known["gc"][i] for i in at) if "gc" in known else (),
                tuple(known["cpu_wait"][i] for i in at) if "cpu_wait" in known else (),
                tuple(columns),
            ),
            long=self._long(numbers, wall, sections, known, long_ns),
        )

    def _long(
        self,
        numbers: array[int],
        wall: array[int],
        sections: Mapping[str, array[int]],
        known: Mapping[str, array[int]],
        long_ns: float,
    ) -> Long:
        rows = []
        for i in [i for i, ns in enumerate(wall) if ns > long_ns]:
            spent = [
                (sections[name][i], -section)
                for section, name in enumerate(self.sections)
                if name in sections
            ]
            ns, section = max(spent, default=(0, 1))
            section = -section if ns > 0 else -1
            times = (max(0, known[name][i]) if name in known else 0 for name in ("gc", "cpu_wait"))
            rows.append((numbers[i], wall[i], section, max(0, ns), *times))
        return longest(rows)

    def explained(self, change: Suspicion) -> Change:
        """Return a change with its sentence."""
        keys, contexts = self._described()
        text = sentence(change, self.sections, contexts, keys, self._began_unix_ms)
        before, since = side_of(change.before), side_of(change.since)
        made = Change(
            kind="drift" if change.drift else "shift",
            first=change.first,
            at_ns=change.at_ns,
            before_ns=round(before.step_ms * 1e6),
            after_ns=round(since.step_ms * 1e6),
            text=text,
        )
        return self._kept(made)

    def explained_stalls(self, stalls: Suspicion) -> Change:
        """Return a rise of the time in long steps with its sentence."""
        keys, contexts = self._described()
        text = stalls_sentence(stalls, self.sections, contexts, keys, self._began_unix_ms)
        before, since = (round(1e6 * side_of(s).step_ms) for s in (stalls.before, stalls.since))
        return self._kept(Change("stalls", stalls.first, stalls.at_ns, before, since, text))

    def explained_passes(self, lasting: Lasting) -> Change:
        """Return a change of the time of passes with its sentence."""
        keys, contexts = self._described()
        text = lasting_sentence(lasting, contexts, keys, self._began_unix_ms)
        before, since = round(lasting.before_ns), round(lasting.since_ns)
        return self._kept(Change(lasting.phase, lasting.first, lasting.at_ns, before, since, text))

    def _described(self) -> tuple[list[Key], Contexts]:
        keys = [key_from(description) for description in self._contexts.keys]
        return keys, self._contexts.table(range(len(keys)))

    def _kept(self, made: Change) -> Change:
        self.changes = [*self.changes, made][-MAX_CHANGES:]
        return made

    def history(self, keys: Sequence[Key]) -> tuple[tuple[Key, ...], History | None]:
        """Return the history, and ``keys`` with those that it needs in addition."""
        if not self.segments:
            return tuple(keys), None
        wanted = [Key("section", "", 0, name, name) for name in self.sections]
        described = [key_from(description) for description in self._contexts.keys]
        places = {*wanted, *described}
        known: dict[Key, int] = {}
        for i, key in enumerate(keys):
            if key in places:
                known.setdefault(key, i)
        more = [key for key in dict.fromkeys((*wanted, *described)) if key not in known]
        known |= {key: len(keys) + i for i, key in enumerate(more)}
        return (*keys, *more), History(
            sections=tuple(known[key] for key in wanted),
            began_unix_ms=self._began_unix_ms,
            contexts=self._contexts.table([known[key] for key in described]),
            segments=tuple(frozen(segment) for segment in self.segments),
            changes=tuple(self.changes),
        )


def _sample(numbers: Sequence[int]) -> list[int]:
    """Return the places of some steps: one of each part, at a place that has no period."""
    n = len(numbers)
    if n <= SAMPLED:
        return list(range(n))
    chosen = []
    for i in range(SAMPLED):
        low, high = i * n // SAMPLED, (i + 1) * n // SAMPLED
        drawn = ((numbers[low] + 1) * 2654435761) % 2**32 >> 8
        chosen.append(low + drawn % (high - low))
    return chosen
