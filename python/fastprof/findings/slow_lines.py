"""Finds the line of a function that takes most of its time.

Samples say it if the function had enough of them, and if what is examined is nearly all of its
time: a sample does not say which part of it.  Otherwise the callees of a function are known, and
the source shows where the function calls them.  A line is named only if the source is unambiguous:
the function calls that name there and nowhere else.
"""

import ast
import inspect
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fastprof.findings.hot_functions import Hot
from fastprof.report.lines import FunctionLines
from fastprof.snapshot import Key

_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Code inside of these runs in a call of another function.
_APART = (*_DEFINITIONS, ast.Lambda, ast.ClassDef)
#: Part of a function's time from which on its samples say where that part is.
_NEARLY_ALL = 0.8
#: So many sampled lines are named, each with at least this part of the time.
_MOST_SHOWN, _SHOWN = 3, 0.1
#: Longer functions are skipped.
_MOST_LINES = 2000


@dataclass(frozen=True, slots=True)
class SlowLine:
    """A line's number, its text, and the part of the function's time (of 1) in its calls.

    ``alone``: the function has no other line.  ``samples`` of the function say so; 0: its source.
    ``others`` are further lines with much of its time.
    """

    number: int
    text: str
    share: float
    alone: bool = False
    samples: int = 0
    others: tuple["SlowLine", ...] = ()


def slow_line(
    hot: Hot, lines: Sequence[str], sampled: FunctionLines | None = None
) -> SlowLine | None:
    """Return the line of a function with most of its time; None: unknown."""
    function = function_of(lines, hot.key)
    if function is None:
        return None
    first = 1 if isinstance(function, ast.Module) else hot.key.line
    body = [node for node in function.body if not _is_docstring(node)]
    if len(body) == 1 and isinstance(body[0], (ast.Return, ast.Assign, ast.Expr)):
        only = body[0]
        if only.lineno == only.end_lineno:
            return _line(lines, first + only.lineno - 1, 1.0, alone=True)
    if sampled is not None and hot.whole >= _NEARLY_ALL:
        return _sampled_line(lines, sampled)
    places, elsewhere = _calls(function)
    shares: dict[int, float] = {}
    unplaced = 0.0
    for key, share in hot.parts:
        if key is None:  # the function's own code, which may all be in one line
            unplaced = max(unplaced, share)
            continue
        name = (key.qualname or key.name).rpartition(".")[2]
        if key.name in _COMPREHENSIONS:
            number = key.line if key.file == hot.key.file else 0
        elif name.startswith("__") or name == "forward":  # is called without a visible call
            number = 0
        else:
            at = places.get(name, set())
            number = first + min(at) - 1 if len(at) == 1 and name not in elsewhere else 0
        if number:
            shares[number] = shares.get(number, 0.0) + share
        else:
            unplaced = max(unplaced, share)
    if not shares:
        return None
    number = max(shares, key=lambda n: shares[n])
    # More time at an unknown place may make another line the slowest.
    return _line(lines, number, shares[number]) if shares[number] >= unplaced else None


def _sampled_line(lines: Sequence[str], sampled: FunctionLines) -> SlowLine | None:
    found = [
        line
        for at in sampled.lines[:_MOST_SHOWN]
        if at.share >= _SHOWN and (line := _line(lines, at.number, at.share)) is not None
    ]
    if not found:
        return None
    return replace(found[0], samples=sampled.samples, others=tuple(found[1:]))


def _line(
    lines: Sequence[str], number: int, share: float, *, alone: bool = False
) -> SlowLine | None:
    if not 0 < number <= len(lines):
        return None
    return SlowLine(number, lines[number - 1].strip(), share, alone)


def function_of(
    lines: Sequence[str], key: Key
) -> ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the syntax tree of a function, numbered from its first line; None: not found.

    The code outside of functions belongs to the file.
    """
    if not 0 < key.line <= len(lines):
        return None
    if key.name == "<module>":
        return _parsed(lines) if len(lines) <= _MOST_LINES else None
    module = _parsed(_block(lines[key.line - 1 : key.line - 1 + _MOST_LINES]))
    found = module.body[0] if module is not None and module.body else None
    return found if isinstance(found, _DEFINITIONS) and found.name == key.name else None


def _parsed(lines: Sequence[str]) -> ast.Module | None:
    try:
        return ast.parse(textwrap.dedent("".join(lines)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _block(lines: Sequence[str]) -> Sequence[str]:
    try:
        return inspect.getblock(lines)
    except (SyntaxError, tokenize.TokenError, IndexError):
        return []


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _calls(function: ast.AST) -> tuple[dict[str, set[int]], set[str]]:
    """Return name -> lines of its calls, and the names that are also used otherwise."""
    places: dict[str, set[int]] = {}
    called: set[ast.AST] = set()
    names: list[tuple[ast.AST, str]] = []
    for node in _walk(function):
        if isinstance(node, ast.Call):
            name = called_name(node.func)
            if name:
                places.setdefault(name, set()).add(node.lineno)
                called.add(node.func)
        name = called_name(node)
        if name:
            names.append((node, name))
    return places, {name for node, name in names if node not in called}


def _walk(function: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of a function except those of nested functions."""
    todo = [function]
    while todo:
        for child in ast.iter_child_nodes(todo.pop()):
            yield child
            if not isinstance(child, _APART):
                todo.append(child)


def called_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else (
        node.attr if isinstance(node, ast.Attribute) else ""
    )  # fmt: skip
