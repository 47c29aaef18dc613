"""A model of cProfile in plain dicts, and the tree that a recorder creates from the same events.

The model follows the Python manual and cProfile's behaviour, not fastprof: one activation record
per call, a recursion level per function and per pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unit.snapshots import Builder, Node, c, py, section, type_

#: (what, number, ns before it happens); what: call, resume, section, type or leave
Event = tuple[str, int, int]


def function_key(number: int):
    # Odd numbers are C functions.  Numbers 4 apart have the same label.
    number %= 4
    return c(f"f{number}") if number % 2 else py(f"f{number}", line=number + 1)


def label(number: int) -> tuple[str, int, str]:
    key = function_key(number)
    return (key.file, key.line, key.name)


@dataclass
class _Activation:
    function: tuple[str, int, str] | None  # None: cProfile does not see it
    start: int
    inner: int = 0


class CProfileModel:
    """Takes events; ``stats`` is cProfile's table, in ns."""

    def __init__(self) -> None:
        self.now = 0
        self.rows: dict = {}
        self.level: dict = {}
        self._stack: list[_Activation] = []

    def event(self, what: str, number: int, wait: int) -> None:
        self.now += wait
        if what == "leave":
            if self._stack:
                self._leave()
        elif what in ("call", "resume"):
            self._enter(label(number))
        else:
            self._stack.append(_Activation(None, self.now))

    def finish(self) -> dict:
        while self._stack:
            self._leave()
        stats: dict = {}
        for function, (cc, nc, tt, ct) in self.rows.items():
            if len(function) == 3:
                stats[function] = (cc, nc, tt, ct, {})
        for pair, (cc, nc, tt, ct) in self.rows.items():
            if len(pair) == 2:
                caller, callee = pair
                stats[callee][4][caller] = (nc, cc, tt, ct)
        return stats

    def _visible(self) -> list[_Activation]:
        return [a for a in self._stack if a.function is not None]

    def _enter(self, function) -> None:
        above = self._visible()
        names = [function, *([(above[-1].function, function)] if above else [])]
        for name in names:
            self.level[name] = self.level.get(name, 0) + 1
        self._stack.append(_Activation(function, self.now))

    def _leave(self) -> None:
        ended = self._stack.pop()
        if ended.function is None:
            return
        took = self.now - ended.start
        own = took - ended.inner
        above = self._visible()
        names = [ended.function]
        if above:
            above[-1].inner += took
            names.append((above[-1].function, ended.function))
        for name in names:
            cc, nc, tt, ct = self.rows.get(name, (0, 0, 0, 0))
            self.level[name] -= 1
            if self.level[name] == 0:
                cc, ct = cc + 1, ct + took
            self.rows[name] = (cc, nc + 1, tt + own, ct)


def replay(threads: Sequence[Sequence[Event]]):
    """Return (the model's stats, a snapshot of the same events); one model per thread."""
    builder = Builder()
    stats: dict = {}
    for ident, events in enumerate(threads, 1):
        model = CProfileModel()
        root = Node(py("unused"))
        root.children = []
        path = [root]
        for what, number, wait in events:
            model.event(what, number, wait)
            path[-1].self_ns += wait
            if what == "leave":
                if len(path) > 1:
                    path.pop()
                continue
            key = {
                "call": function_key,
                "resume": function_key,
                "section": lambda n: section(f"s{n}"),
                "type": lambda n: type_(f"t{n}"),
            }[what](number)
            node = next((x for x in path[-1].children if x.key == key), None)
            if node is None:
                node = Node(key, calls=0)
                node.children = []
                path[-1].children.append(node)
            node.calls += what != "resume"
            node.resumes += what == "resume"
            path.append(node)
        builder.thread(*root.children, root_ns=root.self_ns, ident=ident)
        _add(stats, model.finish())
    return stats, builder.snapshot()


def _add(total: dict, stats: dict) -> None:
    for function, row in stats.items():
        cc, nc, tt, ct, callers = total.get(function, (0, 0, 0, 0, {}))
        for caller, edge in row[4].items():
            callers[caller] = tuple(
                a + b for a, b in zip(callers.get(caller, (0,) * 4), edge, strict=True)
            )
        total[function] = (cc + row[0], nc + row[1], tt + row[2], ct + row[3], callers)
