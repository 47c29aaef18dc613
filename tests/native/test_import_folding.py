"""Imports of set-up in little memory: calls of libraries are counted per module, without loss."""

from __future__ import annotations

import importlib
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
from fastprof._core import Recorder, profile_section
from fastprof.capture.convert import take_snapshot
from fastprof.report.origin import begins_import, import_class, is_users
from fastprof.results.report import build_report
from fastprof.snapshot import Key, Snapshot
from fastprof.snapshot.run_phases import RUN_PHASES

STEPS, SETUP = 0, 1
TOGETHER = {
    "python": "(functions during imports)",
    "c": "<built-in functions during imports>",
    "method": "<method calls during imports>",
}

#: Modules: a library that calls and imports, and a module of the program that a library imports.
LIBRARY = """
import folding_fields
from fastprof import profile_section

def deep(n):
    return abs(n) if n == 0 else deep(n - 1)

class Table:
    rows = [deep(i) for i in range(4)]
    text = "a b".split()

with profile_section("inside_import"):
    deep(2)
folding_fields.load(3)
import folding_second
"""
FIELDS = """
def load(n):
    return [str(i) for i in range(n)]

load(5)
"""
SECOND = "import folding_fields\nfolding_fields.load(2)\nsorted([3, 1, 2])\n"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create modules that no test has imported yet; ``folding_fields`` is the program's."""
    installed = tmp_path / "lib" / "python3" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "folding_first.py").write_text(LIBRARY)
    (installed / "folding_second.py").write_text(SECOND)
    (tmp_path / "folding_fields.py").write_text(FIELDS)
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("folding_")]:
        del sys.modules[name]


def import_it() -> None:
    import folding_first  # noqa: F401


def both(backend: str, phase: int = SETUP) -> tuple[Snapshot, Snapshot]:
    """Return the same recording in full, and with imports folded."""
    recorder = Recorder(backend=backend)
    recorder.set_phase(phase)
    recorder.start_sections()
    recorder.enable()
    import_it()
    recorder.disable()
    recorder.stop_sections()
    return take_snapshot(recorder), take_snapshot(recorder, fold_imports=import_class)


def path(snapshot: Snapshot, node: int) -> tuple[str, ...]:
    nodes, names = snapshot.threads[0].nodes, []
    while node > 0:
        key = snapshot.keys[nodes.key[node]]
        names.append(Path(key.file).stem if key.name == "<module>" else key.name)
        node = nodes.parent[node]
    return tuple(reversed(names))


def folded_by_hand(snapshot: Snapshot) -> Counter[tuple[str, ...]]:
    """Fold a full recording independently: (calls + resumes, own ns) by path."""
    nodes = snapshot.threads[0].nodes
    found: Counter[tuple[str, ...]] = Counter()
    above: list[tuple[tuple[str, ...], bool]] = [((), False)]
    for i in range(1, len(nodes)):
        names, importing = above[nodes.parent[i]]
        key = snapshot.keys[nodes.key[i]]
        apart = key.kind in ("section", "truncated") or is_users(key)
        starts = key.kind == "python" and begins_import(key.file, key.name)
        module = key.kind == "python" and key.name == "<module>"
        if importing and not apart and not module:
            kind = "method" if key.name.startswith("<method ") else key.kind
            here = (*names, TOGETHER.get(kind, kind))
            above.append((names, True))
        else:
            here = (*names, path(snapshot, i)[-1])
            above.append((here, starts or (importing and module and not apart)))
        for what, value in (
            ("calls", nodes.calls[i]),
            ("resumes", nodes.resumes[i]),
            ("ns", nodes.self_ns[i]),
        ):
            found[(*here, what)] += value
    return +found


def by_path(snapshot: Snapshot) -> Counter[tuple[str, ...]]:
    nodes = snapshot.threads[0].nodes
    found: Counter[tuple[str, ...]] = Counter()
    kinds = {"<class": "type", "<calla": "type"}
    for i in range(1, len(nodes)):
        *names, last = path(snapshot, i)
        if last.endswith("called during imports>"):
            last = kinds[last[:6]]
        for what, value in (
            ("calls", nodes.calls[i]),
            ("resumes", nodes.resumes[i]),
            ("ns", nodes.self_ns[i]),
        ):
            found[(*names, last, what)] += value
    return +found


def counts(found: Counter[tuple[str, ...]]) -> dict[tuple[str, ...], int]:
    return {where: n for where, n in found.items() if where[-1] != "ns"}


def test_each_call_is_counted_where_the_rule_says(backend: str, packages: Path) -> None:
    full, folded = both(backend)
    expected, found = folded_by_hand(full), by_path(folded)
    assert counts(found) == counts(expected)
    # Ticks are rounded to ns row by row.
    rows = len(full.threads[0].nodes)
    assert all(abs(found[where] - ns) <= rows for where, ns in expected.items())
    assert len(folded.threads[0].nodes) < rows


