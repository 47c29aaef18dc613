"""The places of calls in the program, and the fixes as a diff that the user may apply."""

import ast
import difflib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fastprof.trial.interventions import BY_ID, arguments
from fastprof.trial.model import Call, Tried, Values


def calls_to_change(tried: Iterable[Tried], calls: Sequence[Call]) -> list[tuple[Call, Values]]:
    """Return the program's calls that the fixes change, with the arguments that each gets."""
    out: dict[tuple[str, int, str], tuple[Call, dict[str, object]]] = {}
    for one in tried:
        for name, values in one.candidate.parts.items():
            for call in calls:
                if call.kind in BY_ID[name].kinds and call.file:
                    place = call.file, call.line, call.kind
                    out.setdefault(place, (call, {}))[1].update(values)
    return [(call, values) for call, values in out.values()]


def keeping(tried: Iterable[Tried], calls: Sequence[Call]) -> tuple[str, ...]:
    """Return what to change: ``train.py:41 DataLoader(...)``, or the fix if a library calls."""
    found = []
    for one in tried:
        changed = calls_to_change([one], calls)
        found += [f"{os.path.basename(c.file)}:{c.line} {c.kind}(...)" for c, _ in changed]
        if not changed:
            found.append(one.candidate.advice or one.candidate.spelled)
    return tuple(dict.fromkeys(found))


def diff(tried: Iterable[Tried], calls: Sequence[Call]) -> tuple[str, list[str]]:
    """Return the changes as a unified diff, and the places where there is no known edit."""
    by_file: dict[str, list[tuple[Call, Values]]] = {}
    for call, values in calls_to_change(tried, calls):
        by_file.setdefault(call.file, []).append((call, values))
    out: list[str] = []
    left: list[str] = []
    for file, changes in by_file.items():
        try:
            before = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            left += [_place(call, values) for call, values in changes]
            continue
        after = before
        # From the end: an edit moves what follows it.
        for call, values in sorted(changes, key=lambda change: -change[0].line):
            edited = edited_call(after, call, values)
            if edited is None:
                left.append(_place(call, values))
            else:
                after = edited
        shown = _shown(file)
        old, new = (text.splitlines(keepends=True) for text in (before, after))
        out += difflib.unified_diff(old, new, f"a/{shown}", f"b/{shown}")
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in out), left


def _shown(file: str) -> str:
    near = os.path.relpath(file)
    return file.lstrip("/") if near.startswith("..") else near


def _place(call: Call, values: Values) -> str:
    return f"{os.path.basename(call.file)}:{call.line} {call.kind}({arguments(values)})"


def edited_call(source: str, call: Call, values: Values) -> str | None:
    """Return the source with the call's new arguments; None if it is not clear which to edit."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is(node, call)]
    # Before 3.13 a call over several lines is at the line of any of its parts.
    exact = [node for node in found if node.lineno == call.line] or found
    if len(exact) != 1:
        return None
    node = exact[0]
    if any(keyword.arg is None for keyword in node.keywords):
        return None  # **options: they may have the same arguments
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()

    def at(line: int | None, column: int | None) -> int:
        return starts[(line or 1) - 1] + (column or 0)

    edits: list[tuple[int, int, str]] = []
    if call.kind == "set_num_threads":
        if len(node.args) != 1:
            return None
        only = node.args[0]
        begin, end = at(only.lineno, only.col_offset), at(only.end_lineno, only.end_col_offset)
        edits.append((begin, end, repr(next(iter(values.values())))))
    else:
        new = dict(values)
        for keyword in node.keywords:
            if keyword.arg in new:
                value = keyword.value
                begin = at(value.lineno, value.col_offset)
                end = at(value.end_lineno, value.end_col_offset)
                edits.append((begin, end, repr(new.pop(keyword.arg))))
        if new:
            edits.append(_inserted(node, at, arguments(new)))
    for begin, end, text in sorted(edits, reverse=True):
        data = data[:begin] + text.encode() + data[end:]
    return data.decode()


def _inserted(node: ast.Call, at: Callable[..., int], text: str) -> tuple[int, int, str]:
    """Return the edit that adds arguments before the closing bracket of a call."""
    parts = [*node.args, *(keyword.value for keyword in node.keywords)]
    if not parts:
        end = at(node.end_lineno, node.end_col_offset) - 1
        return end, end, text
    last = max(at(part.end_lineno, part.end_col_offset) for part in parts)
    return last, last, f", {text}"


def _is(node: ast.Call, call: Call) -> bool:
    name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
    inside = node.lineno <= call.line <= (node.end_lineno or node.lineno)
    return inside and name == call.kind
