"""Planted changes of the step time, in simulated segments: what is found, and how it is named.

    python benchmarks/changes.py [--runs N]

Each kind makes steps 5, 10 or 25 % longer, at once or over ten minutes, in runs whose segments vary
by 0.5 %.  It prints per kind and size how many of the runs have it found (a shift within 60 s), and
named with its section and its function; then the lines of healthy runs.  Nothing is timed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from fastprof.session.history.explain import is_named, sentence
from fastprof.session.history.sides import Suspicion
from fastprof.session.history.watcher import Watcher
from fastprof.snapshot import Key
from fastprof.snapshot.history import Contexts, Segment, SegmentSteps, bucket, spent_of

SECTIONS = ("data", "forward", "backward", "optimizer", "logging")
#: ms of the sections in a step of 40 ms.
USUAL = (6.0, 12.0, 18.0, 3.0, 1.0)
FUNCTIONS = ("fetch", "layer", "loss", "update", "write")
KEYS = (
    *(Key("section", "", 0, name, name) for name in SECTIONS),
    *(Key("python", f"/home/me/{name}.py", 10, name, name) for name in FUNCTIONS),
)
CONTEXTS = Contexts((-1,) * 5 + (0, 1, 2, 3, 4), tuple(range(10)), (0,) * 10)
_SEGMENT_NS = 5 * 10**9
_SETTLED, _SINCE, _LONG = 60, 12, 120


@dataclass(frozen=True)
class Kind:
    """A planted change: the section with it (None: all), and the counters that show it."""

    name: str
    section: int | None
    drift: bool = False
    gc: bool = False
    waits: bool = False
    leaks: bool = False
    says: str = ""


KINDS = (
    Kind("growing list scanned each step", 0, drift=True),
    Kind("cache that fills", 1, drift=True),
    Kind("disk that slows", 0),
    Kind("collector pressure", 1, gc=True, says="garbage collection"),
    Kind("sequence length that grows", 2, drift=True),
    Kind("CPU stolen", None, waits=True, says="waiting for a CPU"),
    Kind("logging that grows with the step", 4, drift=True),
    Kind("worker that dies and is not replaced", 0),
    Kind("leak of host memory", 2, leaks=True, says="memory of the process grows"),
    Kind("another batch size", 1),
)


def segment(i: int, drawn: random.Random, kind: Kind | None, part: float, noise: float) -> Segment:
    """Return segment ``i`` of a run in which ``kind`` takes ``part`` of the usual step more."""
    factor = drawn.gauss(1, noise)
    ms = [usual * factor * drawn.gauss(1, noise) for usual in USUAL]
    gc = waits = 0.0
    if kind is not None:
        more = part * sum(USUAL)
        gc, waits = more * kind.gc, more * kind.waits
        if kind.section is None:
            ms = [one * (1 + part) for one in ms]
        else:
            ms[kind.section] += more
    step_ns = round(sum(ms) * 1e6)
    steps = max(8, _SEGMENT_NS // step_ns)

    def sums(n: int) -> SegmentSteps:
        return SegmentSteps(
            count=n,
            sum_ns=n * step_ns,
            cpu_ns=n * (step_ns - round(waits * 1e6)),
            gc_ns=n * round(gc * 1e6),
            cpu_wait_ns=n * round(waits * 1e6),
            hist=((bucket(step_ns), n),),
            rows=tuple((s, n, n * round(one * 1e6)) for s, one in enumerate(ms)),
        )

    spent = {5 + s: (4, round(4e6 * one)) for s, one in enumerate(ms)}
    return Segment(
        first=i * 1000,
        steps=steps,
        start_ns=i * _SEGMENT_NS,
        end_ns=(i + 1) * _SEGMENT_NS,
        full=sums(4),
        plain=sums(steps - 4),
        spent=spent_of(spent),
        rss_bytes=10**9 + (10**8 * (i - _SETTLED) if kind is not None and kind.leaks else 0),
    )


def changes(
    kind: Kind | None, part: float, drawn: random.Random, segments: int, noise: float = 0.005
) -> list[tuple[int, Suspicion]]:
    """Return the changes that are found in a simulated run, with the segment of each."""
    watcher, found = Watcher(), []
    for i in range(segments):
        grown = 0.0
        if kind is not None and i >= _SETTLED:
            grown = part * (i - _SETTLED) / _LONG if kind.drift else part
        made = segment(i, drawn, kind if grown else None, grown, noise)
        change = watcher.add(made, 0)
        if change is not None and is_named(change, SECTIONS):
            found.append((i, change))
    return found


def text_of(change: Suspicion) -> str:
    return sentence(change, SECTIONS, CONTEXTS, KEYS, 0)


def judged(kind: Kind, part: float, seed: int) -> tuple[bool, bool, bool, bool]:
    """Return whether the change is found, with the right section, function and step."""
    since = _LONG if kind.drift else _SINCE
    found = changes(kind, part, random.Random(seed), _SETTLED + since)
    longer = [(i, one) for i, one in found if i >= _SETTLED]
    if not longer:
        return False, False, False, False
    _, change = longer[0]
    text = text_of(change)
    right = kind.says in text if kind.says else True
    if kind.section is None:
        return True, right, right, abs(change.first // 1000 - _SETTLED) <= 2
    named = f"{SECTIONS[kind.section]} +" in text and right
    place = f"in {FUNCTIONS[kind.section]} ("
    at = kind.drift or abs(change.first // 1000 - _SETTLED) <= 2
    return True, named, place in text, at


def main(argv: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--healthy-hours", type=float, default=17.0)
    options = parser.parse_args(argv)
    write = sys.stdout.write
    write(f"{'kind':38}{'size':>6}{'found':>8}{'section':>9}{'function':>10}{'step':>7}\n")
    for kind in KINDS:
        for part in (0.05, 0.1, 0.25):
            runs = [judged(kind, part, seed) for seed in range(options.runs)]
            shares = [100 * sum(column) / options.runs for column in zip(*runs, strict=True)]
            write(
                f"{kind.name:38}{100 * part:5.0f}%{shares[0]:7.0f}%{shares[1]:8.0f}%"
                f"{shares[2]:9.0f}%{shares[3]:6.0f}%\n"
            )
    lines = 0
    for seed in range(100):
        n = round(options.healthy_hours * 7.2)
        lines += len(changes(None, 0.0, random.Random(1000 + seed), n, noise=0.02))
    write(f"healthy: {lines} lines in 100 runs of {options.healthy_hours * 0.6:.0f} min\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
