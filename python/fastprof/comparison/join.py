"""Matches the functions of one run with those of another.

A function is identified by its kind, its qualified name and the name of its file without
directories, so moved lines and renamed directories do not matter.  The script that started a run
may have another name in each run.  Several functions of one run may have the same identity
(lambdas, local functions, the same class in two directories of a package).  Such a group is paired
by, in this order: the same path and line; as many common directories as possible, counted from the
file; the nearest line.  A group too large for that is paired in the order of path and line.
"""

from collections.abc import Sequence

from fastprof.names import file_name
from fastprof.report.rows import FunctionRow

#: Most pairs to compare one by one.
_MOST_PAIRS = 10_000

_Group = tuple[str, str, str]

#: Represents the script that started a run: no file has this name.
_SCRIPT = "/"


def join(
    tables: Sequence[Sequence[FunctionRow]], scripts: Sequence[str] = ()
) -> list[tuple[FunctionRow | None, ...]]:
    """Return one tuple per function, with its row in each table or None.

    The order is the first table's, then functions of later ones only.

    Args:
        scripts: per run, the file name of the script that started it; "": unknown.
    """
    entries: list[list[FunctionRow | None]] = []
    groups: dict[_Group, list[int]] = {}
    for column, table in enumerate(tables):
        rows: dict[_Group, list[FunctionRow]] = {}
        script = scripts[column] if all(scripts) and column < len(scripts) else ""
        for row in table:
            rows.setdefault(_group(row, script), []).append(row)
        for group, found in rows.items():
            known = groups.setdefault(group, [])
            pairs = _pairs([_first(entries[i]) for i in known], found)
            for number, row in enumerate(found):
                if number in pairs:
                    entries[known[pairs[number]]][column] = row
                else:
                    known.append(len(entries))
                    entries.append([None] * len(tables))
                    entries[-1][column] = row
    return [tuple(entry) for entry in entries]


def _group(row: FunctionRow, script: str) -> _Group:
    file = file_name(row.file)
    return (row.kind, row.qualname or row.name, _SCRIPT if file == script else file)


def _first(entry: Sequence[FunctionRow | None]) -> FunctionRow:
    return next(row for row in entry if row is not None)


def _pairs(known: Sequence[FunctionRow], found: Sequence[FunctionRow]) -> dict[int, int]:
    """Return the number in ``found`` -> the number in ``known``; each at most once."""
    if len(known) == 1 and len(found) == 1:
        return {0: 0}
    if len(known) * len(found) > _MOST_PAIRS:
        return dict(zip(_in_order(found), _in_order(known), strict=False))
    ranked = sorted(
        (_distance(known[k], found[f]), k, f) for k in range(len(known)) for f in range(len(found))
    )
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for _, k, f in ranked:
        if f not in pairs and k not in taken:
            pairs[f] = k
            taken.add(k)
    return pairs


def _in_order(rows: Sequence[FunctionRow]) -> list[int]:
    return sorted(range(len(rows)), key=lambda i: _place(rows[i]))


def _place(row: FunctionRow) -> tuple[str, int]:
    return (row.file, row.line)


def _distance(a: FunctionRow, b: FunctionRow) -> tuple[bool, int, int]:
    return (_place(a) != _place(b), -_common(a.file, b.file), abs(a.line - b.line))


def _common(a: str, b: str) -> int:
    """Return how many parts two paths have in common, counted from their ends."""
    count = 0
    for x, y in zip(*(reversed(p.replace("\\", "/").split("/")) for p in (a, b)), strict=False):
        if x != y:
            break
        count += 1
    return count
