"""What was recorded: raw, frozen, serialisable; one :class:`Snapshot` per process.

This is the seam between capture and report.  Capture produces it and knows nothing of
reports; reports consume it and need neither the extension nor the live process.  All
times are integer nanoseconds of one monotonic clock.  Nothing here holds a live object.

``Snapshot.from_dict`` is the validator for untrusted input: whatever it returns is
internally consistent (indices in range, columns of equal length, parents before
children, counters not negative); whatever is not raises :class:`SnapshotError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SCHEMA = "fastprof/1"

#: Kinds of tree keys.  ``root`` is the thread itself, ``truncated`` stands for contexts
#: beyond the depth or node cap, ``type`` is a constructor or other callable object that
#: only the monitoring backend can see.
KINDS = ("root", "truncated", "python", "c", "type", "section")


class SnapshotError(ValueError):
    """A saved run is damaged or not one; the message names the field and the value."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a tree node stands for.

    ``name`` is cProfile's label (``co_name`` or ``<built-in method builtins.len>``);
    ``qualname`` is the qualified name.  C functions have file ``"~"`` and line 0,
    sections have file ``""`` and line 0.
    """

    kind: str
    file: str
    line: int
    name: str
    qualname: str


@dataclass(frozen=True, slots=True)
class NodeTable:
    """A calling-context tree as columns; row 0 is the root, parents precede children.

    ``parent[0]`` is -1.  ``calls`` counts entries, ``resumes`` counts continuations of
    generators and coroutines (cProfile's ncalls = calls + resumes).  ``self_ns`` is
    exclusive wall time, raw (hook cost included): the sum over a subtree is that
    subtree's inclusive time.
    """

    parent: tuple[int, ...]
    key: tuple[int, ...]
    calls: tuple[int, ...]
    resumes: tuple[int, ...]
    self_ns: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.parent)


@dataclass(frozen=True, slots=True)
class ThreadTree:
    """One thread's tree.  ``ident`` 0 is the merged tree of ended threads."""

    ident: int
    name: str
    ended: bool
    nodes: NodeTable


@dataclass(frozen=True, slots=True)
class Histogram:
    """Log-linear histogram of durations: rows ``(low_ns, high_ns, count)``, ascending.

    Bucket widths are below 1/64 of their lower bound, so a midpoint is within 0.8 %.
    """

    rows: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SectionStats:
    """Every use of one section name in one thread.

    ``sum_ns`` adds every entry's duration; ``outer_ns`` only entries that were not
    inside another open entry of the same name (so recursion is not counted twice).
    ``errors`` counts entries left by an exception, ``open`` entries not closed yet.
    """

    key: int
    thread: int
    count: int
    sum_ns: int
    outer_ns: int
    min_ns: int
    max_ns: int
    errors: int
    open: int
    hist: Histogram


@dataclass(frozen=True, slots=True)
class StepRow:
    """Time of one top-level section inside steps: ``steps`` in which it ran, their sum."""

    key: int
    steps: int
    sum_ns: int


@dataclass(frozen=True, slots=True)
class Steps:
    """Step boundaries of the training thread.

    ``count`` is all steps, of which the first ``skipped`` are left out of every other
    field (warm-up).  ``sum_ns`` is their wall time, ``sum_sq`` the sum of squares in
    seconds squared, ``recent_ns`` the last durations (bounded).  ``rows`` are the
    top-level sections; what they do not cover is unaccounted.
    """

    count: int = 0
    skipped: int = 0
    sum_ns: int = 0
    sum_sq: float = 0.0
    min_ns: int = 0
    max_ns: int = 0
    recent_ns: tuple[int, ...] = ()
    hist: Histogram = Histogram()
    rows: tuple[StepRow, ...] = ()


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """One data loader over the whole run: batches, and per phase (count, sum_ns).

    ``phases`` maps ``data``, ``forward``, ``backward``, ``optimizer`` and ``batch_wait``.
    """

    name: str
    split: str
    batches: int
    phases: Mapping[str, tuple[int, int]]
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class EventCost:
    """Cost of one hooked event pair in ns: inside the callee's interval, and outside it."""

    inside_ns: float
    outside_ns: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The hook's own cost on this machine and interpreter, per event kind."""

    python: EventCost
    resume: EventCost
    c: EventCost
    #: A method of a builtin type (``<method 'append' of 'list' objects>``): binding it
    #: costs extra under some hooks.
    method: EventCost


@dataclass(frozen=True, slots=True)
class Muted:
    """A function whose events were switched off to stay within the overhead budget."""

    key: int
    calls_before: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that one process recorded.

    ``meta`` holds strings and numbers only (python, platform, pid, rank, backend, clock,
    started_unix_ns, ...).  ``duration_ns`` is recorded wall time.  ``counters`` are the
    faults that were survived (``unbalanced``, ``dropped``, ``wrong_thread`` ...): nonzero
    ones belong in every report.  ``notes`` are sentences for the reader.
    """

    meta: Mapping[str, str | int | float | bool | None]
    duration_ns: int
    keys: tuple[Key, ...] = ()
    threads: tuple[ThreadTree, ...] = ()
    sections: tuple[SectionStats, ...] = ()
    steps: Steps = Steps()
    loaders: tuple[LoaderStats, ...] = ()
    calibration: Calibration | None = None
    muted: tuple[Muted, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    schema: str = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers: what ``json.dumps`` accepts."""
        return {
            "schema": self.schema,
            "meta": dict(self.meta),
            "duration_ns": self.duration_ns,
            "keys": [[k.kind, k.file, k.line, k.name, k.qualname] for k in self.keys],
            "threads": [
                {
                    "ident": t.ident,
                    "name": t.name,
                    "ended": t.ended,
                    "parent": list(t.nodes.parent),
                    "key": list(t.nodes.key),
                    "calls": list(t.nodes.calls),
                    "resumes": list(t.nodes.resumes),
                    "self_ns": list(t.nodes.self_ns),
                }
                for t in self.threads
            ],
            "sections": [
                {
                    "key": s.key,
                    "thread": s.thread,
                    "count": s.count,
                    "sum_ns": s.sum_ns,
                    "outer_ns": s.outer_ns,
                    "min_ns": s.min_ns,
                    "max_ns": s.max_ns,
                    "errors": s.errors,
                    "open": s.open,
                    "hist": [list(r) for r in s.hist.rows],
                }
                for s in self.sections
            ],
            "steps": {
                "count": self.steps.count,
                "skipped": self.steps.skipped,
                "sum_ns": self.steps.sum_ns,
                "sum_sq": self.steps.sum_sq,
                "min_ns": self.steps.min_ns,
                "max_ns": self.steps.max_ns,
                "recent_ns": list(self.steps.recent_ns),
                "hist": [list(r) for r in self.steps.hist.rows],
                "rows": [[r.key, r.steps, r.sum_ns] for r in self.steps.rows],
            },
            "loaders": [
                {
                    "name": ld.name,
                    "split": ld.split,
                    "batches": ld.batches,
                    "weight": ld.weight,
                    "phases": {k: list(v) for k, v in ld.phases.items()},
                }
                for ld in self.loaders
            ],
            "calibration": None
            if self.calibration is None
            else {
                "python": [self.calibration.python.inside_ns, self.calibration.python.outside_ns],
                "resume": [self.calibration.resume.inside_ns, self.calibration.resume.outside_ns],
                "c": [self.calibration.c.inside_ns, self.calibration.c.outside_ns],
                "method": [self.calibration.method.inside_ns, self.calibration.method.outside_ns],
            },
            "muted": [[m.key, m.calls_before] for m in self.muted],
            "counters": dict(self.counters),
            "notes": list(self.notes),
        }

    @staticmethod
    def from_dict(data: object) -> Snapshot:
        """Validate ``data`` (as from ``json.loads``) and build the value.

        Raises:
            SnapshotError: anything missing, of the wrong type, out of range or
                inconsistent; the message names the field.
        """
        return _Reader(data).snapshot()


#: A count or a time that does not fit in a signed 64-bit integer is damage, not data.
_MAX_INT = 2**63 - 1

#: No hooked event costs a second; a cost beyond that would make every time 0.
_MAX_COST_NS = 1e9


class _Reader:
    """Checks every field on the way in, so that reports need not check any."""

    def __init__(self, data: object) -> None:
        self._data = data

    def snapshot(self) -> Snapshot:
        top = _dict(self._data, "file")
        schema = top.get("schema")
        if schema != SCHEMA:
            raise SnapshotError(f"schema is {_show(schema)}, this fastprof reads {SCHEMA!r}")
        keys = tuple(_key(k, i) for i, k in enumerate(_list(top.get("keys"), "keys")))
        threads = tuple(
            _thread(t, i, keys) for i, t in enumerate(_list(top.get("threads"), "threads"))
        )
        n_keys = len(keys)
        return Snapshot(
            meta=_meta(top.get("meta")),
            duration_ns=_int(top.get("duration_ns"), "duration_ns"),
            keys=keys,
            threads=threads,
            sections=tuple(
                _section(s, i, n_keys, len(threads))
                for i, s in enumerate(_list(top.get("sections"), "sections"))
            ),
            steps=_steps(top.get("steps"), n_keys),
            loaders=tuple(
                _loader(v, i) for i, v in enumerate(_list(top.get("loaders"), "loaders"))
            ),
            calibration=_calibration(top.get("calibration")),
            muted=tuple(
                Muted(*_ints(m, f"muted[{i}]", 2, first_below=n_keys))
                for i, m in enumerate(_list(top.get("muted"), "muted"))
            ),
            counters={
                _str(k, "counters key"): _int(v, f"counters[{_show(k)}]")
                for k, v in _dict(top.get("counters"), "counters").items()
            },
            notes=tuple(_str(n, "notes[]") for n in _list(top.get("notes"), "notes")),
        )


def _fail(where: str, value: object, wanted: str) -> SnapshotError:
    return SnapshotError(f"{where} is {_show(value)}, expected {wanted}")


def _show(value: object) -> str:
    """A short form of any value: ``repr`` of a hostile one may be huge, deep, or fail."""
    if isinstance(value, str):
        return repr(value[:80])
    if value is None or type(value) in (bool, float):
        return repr(value)
    if type(value) is int:
        return repr(value) if value.bit_length() <= 256 else "a huge integer"
    if isinstance(value, (list, dict)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return f"a {type(value).__name__}"


def _dict(value: object, where: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _fail(where, value, "an object")
    return value


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _fail(where, value, "a list")
    return value


def _str(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _fail(where, value, "a string")
    return value


def _int(value: object, where: str, low: int = 0, high: int = _MAX_INT) -> int:
    # Above 2**53 saved runs hold integers as strings, as many JSON readers have no others.
    if type(value) is str and len(value) <= 20 and value.isascii() and value.isdecimal():
        value = int(value)
    if type(value) is not int or not low <= value <= high:
        raise _fail(where, value, f"an integer from {low} to {high}")
    return value


def _float(value: object, where: str) -> float:
    if type(value) not in (int, float):
        raise _fail(where, value, "a number")
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise _fail(where, value, "a finite number") from None
    if not number - number == 0.0:  # nan or infinite
        raise _fail(where, value, "a finite number")
    return number


def _ints(value: object, where: str, n: int, first_below: int | None = None) -> list[int]:
    items = _list(value, where)
    if len(items) != n:
        raise _fail(where, value, f"{n} integers")
    out = [_int(v, where) for v in items]
    if first_below is not None and out[0] >= first_below:
        raise _fail(where, out[0], f"a key index below {first_below}")
    return out


def _meta(value: object) -> dict[str, str | int | float | bool | None]:
    out: dict[str, str | int | float | bool | None] = {}
    for k, v in _dict(value, "meta").items():
        if v is not None and type(v) not in (str, int, float, bool):
            raise _fail(f"meta[{_show(k)}]", v, "a string, number, true, false or null")
        if type(v) is float:
            _float(v, f"meta[{_show(k)}]")
        name = _str(k, "meta key")
        # Wall clock times are above 2**53 ns and therefore strings in a file, see _int().
        is_time = name.endswith("_ns") and type(v) is str
        out[name] = _int(v, f"meta[{_show(k)}]") if is_time else v
    return out


def _key(value: object, i: int) -> Key:
    items = _list(value, f"keys[{i}]")
    if len(items) != 5 or items[0] not in KINDS:
        raise _fail(f"keys[{i}]", value, f"[kind, file, line, name, qualname], kind in {KINDS}")
    kind, file, line, name, qualname = items
    where = f"keys[{i}]"
    return Key(
        _str(kind, where),
        _str(file, where),
        _int(line, where),
        _str(name, where),
        _str(qualname, where),
    )


def _column(
    t: Mapping[str, object], name: str, where: str, n: int, high: int = _MAX_INT
) -> tuple[int, ...]:
    items = _list(t.get(name), f"{where}.{name}")
    if len(items) != n:
        raise _fail(f"{where}.{name}", len(items), f"{n} rows")
    # Columns may have a million rows: look for the one that is wrong only if there is one.
    if set(map(type, items)) == {int} and min(items) >= 0 and max(items) <= high:
        return tuple(items)
    return tuple([_int(v, f"{where}.{name}[{i}]", 0, high) for i, v in enumerate(items)])


def _parents(value: object, where: str) -> tuple[int, ...]:
    items = _list(value, where)
    if not items or type(items[0]) is not int or items[0] != -1:
        raise _fail(where, items[0] if items else items, "a root row with parent -1 first")
    for row, above in enumerate(items):
        if row and not (type(above) is int and 0 <= above < row):
            raise _fail(f"{where}[{row}]", above, "an earlier row")
    return tuple(items)


def _thread(value: object, i: int, keys: Sequence[Key]) -> ThreadTree:
    where = f"threads[{i}]"
    t = _dict(value, where)
    parent = _parents(t.get("parent"), f"{where}.parent")
    n = len(parent)
    key = _column(t, "key", where, n, len(keys) - 1)
    roots = {k for k, item in enumerate(keys) if item.kind == "root"}
    for row, k in enumerate(key):
        if (k in roots) != (row == 0):
            raise _fail(f"{where}.key[{row}]", keys[k].kind, "kind root in row 0 and only there")
    return ThreadTree(
        ident=_int(t.get("ident"), f"{where}.ident", 0, 2**64 - 1),
        name=_str(t.get("name"), f"{where}.name"),
        ended=t.get("ended") is True,
        nodes=NodeTable(
            parent=parent,
            key=key,
            calls=_column(t, "calls", where, n),
            resumes=_column(t, "resumes", where, n),
            self_ns=_column(t, "self_ns", where, n),
        ),
    )


def _hist(value: object, where: str) -> Histogram:
    rows: list[tuple[int, int, int]] = []
    last = 0
    for i, item in enumerate(_list(value, where)):
        low, high, count = _ints(item, f"{where}[{i}]", 3)
        if low < last or high <= low:
            raise _fail(f"{where}[{i}]", item, "ascending buckets that do not overlap")
        last = high
        rows.append((low, high, count))
    return Histogram(tuple(rows))


def _section(value: object, i: int, n_keys: int, n_threads: int) -> SectionStats:
    where = f"sections[{i}]"
    s = _dict(value, where)
    number = {
        name: _int(s.get(name), f"{where}.{name}")
        for name in ("count", "sum_ns", "outer_ns", "min_ns", "max_ns", "errors", "open")
    }
    return SectionStats(
        key=_int(s.get("key"), f"{where}.key", 0, n_keys - 1),
        thread=_int(s.get("thread"), f"{where}.thread", 0, n_threads - 1),
        hist=_hist(s.get("hist"), f"{where}.hist"),
        **number,
    )


def _steps(value: object, n_keys: int) -> Steps:
    s = _dict(value, "steps")
    return Steps(
        count=_int(s.get("count"), "steps.count"),
        skipped=_int(s.get("skipped"), "steps.skipped"),
        sum_ns=_int(s.get("sum_ns"), "steps.sum_ns"),
        sum_sq=_float(s.get("sum_sq"), "steps.sum_sq"),
        min_ns=_int(s.get("min_ns"), "steps.min_ns"),
        max_ns=_int(s.get("max_ns"), "steps.max_ns"),
        recent_ns=tuple(
            _int(v, "steps.recent_ns") for v in _list(s.get("recent_ns"), "steps.recent_ns")
        ),
        hist=_hist(s.get("hist"), "steps.hist"),
        rows=tuple(
            StepRow(*_ints(r, f"steps.rows[{i}]", 3, first_below=n_keys))
            for i, r in enumerate(_list(s.get("rows"), "steps.rows"))
        ),
    )


def _loader(value: object, i: int) -> LoaderStats:
    where = f"loaders[{i}]"
    v = _dict(value, where)
    phases: dict[str, tuple[int, int]] = {}
    for name, pair in _dict(v.get("phases"), f"{where}.phases").items():
        count, sum_ns = _ints(pair, f"{where}.phases[{_show(name)}]", 2)
        phases[_str(name, f"{where}.phases key")] = (count, sum_ns)
    weight = v.get("weight")
    return LoaderStats(
        name=_str(v.get("name"), f"{where}.name"),
        split=_str(v.get("split"), f"{where}.split"),
        batches=_int(v.get("batches"), f"{where}.batches"),
        phases=phases,
        weight=None if weight is None else _float(weight, f"{where}.weight"),
    )


def _calibration(value: object) -> Calibration | None:
    if value is None:
        return None
    c = _dict(value, "calibration")

    def cost(name: str) -> EventCost:
        pair = _list(c.get(name), f"calibration.{name}")
        if len(pair) != 2:
            raise _fail(f"calibration.{name}", pair, "two numbers")
        inside, outside = (_float(v, f"calibration.{name}") for v in pair)
        if not (0 <= inside <= _MAX_COST_NS and 0 <= outside <= _MAX_COST_NS):
            raise _fail(f"calibration.{name}", [inside, outside], "two times of 0 to 1 s")
        return EventCost(inside, outside)

    return Calibration(cost("python"), cost("resume"), cost("c"), cost("method"))
