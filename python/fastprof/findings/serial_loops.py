"""Whether a loop of the source needs the result of its last pass, as a recurrent network does."""

import ast
from collections.abc import Iterator, Sequence

from fastprof.findings.slow_lines import called_name, function_of
from fastprof.snapshot import Key

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def is_serial(lines: Sequence[str], key: Key, operation: Key) -> bool | None:
    """Return whether a function's loop around a call of ``operation`` is serial; None: unknown."""
    function = function_of(lines, key)
    if function is None:
        return None
    name = (operation.qualname or operation.name).rpartition(".")[2]
    around = [
        node
        for node in ast.walk(function)
        if isinstance(node, (*_LOOPS, *_COMPREHENSIONS))
        and any(isinstance(n, ast.Call) and called_name(n.func) == name for n in ast.walk(node))
    ]
    # The loop around the training needs its last pass, whatever is in it.
    inner = [
        node
        for node in around
        if not any(other is not node and other in around for other in ast.walk(node))
    ]
    if not inner:
        return None
    return any(isinstance(node, _LOOPS) and _carries(node) for node in inner)


def filling_line(lines: Sequence[str], key: Key) -> int | None:
    """Return the line where a loop of a function assigns to items, if no pass needs the last one.

    None: there is none, or it is unknown.  Items of lists and dicts are no pieces of a tensor.
    """
    function = function_of(lines, key)
    if function is None:
        return None
    others = {
        ast.unparse(target)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and _is_collection(node.value)
        for target in node.targets
    }
    for loop in ast.walk(function):
        if not isinstance(loop, ast.For) or _carries(loop):
            continue
        for node in ast.walk(loop):
            if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Store):
                continue
            if not _is_text(node.slice) and ast.unparse(node.value) not in others:
                return max(1, key.line) + node.lineno - 1
    return None


def _is_collection(node: ast.expr) -> bool:
    """Return whether an expression makes a list or a dict."""
    if isinstance(node, ast.BinOp):  # [None] * n
        return _is_collection(node.left) or _is_collection(node.right)
    if isinstance(node, ast.Call):
        return called_name(node.func) in ("dict", "list", "defaultdict", "OrderedDict")
    return isinstance(node, (ast.Dict, ast.DictComp, ast.List, ast.ListComp))


def _is_text(node: ast.expr) -> bool:
    """Return whether an index is a text, which no tensor takes."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _carries(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Return whether a pass reads what an earlier one has written."""
    nodes = [node for statement in loop.body for node in ast.walk(statement)]
    loaded = [text for node in nodes for text in _loads(node)]
    items = {
        ast.unparse(node.value)
        for node in nodes
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
    }
    for node in nodes:
        # Adding up is no reason for a loop, unless the sum is read within.
        if isinstance(node, ast.AugAssign) and ast.unparse(node.target) in loaded:
            return True
        filled = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            filled = node.value
        elif isinstance(node, ast.Attribute) and node.attr == "append":
            filled = node.value  # result.append(f(result[-1]))
        if filled is not None and ast.unparse(filled) in items:
            return True
    written = {text for node in nodes for text in _stores(node)}
    if isinstance(loop, ast.While) and written & {
        text for node in ast.walk(loop.test) for text in _loads(node)
    }:
        return True
    return _reads_first(loop.body, written, set())


def _reads_first(body: Sequence[ast.stmt], written: set[str], known: set[str]) -> bool:
    """Return whether a name of ``written`` is read before this pass has written it."""
    for statement in body:
        inner = [part for part in _bodies(statement) if part]
        heads = _heads(statement) if inner else [statement]
        for head in heads:
            for node in ast.walk(head):
                if any(text in written - known for text in _loads(node)):
                    return True
            known |= {text for node in ast.walk(head) for text in _stores(node)}
        if any(_reads_first(part, written, known) for part in inner):
            return True
    return False


def _bodies(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])


def _heads(statement: ast.stmt) -> list[ast.AST]:
    """Return what a compound statement computes before its body."""
    return [
        node
        for node in ast.iter_child_nodes(statement)
        if isinstance(node, (ast.expr, ast.withitem))
    ]


def _loads(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
        yield ast.unparse(node)


def _stores(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        yield ast.unparse(node)
