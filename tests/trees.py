"""Records a function and reads its calling-context tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from fastprof.capture import Recorder
from fastprof.capture.convert import take_snapshot
from fastprof.snapshot import Snapshot

#: The call that the recording itself adds: its end.
OWN = "fastprof._core.Recorder.disable"


def record(run: Callable[[], object], backend: str, **options: Any) -> Snapshot:
    """Record `run()`; ignore its exception."""
    recorder = Recorder(backend=backend, **options)
    recorder.enable()
    try:
        run()
    except BaseException:
        pass
    finally:
        recorder.disable()
    return take_snapshot(recorder)


def paths(snapshot: Snapshot) -> Counter[tuple[tuple[str, ...], str]]:
    """Return calls and resumes by path of names from the root, all threads together.

    The paths omit constructors and callable objects, which only one backend sees.  Names are
    cProfile's, which both backends know on every version.
    """
    found: Counter[tuple[tuple[str, ...], str]] = Counter()
    for thread in snapshot.threads:
        nodes = thread.nodes
        path: list[tuple[str, ...]] = []
        for i in range(len(nodes)):
            key = snapshot.keys[nodes.key[i]]
            above = path[nodes.parent[i]] if i else ()
            if i == 0 or key.kind == "type":
                path.append(above)
                continue
            path.append((*above, key.name))
            if key.qualname != OWN:
                found[path[-1], "calls"] += nodes.calls[i]
                found[path[-1], "resumes"] += nodes.resumes[i]
    return +found


def counts(snapshot: Snapshot, name: str) -> tuple[int, int]:
    """Return (calls, resumes) of every function labelled `name`."""
    calls = resumes = 0
    for thread in snapshot.threads:
        for i, k in enumerate(thread.nodes.key):
            if snapshot.keys[k].name == name:
                calls += thread.nodes.calls[i]
                resumes += thread.nodes.resumes[i]
    return calls, resumes
