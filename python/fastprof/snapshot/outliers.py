"""The slowest steps' part of a snapshot: what each calling context took in them.

Times are integer nanoseconds, as measured (the hook's own cost included).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fastprof.snapshot.fields import as_dict, as_int, as_ints, as_list, fail

#: The recorder keeps no more.
MAX_OUTLIERS = 100
MAX_ROWS = 512
_MAX_SECTIONS = 32


@dataclass(frozen=True, slots=True)
class OutlierRow:
    """One calling context in one kept step: ``node`` is its row in the thread's tree.

    ``usual_ns`` and ``usual_calls`` are what it had in ``usual_row_steps`` steps.
    """

    node: int
    self_ns: int
    calls: int
    resumes: int
    usual_ns: int
    usual_calls: int


@dataclass(frozen=True, slots=True)
class OutlierStep:
    """One of the slowest measured steps.

    ``index`` counts all steps from 0; ``start_ns`` is since the first step began.
    ``sections`` are (key, ns) of the top-level sections, largest first to stay.  ``rows``
    are of the ``window_steps`` steps that end with this one: one, if the recorder could
    afford to look at every step; 0 if nobody looked.  They and ``rest_ns`` add up to
    ``window_ns``.  ``usual`` and ``window_usual``: it is part of what counts as usual.
    """

    index: int
    start_ns: int
    wall_ns: int
    usual: bool
    sections: tuple[tuple[int, int], ...]
    window_steps: int
    window_ns: int
    window_usual: bool
    rows: tuple[OutlierRow, ...]
    rest_ns: int


@dataclass(frozen=True, slots=True)
class OutlierSnapshot:
    """The ``limit`` slowest measured steps of the training thread, and what is usual.

    ``thread`` is an index into ``Snapshot.threads``.  ``usual_ns`` and ``usual_sections``
    (key, ns) are sums over the ``usual_steps`` steps that took no more than 1.5 times the
    median of those before them; rows' usual sums are over ``usual_row_steps`` of these.
    """

    thread: int
    limit: int
    usual_steps: int
    usual_ns: int
    usual_sections: tuple[tuple[int, int], ...]
    usual_row_steps: int
    kept: tuple[OutlierStep, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists and numbers: what ``json.dumps`` accepts."""
        return {
            **{name: getattr(self, name) for name in _NUMBERS},
            "usual_sections": [list(row) for row in self.usual_sections],
            "kept": [_step_dict(step) for step in self.kept],
        }


_NUMBERS = ("thread", "limit", "usual_steps", "usual_ns", "usual_row_steps")
_ROW = tuple(f.name for f in fields(OutlierRow))
_STEP_NUMBERS = ("index", "start_ns", "wall_ns", "window_steps", "window_ns", "rest_ns")
_STEP_FLAGS = ("usual", "window_usual")


def _step_dict(step: OutlierStep) -> dict[str, Any]:
    return {
        **{name: getattr(step, name) for name in (*_STEP_NUMBERS, *_STEP_FLAGS)},
        "sections": [list(row) for row in step.sections],
        "rows": [[getattr(row, name) for name in _ROW] for row in step.rows],
    }


def read_outliers(
    value: object, n_keys: int, tree_sizes: Sequence[int], steps: range
) -> OutlierSnapshot | None:
    """Validate the field ``outliers``; None: slow steps were not kept.

    Args:
        value: the field.
        n_keys: number of keys.
        tree_sizes: number of nodes per thread.
        steps: the indexes of the measured steps.

    Raises:
        SnapshotError: a value is missing, of the wrong type, out of range, or does not
            fit the others.
    """
    if value is None:
        return None
    top = as_dict(value, "outliers")
    limit = as_int(top.get("limit"), "outliers.limit", 1, MAX_OUTLIERS)
    thread = as_int(top.get("thread"), "outliers.thread", 0, len(tree_sizes) - 1)
    kept = as_list(top.get("kept"), "outliers.kept")
    if len(kept) > limit:
        raise fail("outliers.kept", len(kept), f"at most {limit} steps")
    read = tuple(_step(v, i, n_keys, tree_sizes[thread], steps) for i, v in enumerate(kept))
    if len({step.index for step in read}) != len(read):
        raise fail("outliers.kept", kept, "each step once")
    return OutlierSnapshot(
        thread=thread,
        limit=limit,
        usual_steps=as_int(top.get("usual_steps"), "outliers.usual_steps", 0, len(steps)),
        usual_ns=as_int(top.get("usual_ns"), "outliers.usual_ns"),
        usual_sections=_sections(top.get("usual_sections"), "outliers.usual_sections", n_keys),
        usual_row_steps=as_int(
            top.get("usual_row_steps"), "outliers.usual_row_steps", 0, len(steps)
        ),
        kept=read,
    )


def _step(value: object, i: int, n_keys: int, nodes: int, steps: range) -> OutlierStep:
    where = f"outliers.kept[{i}]"
    s = as_dict(value, where)
    number = {name: as_int(s.get(name), f"{where}.{name}") for name in _STEP_NUMBERS}
    for name in _STEP_FLAGS:
        if type(s.get(name)) is not bool:
            raise fail(f"{where}.{name}", s.get(name), "true or false")
    if number["index"] not in steps:
        raise fail(f"{where}.index", number["index"], f"a measured step: {steps}")
    sections = _sections(s.get("sections"), f"{where}.sections", n_keys)
    if len(sections) > _MAX_SECTIONS or sum(ns for _, ns in sections) > number["wall_ns"]:
        raise fail(f"{where}.sections", sections, "rows that add up to wall_ns at most")
    rows = _rows(s.get("rows"), f"{where}.rows", nodes)
    window_ns = number["window_ns"]
    if sum(row.self_ns for row in rows) + number["rest_ns"] != window_ns:
        raise fail(f"{where}.window_ns", window_ns, "the sum of the rows and rest_ns")
    window_steps = number["window_steps"]
    if window_steps > len(steps) or window_ns < (number["wall_ns"] if window_steps else 0):
        raise fail(f"{where}.window_steps", window_steps, "steps that include this one")
    if rows and not window_steps:
        raise fail(f"{where}.rows", rows, "none where nobody looked")
    return OutlierStep(
        sections=sections, rows=rows, usual=s["usual"], window_usual=s["window_usual"], **number
    )


def _rows(value: object, where: str, nodes: int) -> tuple[OutlierRow, ...]:
    items = as_list(value, where)
    if len(items) > MAX_ROWS:
        raise fail(where, len(items), f"at most {MAX_ROWS} rows")
    rows = tuple(OutlierRow(*as_ints(v, f"{where}[{i}]", len(_ROW))) for i, v in enumerate(items))
    seen = {row.node for row in rows}
    if rows and (len(seen) != len(rows) or max(seen) >= nodes):
        raise fail(where, items, f"different nodes below {nodes}")
    return rows


def _sections(value: object, where: str, n_keys: int) -> tuple[tuple[int, int], ...]:
    rows: dict[int, int] = {}
    for i, item in enumerate(as_list(value, where)):
        key, ns = as_ints(item, f"{where}[{i}]", 2, first_below=n_keys)
        if key in rows:
            raise fail(f"{where}[{i}]", key, "each section once")
        rows[key] = ns
    return tuple(rows.items())
