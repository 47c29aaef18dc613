"""The places of calls in the program, and the fixes as a diff that the user may apply."""

import ast
import difflib
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fastprof.trial.changes import THREADS
from fastprof.trial.effects import edit
from fastprof.trial.interventions import BY_ID, arguments
from fastprof.trial.model import Call, Tried, Values


def calls_to_change(tried: Iterable[Tried], calls: Sequence[Call]) -> list[tuple[Call, Values]]:
    """Return the program's calls that the fixes change, with the arguments that each gets."""
    parts = [part for one in tried for part in one.candidate.parts.items()]
    out: list[tuple[Call, Values]] = []
    for call in calls:
        given = dict(call.arguments)
        for name, values in parts:
            if call.file and call.kind in BY_ID[name].kinds:
                edit(name, values)(given)  # as in the process of its runs
        new = {name: value for name, value in given.items() if (name, value) not in
               call.arguments.items()}  # fmt: skip
        if new:
            out.append((call, new))
    return out


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
            # Not read_text(): a diff must have the file's own ends of lines.
            before = Path(file).read_bytes().decode()
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
        # Only "\n" ends a line of a diff; str.splitlines() knows more ends.
        old, new = list(io.StringIO(before)), list(io.StringIO(after))
        out += difflib.unified_diff(old, new, f"a/{shown}", f"b/{shown}")
    missing = "\n\\ No newline at end of file\n"
    return "".join(line if line.endswith("\n") else line + missing for line in out), left


def _shown(file: str) -> str:
    near = os.path.relpath(file)
    return file.lstrip("/") if near.startswith("..") else near


def _place(call: Call, values: Values) -> str:
    return f"{os.path.basename(call.file)}:{call.line} {call.kind}({arguments(values)})"


def edited_call(source: str, call: Call, values: Values) -> str | None:
    """Return the source with the call's new arguments; None if it is not clear how to edit it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is(node, call)]
    # Before 3.13 a call over several lines is at the line of any of its parts.
    exact = [node for node in found if node.lineno == call.line] or found
    if len(exact) != 1:
        return None
    (node,) = exact
    if any(keyword.arg is None for keyword in node.keywords):
        return None  # **options: they may have the same arguments
    data = source.encode()
    lines = data.splitlines(keepends=True)

    def end_of(part: ast.expr) -> int:
        return sum(map(len, lines[: (part.end_lineno or 1) - 1])) + (part.end_col_offset or 0)

    edits: list[tuple[int, int, str]] = []  # begin, end, and what is there afterwards

    def put(part: ast.expr, value: Any) -> ast.expr:
        begin = sum(map(len, lines[: part.lineno - 1])) + part.col_offset
        edits.append((begin, end_of(part), repr(value)))
        return ast.Constant(value)

    new = dict(values)
    if call.kind == THREADS:
        if len(node.args) != 1:
            return None
        node.args = [put(node.args[0], new.popitem()[1])]
    for keyword in node.keywords:
        if keyword.arg in new:
            keyword.value = put(keyword.value, new.pop(keyword.arg))
    if new.keys() & call.arguments.keys():
        return None  # given by position
    if new:
        ends = [end_of(part) for part in (*node.args, *(k.value for k in node.keywords))
                if hasattr(part, "end_lineno")]  # fmt: skip
        ends += [end for _, end, _ in edits]
        end, text = max(ends, default=0), f", {arguments(new)}"
        if not ends:
            end, text = end_of(node) - 1, text[2:]
        edits.append((end, end, text))
        node.keywords += [ast.keyword(name, ast.Constant(value)) for name, value in new.items()]
    for begin, end, text in sorted(edits, reverse=True):
        data = data[:begin] + text.encode() + data[end:]
    edited = data.decode()
    # Brackets around the last argument are no part of it.
    return edited if _means(edited) == ast.dump(tree) else None


def _means(source: str) -> str:
    try:
        return ast.dump(ast.parse(source))
    except SyntaxError:
        return ""


def _is(node: ast.Call, call: Call) -> bool:
    name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
    inside = node.lineno <= call.line <= (node.end_lineno or node.lineno)
    return inside and name in (call.kind, "__init__")  # a class of the program calls its base
