"""Source lines of functions by samples: an estimate, stated with its number of samples."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastprof.snapshot import Key, Snapshot

#: Of fewer samples nothing is reported: with 40, a share of 50 % is one of 35 to 65 %.
LEAST_SAMPLES = 40


@dataclass(frozen=True, slots=True)
class LineShare:
    """A line, and its part (of 1) of the samples of its function."""

    number: int
    share: float


@dataclass(frozen=True, slots=True)
class FunctionLines:
    """The lines of a function, most samples first; ``samples`` of the function in all."""

    samples: int
    lines: tuple[LineShare, ...]


def lines_by_function(snapshot: Snapshot) -> Mapping[Key, FunctionLines]:
    """Return the sampled lines of each function with enough samples."""
    found: dict[Key, FunctionLines] | None = snapshot.known.get("lines")
    if found is None:
        found = snapshot.known["lines"] = dict(_functions(snapshot))
    return found


def _functions(snapshot: Snapshot) -> list[tuple[Key, FunctionLines]]:
    samples: dict[Key, dict[int, int]] = {}
    for row in snapshot.lines or ():
        lines = samples.setdefault(snapshot.keys[row.key], {})
        lines[row.line] = lines.get(row.line, 0) + row.samples
    out = []
    for key, lines in samples.items():
        whole = sum(lines.values())
        if whole >= LEAST_SAMPLES:
            ranked = sorted(lines.items(), key=lambda line: (-line[1], line[0]))
            shares = tuple(LineShare(number, n / whole) for number, n in ranked if n)
            out.append((key, FunctionLines(whole, shares)))
    return sorted(out, key=lambda item: -item[1].samples)
