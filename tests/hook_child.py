"""Children that use a hook in ways that may crash or hang; see the reliability tests."""

from __future__ import annotations

import os
from pathlib import Path

import fastprof
from helpers import ChildResult, run_child

ENV = {
    "PYTHONPATH": os.pathsep.join(
        filter(None, [str(Path(fastprof.__file__).parent.parent), os.environ.get("PYTHONPATH")])
    )
}

PRELUDE = """
import gc, itertools, sys, threading, time
import fastprof
BACKEND = sys.argv[1]
MONITORING = BACKEND == "monitoring"

def new(*args, **kwargs):
    return fastprof.Profile(*args, backend=BACKEND, **kwargs)

def f():
    return None

def calls(n):
    for _ in range(n):
        f()

def rows(prof):
    "Calls by name, as C counted them: the modules that make tables take most of a child's time."
    prof.disable()
    data = prof.export()
    table = {}
    for *_, (_, keys, calls, _, self_ns, *_) in data["threads"]:
        for key, n, ns in zip(keys, calls, self_ns):
            name = data["keys"][key][3]
            assert n >= 0 and ns >= 0, (name, n, ns)
            if n:
                table[name] = table.get(name, 0) + n
    return table

def exact(n=100):
    "A recording from the beginning is exact: nothing of what went before is left."
    prof = new()
    prof.enable()
    calls(n)
    prof.disable()
    assert rows(prof)["f"] == n, rows(prof)
    assert sys.getprofile() is None
    if hasattr(sys, "monitoring"):
        assert not any(sys.monitoring.get_tool(i) for i in range(6))
"""


def child(code: str, backend: str, *, timeout: float = 60.0) -> ChildResult:
    return run_child(PRELUDE + code, backend, env=ENV, timeout=timeout)


def ok(code: str, backend: str, *, timeout: float = 60.0) -> ChildResult:
    return child(code + "\nexact()\n", backend, timeout=timeout).check()
