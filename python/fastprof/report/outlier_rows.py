"""A slow step's sections and functions, and their usual times."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from fastprof.names import elided, file_name, readable
from fastprof.report.tree import top_sections, upward
from fastprof.snapshot import Key, NodeTable, Snapshot
from fastprof.snapshot.outliers import OutlierRow, OutlierSnapshot, OutlierStep

#: A step slower than this many times the median is an outlier.
SLOW = 1.5

#: Functions listed per outlier.
_FUNCTIONS = 20

#: ... and a function below this share is not listed.
_LISTED = 0.01

#: If a tree's time differs by more from that of the measured steps, it covers other time too.
_STEPS_ONLY = 1.2

#: Outside of all sections.
OUTSIDE = "(unaccounted)"


@dataclass(frozen=True, slots=True)
class OutlierSection:
    """A top-level section in an outlier, or ``(unaccounted)``; ``typical_ms`` is its usual time."""

    name: str
    ms: float
    typical_ms: float
    excess_ms: float


@dataclass(frozen=True, slots=True)
class OutlierFunction:
    """Self time of a function in an outlier, in one top-level section.

    ``kind`` is as in :class:`~fastprof.report.model.FunctionRow`, or ``section`` (its own code) or
    ``root`` (no function was seen).  ``section`` is empty outside of sections; ``caller`` is ``name
    (file:line)`` of the Python function that called a C function.
    """

    qualname: str
    name: str
    file: str
    line: int
    kind: str
    section: str
    caller: str
    ms: float
    typical_ms: float
    excess_ms: float
    calls: int
    typical_calls: float


class Usual:
    """Sums over usual steps, without the outliers among them."""

    def __init__(
        self,
        snapshot: Snapshot,
        kept: OutlierSnapshot,
        slow: Sequence[OutlierStep],
        median_ms: float,
    ) -> None:
        self.tree = snapshot.threads[kept.thread].nodes
        keys = snapshot.keys
        tops = top_sections(self.tree, keys)
        self.in_section = [keys[top].name if top >= 0 else "" for top in tops]
        among = [step for step in slow if step.usual]
        steps = kept.usual_steps - len(among)
        self.wall_ms = median_ms
        self.sections: dict[str, float] = {}
        if steps > 0:
            ns = kept.usual_ns - sum(step.wall_ns for step in among)
            self.wall_ms = max(0, ns) / steps / 1e6
            self.sections = by_name(snapshot, kept.usual_sections)
            for step in among:
                for name, ms in by_name(snapshot, step.sections).items():
                    self.sections[name] = max(0.0, self.sections.get(name, 0.0) - ms)
            self.sections = {name: ms / steps for name, ms in self.sections.items()}
        windows = [step for step in slow if step.window_usual]
        self.row_steps = kept.usual_row_steps - sum(step.window_steps for step in windows)
        self._among: dict[int, tuple[int, int]] = {}
        for row in (row for step in windows for row in step.rows):
            ns, calls = self._among.get(row.node, (0, 0))
            self._among[row.node] = (ns + row.self_ns, calls + row.calls)
        steps_ns = snapshot.steps.sum_ns
        spent = sum(
            ns for ns, phase in zip(self.tree.self_ns, _phases(self.tree), strict=True) if not phase
        )
        #: All steps in the tree; 0: it covers something else.
        same = steps_ns <= _STEPS_ONLY * spent and spent <= _STEPS_ONLY * steps_ns
        self.steps = snapshot.steps.measured if same else 0

    def known(self, step: OutlierStep) -> bool:
        """Return whether a function's usual time is known."""
        return self.row_steps > 0 or self.steps > step.window_steps

    def of_node(self, step: OutlierStep, row: OutlierRow) -> tuple[float, float]:
        """Return time (ns) and calls of the row's node per usual step, or per other step."""
        if self.row_steps > 0:
            ns, calls = self._among.get(row.node, (0, 0))
            ns, calls = row.usual_ns - ns, row.usual_calls - calls
            steps = self.row_steps
        else:
            # Every window had a slow step.
            ns = self.tree.self_ns[row.node] - row.self_ns
            calls = self.tree.calls[row.node] - row.calls
            steps = self.steps - step.window_steps
        return max(0, ns) / steps, max(0, calls) / steps


