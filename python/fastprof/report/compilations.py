"""What was compiled during a run: per function, how often, why again, and what it cost."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fastprof.names import file_name, readable
from fastprof.report.compile_reasons import Reason, break_of, reason_of
from fastprof.report.origin import is_users
from fastprof.snapshot import Snapshot
from fastprof.snapshot.compilations import CompileEvent, CompileSnapshot

_AFTER = re.compile(r" after line (\d+)$")
_RESUME = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")
#: A smaller part of the time is the difference of two clocks, in files of older versions.
_WITHIN = 0.02
#: Values that a reason lists.
_VALUES = 8


@dataclass(frozen=True, slots=True)
class CompileRow:
    """One function, or the part of it after a graph break; times are in ms.

    ``ms`` is the sum of ``capture_ms`` (reading the code, in torch: dynamo), ``backend_ms`` (the
    graph: autograd, fusing) and ``kernel_ms`` (making and compiling kernels).  ``times`` is the
    number of its compilations, ``again`` of them because no earlier one fitted, without those of
    backward passes (``backwards``), ``steps`` the steps in which they were (0: the first).
    ``limit`` is the limit that it has reached: it then runs without being compiled again.
    ``failed`` is why it was not compiled.  ``called_at`` is the program's ``file:line`` that called
    a function of a library.
    """

    name: str
    file: str
    line: int
    times: int
    again: int
    backwards: int
    ms: float
    capture_ms: float
    backend_ms: float
    kernel_ms: float
    again_ms: float
    hits: int
    misses: int
    steps: tuple[int, ...]
    reasons: tuple[Reason, ...]
    limit: str
    failed: str
    called_at: str = ""

    @property
    def after_line(self) -> int:
        """Return the line of the graph break at which this part of a function begins; 0: none."""
        found = _AFTER.search(self.name)
        return int(found[1]) if found else 0

    @property
    def place(self) -> str:
        """Name, file and line: ``Model.forward (model.py:41)``."""
        return f"{self.name} ({file_name(self.file)}:{self.line})" if self.line else self.name


@dataclass(frozen=True, slots=True)
class CompileBreak:
    """A line at which captured code ends; ``kind`` and ``what`` are those of ``break_of``."""

    file: str
    line: int
    name: str
    kind: str
    what: str
    count: int


@dataclass(frozen=True, slots=True)
class CompileReport:
    """Everything that a compiler did in a run.

    ``ms`` is the time of all compilations, ``within_ms`` the part of it that is in the time of
    steps, or of other phases, too: jax's, and those of other threads; ``again_ms`` the part of it
    after the first compilation of each function; ``steps`` is the number of steps in which it
    compiled, ``in_steps_ms`` their part.  ``by_step`` has the names of the functions that a step
    compiled again.  ``cold`` is the number of graphs that the cache lacked in the first step that
    looked there; 0: it had some.
    """

    compiler: str
    version: str
    ms: float
    within_ms: float
    again_ms: float
    in_steps_ms: float
    steps: int
    times: int
    again: int
    hits: int
    misses: int
    rows: tuple[CompileRow, ...]
    breaks: tuple[CompileBreak, ...]
    by_step: tuple[tuple[int, float, tuple[str, ...]], ...]
    limit: int
    cache: str
    unknown: tuple[str, ...]
    cold: int = 0


def compile_report(snapshot: Snapshot) -> CompileReport | None:
    """Return what was compiled; None: nothing, or it was not recorded."""
    found = snapshot.compilations
    if found is None:
        return None
    found = _by_the_runs_clock(found)
    events = found.events
    rows = _rows(snapshot, found)
    steps: dict[int, list[CompileEvent]] = {}
    for event in events:
        if event.phase in ("steps", "warmup", "unprofiled", "setup", "unhooked", "windows"):
            steps.setdefault(event.step, []).append(event)
    again_ns = sum(event.total_ns for event in events if event.reason and not event.limit)
    names = _names(snapshot, events)
    whole_ns = sum(event.total_ns for event in events) + found.lost_ns
    within_ns = max(0, whole_ns - snapshot.phase_ns("compile"))
    return CompileReport(
        compiler=found.compiler,
        version=found.version,
        ms=whole_ns / 1e6,
        within_ms=within_ns / 1e6 if within_ns > _WITHIN * whole_ns else 0.0,
        again_ms=again_ns / 1e6,
        in_steps_ms=sum(e.total_ns for of in steps.values() for e in of) / 1e6,
        steps=len(steps),
        times=sum(row.times for row in rows),
        again=sum(row.again for row in rows),
        hits=sum(event.hits for event in events),
        misses=sum(event.misses for event in events),
        rows=rows,
        breaks=_breaks(snapshot, found),
        by_step=tuple(
            (
                step,
                sum(event.total_ns for event in of) / 1e6,
                tuple(dict.fromkeys(names[_key(e)] for e in of if e.reason and not e.limit)),
            )
            for step, of in sorted(steps.items())
        ),
        limit=found.limit,
        cache=found.cache,
        unknown=found.unknown,
        cold=_cold(events),
    )


def _cold(events: Sequence[CompileEvent]) -> int:
    used = [event for event in events if event.hits + event.misses]
    first = [event for event in used if event.step == used[0].step]
    return 0 if any(event.hits for event in first) else sum(event.misses for event in first)


def _by_the_runs_clock(found: CompileSnapshot) -> CompileSnapshot:
    """Return the compilations with the times of those in the run's phase adding up to it.

    The compiler's clock starts a bit earlier.  So all parts of a report have one figure.
    """
    inside = frozenset(found.inside or ())
    inside_ns = sum(found.events[number].total_ns for number in inside)
    if not inside_ns:
        return found
    inside_ns += found.lost_ns  # those were there, too
    events, done_ns, before_ns = [], 0, 0
    for number, event in enumerate(found.events):
        if number in inside:
            done_ns += event.total_ns
            until_ns = found.wall_ns * done_ns // inside_ns
            total, before_ns = until_ns - before_ns, until_ns
            backend = min(total, event.backend_ns)
            kernel = min(backend, event.kernel_ns)
            event = replace(event, total_ns=total, backend_ns=backend, kernel_ns=kernel)
        events.append(event)
    lost_ns = found.wall_ns - before_ns if found.lost else 0
    return replace(found, events=tuple(events), lost_ns=lost_ns)


def _key(event: CompileEvent) -> tuple[str, str, int]:
    return event.file, event.name, event.line


def _rows(snapshot: Snapshot, found: CompileSnapshot) -> tuple[CompileRow, ...]:
    of: dict[tuple[str, str, int], list[CompileEvent]] = {}
    for event in found.events:
        of.setdefault(_key(event), []).append(event)
    names = _names(snapshot, found.events)
    places = _places(snapshot, found)
    rows = [_row(names[key], places.get(key[1], key), events) for key, events in of.items()]
    return tuple(sorted(rows, key=lambda row: -row.ms))


def _places(snapshot: Snapshot, found: CompileSnapshot) -> dict[str, tuple[str, str, int]]:
    """Return file, name and line of functions that jax only named: the program's, if it is one."""
    wanted = {event.name for event in found.events if event.kind == "jax"}
    places: dict[str, list[tuple[str, str, int]]] = {}
    for key in snapshot.keys:
        if key.name in wanted and is_users(key):
            places.setdefault(key.name, []).append((key.file, key.name, key.line))
    return {name: at[0] for name, at in places.items() if len(at) == 1}