def test_the_programs_functions_and_modules_keep_their_callers(
    backend: str, packages: Path
) -> None:
    _full, folded = both(backend)
    paths = {path(folded, i) for i in range(len(folded.threads[0].nodes))}
    inside = next(p for p in paths if p and p[-1] == "folding_first")
    assert inside[-2:] == ("_find_and_load", "folding_first")
    assert (*inside, "folding_second") in paths
    assert (*inside, "load") in paths
    assert (*inside, "folding_second", "load") in paths
    assert (*inside, "inside_import") in paths
    # The content of a section stays whole; the class body called the same function.
    assert {p[p.index("deep") - 1] for p in paths if "deep" in p} == {"inside_import"}


def test_what_the_hook_cost_and_the_time_of_imports_stay(backend: str, packages: Path) -> None:
    full, folded = (build_report(snapshot, phase="all") for snapshot in both(backend))
    assert folded.wall_ms == full.wall_ms
    total = sum(full.snapshot.threads[0].nodes.self_ns)
    assert sum(folded.snapshot.threads[0].nodes.self_ns) == pytest.approx(total, abs=5000)
    # A folded row loses the form of its calls, and which of them created a generator; some cost
    # less or more.
    assert folded.overhead.functions_ms == pytest.approx(full.overhead.functions_ms, rel=0.25)
    raw = [build_report(r.snapshot, phase="all", correct_times=False) for r in (full, folded)]
    wall = [next(p.wall_ms for p in r.phases if p.name == "imports") for r in raw]
    assert wall[1] == pytest.approx(wall[0], abs=0.01)
    assert [n for n in folded.notes if "while it was imported" in n]
    assert not [n for n in full.notes if "while it was imported" in n]


def test_imports_in_steps_stay_as_they_are(backend: str, packages: Path) -> None:
    full, folded = both(backend, STEPS)
    assert folded.threads == full.threads
    assert folded.keys == full.keys


@pytest.mark.parametrize("seed", range(5))
def test_places_of_other_records_are_found_in_the_smaller_tree(
    backend: str, packages: Path, seed: int
) -> None:
    # The slowest steps refer to nodes by number: the rows of both exports must name the same
    # places.
    generator = random.Random(seed)

    def leaf(n: int) -> int:
        return sum(range(n))

    def step(n: int) -> None:
        with profile_section("work"):
            for _ in range(generator.randrange(1, 5)):
                leaf(n)

    recorder = Recorder(backend=backend, skip_steps=2, outliers=3)
    recorder.set_phase(SETUP)
    recorder.start_sections()
    recorder.enable()
    import_it()
    recorder.mark()
    recorder.set_phase(STEPS)
    for i in range(60):
        step(20_000 if i in (20, 40) else 50)
        recorder.step()
    recorder.disable()
    recorder.stop_sections()
    full = take_snapshot(recorder)
    folded = take_snapshot(recorder, fold_imports=import_class)
    assert full.outliers is not None
    assert folded.outliers is not None
    kept = [
        [
            (path(s, row.node), row.self_ns, row.calls)
            for step in s.outliers.kept
            for row in step.rows
        ]
        for s in (full, folded)
    ]
    assert [(where, calls) for where, _, calls in kept[0]] == [
        (where, calls) for where, _, calls in kept[1]
    ]
    # At the second export the clock's scale is slightly more exact.
    ns = [[ns for _, ns, _ in rows] for rows in kept]
    assert ns[0] == pytest.approx(ns[1], rel=1e-3, abs=2)
    assert kept[0]
    phases = [[(p.name, p.entries) for p in s.phases] for s in (full, folded)]
    assert phases[0] == phases[1]
    wall_ns = [[p.wall_ns for p in s.phases] for s in (full, folded)]
    assert wall_ns[0] == pytest.approx(wall_ns[1], rel=1e-3, abs=2)
    assert {p.name for p in folded.phases} >= {RUN_PHASES[SETUP], RUN_PHASES[STEPS]}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda _f, _n: 4, "invalid class of code objects: 4"),
        (lambda _f, _n: -1, "invalid class of code objects: -1"),
    ],
)
def test_an_invalid_answer_is_refused(packages: Path, answer, error: str) -> None:
    recorder = Recorder()
    recorder.set_phase(SETUP)
    recorder.enable()
    import_it()
    recorder.disable()
    with pytest.raises(ValueError, match=error):
        recorder.export(fold_imports=answer)
    with pytest.raises(ZeroDivisionError):
        recorder.export(fold_imports=lambda _f, _n: 1 // 0)
    assert recorder.export()["folded"] == 0


def test_code_is_distinguished_by_file_and_name() -> None:
    frozen = "<frozen importlib._bootstrap>"
    assert import_class(frozen, "_find_and_load") == 3
    assert import_class(frozen, "_handle_fromlist") == 1
    assert import_class("/venv/lib/python3.11/site-packages/x/__init__.py", "<module>") == 2
    assert import_class("/venv/lib/python3.11/json/decoder.py", "decode") == 1
    assert import_class("<string>", "__init__") == 1
    assert import_class("/home/me/train.py", "<module>") == 0
    assert not is_users(Key("python", frozen, 0, *[TOGETHER["python"]] * 2))