def _phases(nodes: NodeTable) -> Sequence[int]:
    return nodes.phase or (0,) * len(nodes)


def by_name(snapshot: Snapshot, rows: Iterable[tuple[int, int]]) -> dict[str, float]:
    out: dict[str, float] = {}
    for key, ns in rows:
        name = snapshot.keys[key].name
        out[name] = out.get(name, 0.0) + ns / 1e6
    return out


def section_rows(
    snapshot: Snapshot, usual: Usual, step: OutlierStep, were_off: frozenset[str]
) -> tuple[OutlierSection, ...]:
    here = by_name(snapshot, step.sections)
    timed = {name: ms for name, ms in usual.sections.items() if name not in were_off}
    names = dict.fromkeys([*here, *timed])
    rows = [
        OutlierSection(n, ms, typical, ms - typical)
        for n in names
        for ms, typical in [(here.get(n, 0.0), timed.get(n, 0.0))]
    ]
    ms = step.wall_ns / 1e6 - sum(here.values())
    typical = usual.wall_ms - sum(timed.values())
    rows.append(OutlierSection(OUTSIDE, ms, typical, ms - typical))
    return tuple(sorted(rows, key=lambda r: -r.excess_ms))


@dataclass(slots=True)
class _Sum:
    ns: float = 0.0
    typical_ns: float = 0.0
    calls: int = 0
    typical_calls: float = 0.0


def function_rows(
    snapshot: Snapshot, usual: Usual, step: OutlierStep
) -> tuple[OutlierFunction, ...]:
    sums: dict[tuple[Key, str, str], _Sum] = {}
    least_ms = _LISTED * (step.wall_ns / 1e6 - usual.wall_ms)
    for row in step.rows:
        key = snapshot.keys[usual.tree.key[row.node]]
        caller = (
            "" if key.kind in ("python", "section", "root") else _caller(snapshot, usual, row.node)
        )
        typical_ns, typical_calls = usual.of_node(step, row)
        group = sums.setdefault((key, usual.in_section[row.node], caller), _Sum())
        group.ns += row.self_ns
        group.calls += row.calls
        group.typical_ns += typical_ns * step.window_steps
        group.typical_calls += typical_calls * step.window_steps
    rows = [
        OutlierFunction(
            qualname=key.qualname,
            name=key.name,
            file=key.file,
            line=key.line,
            kind=key.kind,
            section=section,
            caller=caller,
            ms=s.ns / 1e6,
            typical_ms=s.typical_ns / 1e6,
            excess_ms=(s.ns - s.typical_ns) / 1e6,
            calls=s.calls,
            typical_calls=s.typical_calls,
        )
        for (key, section, caller), s in sums.items()
        if s.ns / 1e6 - s.typical_ns / 1e6 >= least_ms
    ]
    return tuple(sorted(rows, key=lambda r: -r.excess_ms)[:_FUNCTIONS])


def _caller(snapshot: Snapshot, usual: Usual, node: int) -> str:
    """Return the nearest Python function above."""
    above = (snapshot.keys[usual.tree.key[i]] for i in islice(upward(usual.tree, node), 1, None))
    key = next((key for key in above if key.kind == "python"), None)
    return "" if key is None else place(key.qualname or key.name, key.file, key.line)


def short(name: str, limit: int = 50) -> str:
    return elided(readable(name, 1000), limit)


def place(name: str, file: str, line: int) -> str:
    return f"{short(name)} ({short(file_name(file), 30)}:{line})" if line else short(name)