def _row(name: str, key: tuple[str, str, int], events: Sequence[CompileEvent]) -> CompileRow:
    compiled = [e for e in events if e.kind not in ("backward", "runtime") and not e.limit]
    limits = [event.limit for event in events if event.limit]
    failed = [event.failed for event in events if event.failed]
    total, backend, kernel = (
        sum(getattr(event, which) for event in events) / 1e6
        for which in ("total_ns", "backend_ns", "kernel_ns")
    )
    return CompileRow(
        name=name,
        file=key[0],
        line=key[2],
        times=len(compiled),
        again=sum(bool(event.reason) for event in compiled),
        backwards=sum(event.kind == "backward" for event in events),
        ms=total,
        capture_ms=max(0.0, total - backend),
        backend_ms=max(0.0, backend - kernel),
        kernel_ms=kernel,
        again_ms=sum(e.total_ns for e in compiled if e.reason) / 1e6,
        hits=sum(event.hits for event in events),
        misses=sum(event.misses for event in events),
        steps=tuple(sorted({event.step for event in events})),
        reasons=_joined(reason_of(event.reason) for event in events if event.reason),
        limit=limits[0] if limits else "",
        failed=readable(failed[0].split("\n")[0], 120) if failed and not compiled[1:] else "",
        called_at=file_name(next((event.caller for event in events if event.caller), "")),
    )


def _joined(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return each variable once, with all of its values, the most frequent one first."""
    values: dict[tuple[str, str, int], dict[str, None]] = {}
    times: dict[tuple[str, str, int], int] = {}
    for reason in reasons:
        key = reason.kind, reason.what, reason.dim
        times[key] = times.get(key, 0) + 1
        values.setdefault(key, {}).update(dict.fromkeys(reason.values))
    return tuple(
        Reason(*key, tuple(values[key])[:_VALUES]) for key in sorted(times, key=lambda k: -times[k])
    )


def _breaks(snapshot: Snapshot, found: CompileSnapshot) -> tuple[CompileBreak, ...]:
    known = _qualnames(snapshot)
    rows: dict[tuple[str, int, str, str, str], int] = {}
    for each in found.breaks:
        name = _RESUME.sub(r"\1", each.name)
        first = _first_line(known, each.file, name, each.line)
        name = known.get((each.file, first, name), name)
        key = (each.file, each.line, name, *break_of(each.reason))
        rows[key] = rows.get(key, 0) + each.count
    return tuple(CompileBreak(*key, count) for key, count in rows.items())


def _qualnames(snapshot: Snapshot) -> dict[tuple[str, int, str], str]:
    return {
        (key.file, key.line, key.name): key.qualname
        for key in snapshot.keys
        if key.kind == "python" and key.qualname
    }


def _names(snapshot: Snapshot, events: Iterable[CompileEvent]) -> dict[tuple[str, str, int], str]:
    """Return each function's name for readers, with its class if the recorder saw the function."""
    known = _qualnames(snapshot)
    compiled = {(event.file, event.line, event.name): event.name for event in events}
    names = {}
    for event in events:
        part = ""
        name, line = event.name, event.line
        if found := _RESUME.match(name):
            name = found[1]
            line = _first_line(known | compiled, event.file, name, line)
            part = f" after line {found[2]}"
        name = known.get((event.file, line, name), name)
        names[_key(event)] = f"{name.replace('<locals>.', '') or '(unnamed)'}{part}"
    return names


def _first_line(known: Iterable[tuple[str, int, str]], file: str, name: str, line: int) -> int:
    """Return the first line of the function with this name around ``line``; 0: unknown."""
    lines = (at for of, at, its in known if of == file and its == name and at <= line)
    return max(lines, default=0)
