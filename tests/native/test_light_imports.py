"""Imports of libraries in set-up run without the hook: modules and the program's functions
remain."""

from __future__ import annotations

import importlib
import random
import sys
import traceback
from collections import Counter
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from fastprof._core import Recorder
from fastprof.capture.convert import take_snapshot
from fastprof.report.origin import import_class
from fastprof.session.patching.imports import LightImports
from fastprof.snapshot import Snapshot

STEPS, SETUP = 0, 1
#: From 3.12 on the hook cannot be removed from one thread.
POSSIBLE = sys.version_info < (3, 12)
possible = pytest.mark.skipif(not POSSIBLE, reason="the hook cannot be out in one thread")

#: The first line of modules: imports this file as ``t``.
SELF = "import test_light_imports as t\n"
BODY = """
def leaf(n):
    return abs(n)

leaf(1)
"""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[bool, Path]:
    """Return folders for modules of libraries (True) and of the program, with names light_*."""
    installed = tmp_path / "lib" / "python3" / "site-packages"
    installed.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "test_light_imports", sys.modules[__name__])
    yield {True: installed, False: tmp_path}
    forget()
    assert "exec_module" not in vars(SourceFileLoader)


def forget() -> None:
    for name in [name for name in sys.modules if name.startswith("light_")]:
        del sys.modules[name]
    importlib.invalidate_caches()


class Run:
    """A recording of set-up; modules may use ``recorder``."""

    recorder: Recorder

    def __init__(self, light: bool = True) -> None:
        self.light = light

    def __enter__(self) -> Recorder:
        forget()
        Run.recorder = recorder = Recorder(backend="setprofile", skip_steps=0)
        recorder.set_phase(SETUP)
        recorder.start_sections()
        self.part = LightImports(recorder)
        if self.light:
            self.part.install()
        recorder.enable()
        return recorder

    def __exit__(self, *_: object) -> None:
        self.part.end()
        self.recorder.disable()
        self.recorder.stop_sections()


def folded(recorder: Recorder) -> Snapshot:
    return take_snapshot(recorder, fold_imports=import_class)


def rows(snapshot: Snapshot, phase: int = SETUP) -> Counter[tuple[str, ...]]:
    """Return calls by path, of functions that the program knows by name."""
    nodes = snapshot.threads[0].nodes
    paths: list[tuple[str, ...]] = [()]
    found: Counter[tuple[str, ...]] = Counter()
    for i in range(1, len(nodes)):
        key = snapshot.keys[nodes.key[i]]
        name = Path(key.file).stem if key.name == "<module>" else key.name
        paths.append((*paths[nodes.parent[i]], name))
        if nodes.phase[i] == phase:
            found[paths[i]] += nodes.calls[i] + nodes.resumes[i]
    wanted = ("light_", "work", "leaf", "<built-in method builtins.abs>")
    return Counter({where: n for where, n in found.items() if n and where[-1].startswith(wanted)})


def short(found: Counter[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """The same without the import system's functions."""
    merged: Counter[tuple[str, ...]] = Counter()
    for where, calls in found.items():
        known = ("light_", "work", "leaf", "<built-in method builtins.abs>")
        merged[tuple(part for part in where if part.startswith(known))] += calls
    return merged


def work(name: str) -> None:
    importlib.import_module(name)
    abs(-1)


def test_what_a_library_calls_is_not_recorded_and_its_module_is(folders) -> None:
    (folders[True] / "light_0.py").write_text("import light_1\n" + BODY)
    (folders[True] / "light_1.py").write_text(BODY)
    with Run() as recorder:
        work("light_0")
    found = short(rows(folded(recorder)))
    assert found[("work", "light_0")] == 1
    assert found[("work", "light_0", "light_1")] == 1
    assert found[("work", "<built-in method builtins.abs>")] == 1
    names = {key[4] for key in recorder.export()["keys"]}
    assert ("leaf" in names) is not POSSIBLE
    assert sys.getprofile() is None


@possible
def test_the_imports_time_is_the_modules(folders) -> None:
    (folders[True] / "light_0.py").write_text("import time\ntime.sleep(0.05)\n")
    with Run() as recorder:
        work("light_0")
    snapshot = folded(recorder)
    nodes = snapshot.threads[0].nodes
    names = [Path(snapshot.keys[key].file).stem for key in nodes.key]
    assert nodes.self_ns[names.index("light_0")] >= 50_000_000


@pytest.mark.parametrize("seed", range(25))
def test_bodies_and_the_programs_calls_are_those_of_a_full_recording(folders, seed: int) -> None:
    generator = random.Random(seed)
    libraries = {n for n in range(10) if generator.random() < 0.6}
    for number in range(10):  # libraries import libraries
        lines = ["def leaf(n):\n    return abs(n)" if number in libraries else BODY]
        others = [n for n in range(number + 1, 10) if number not in libraries or n in libraries]
        for other in generator.sample(others, min(len(others), generator.randrange(4))):
            lines += ["try:", f"    import light_{other}", "except ImportError:", "    leaf(2)"]
        if generator.random() < 0.2:
            lines.append("raise ImportError('on purpose')")
        if number in libraries:
            lines = [line.replace("    leaf(2)", "    pass") for line in lines]
        (folders[number in libraries] / f"light_{number}.py").write_text("\n".join(lines))
    found = []
    for light in (False, True):
        with Run(light) as recorder:
            for name in ("light_0", "light_1", "light_5"):
                try:
                    work(name)
                except ImportError:
                    abs(-2)
        found.append(short(rows(folded(recorder))))
    assert found[0] == found[1]
    assert any("light_0" in where for where in found[1])


@possible
def test_a_module_of_the_program_that_a_library_imports_is_recorded(folders) -> None:
    (folders[True] / "light_0.py").write_text("import light_1\nlight_1.leaf(5)\n")
    (folders[False] / "light_1.py").write_text(BODY)
    with Run() as recorder:
        work("light_0")
    found = short(rows(folded(recorder)))
    assert found[("work", "light_0", "light_1", "leaf")] == 1
    assert found[("work", "light_0", "leaf")] == 1
    assert found[("work",)] == 1
    assert found[("work", "<built-in method builtins.abs>")] == 1


TRAINS = SELF + BODY + "t.Run.recorder.set_phase(t.STEPS)\nfor i in range(3): leaf(i)\n"


@pytest.mark.parametrize("where", ["library", "program"])
def test_a_module_that_trains_is_recorded(folders, where: str) -> None:
    (folders[True] / "light_0.py").write_text("import light_1\ndef leaf(n): pass\nleaf(5)\n")
    (folders[where == "library"] / "light_1.py").write_text(TRAINS)
    with Run() as recorder:
        work("light_0")
    found = short(rows(take_snapshot(recorder), STEPS))
    assert found[("work", "light_0", "light_1", "leaf")] == 3
    assert found[("work", "light_0", "leaf")] == 1
    assert found[("work", "<built-in method builtins.abs>")] == 1


@pytest.mark.parametrize("how", ["", "unhook=True"])
def test_a_pause_in_an_import_ends_as_any_pause(folders, how: str) -> None:
    pause = f"t.Run.recorder.pause_functions({how})\nt.Run.recorder.rehook()\n"
    (folders[True] / "light_0.py").write_text(
        SELF + pause + "t.Run.recorder.resume_functions()\nabs(-3)\n"
    )
    with Run() as recorder:
        work("light_0")
        work("light_0")
    found = short(rows(folded(recorder)))
    assert found[("work",)] == 2
    assert found[("work", "<built-in method builtins.abs>")] == 2
    assert recorder.export()["counters"]["displaced"] == 0
    assert sys.getprofile() is None


@possible
def test_a_pause_that_outlasts_the_import_ends_as_any_pause(folders) -> None:
    (folders[True] / "light_0.py").write_text(SELF + "t.Run.recorder.pause_functions()\n")
    with Run() as recorder:
        work("light_0")
        recorder.resume_functions()
        work("light_0")
    found = short(rows(folded(recorder)))
    assert found[("work",)] == 2
    assert found[("work", "<built-in method builtins.abs>")] == 1


@possible
def test_another_profiler_that_a_library_sets_stays(folders) -> None:
    (folders[True] / "light_0.py").write_text(
        "import sys\nsys.setprofile(lambda *event: None)\nmine = sys.getprofile()\n"
    )
    with Run() as recorder:
        work("light_0")
        assert sys.getprofile() is sys.modules["light_0"].mine
        sys.setprofile(None)
    assert recorder.export()["counters"]["displaced"] == 1


@possible
def test_a_recording_that_ends_in_an_import_leaves_nothing_behind(folders) -> None:
    (folders[True] / "light_0.py").write_text(SELF + "t.Run.recorder.disable()\nimport light_1\n")
    (folders[True] / "light_1.py").write_text(BODY)
    with Run() as recorder:
        work("light_0")
        assert sys.getprofile() is None
    assert recorder.export()["counters"]["displaced"] == 0


@possible
def test_imports_outside_of_set_up_are_recorded_in_full(folders) -> None:
    (folders[True] / "light_0.py").write_text(BODY)
    with Run() as recorder:
        recorder.set_phase(STEPS)
        work("light_0")
    assert "leaf" in {key[4] for key in recorder.export()["keys"]}


def test_an_error_shows_no_frame_of_ours(folders) -> None:
    (folders[True] / "light_0.py").write_text("import light_1\n")
    (folders[True] / "light_1.py").write_text("1 / 0\n")
    shown = []
    for light in (False, True):
        with Run(light):
            try:
                import light_0  # noqa: F401
            except ZeroDivisionError as error:
                shown.append([f.name for f in traceback.extract_tb(error.__traceback__)])
    assert shown[0] == shown[1]
    assert len(shown[0]) == 3


def test_a_loader_without_a_path_is_as_it_was(folders) -> None:
    class Odd(SourceFileLoader):
        def __init__(self) -> None:
            pass

        def get_code(self, name: str) -> object:
            return compile("answer = 42", name, "exec")

    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("light_9", None))
    with Run():
        Odd().exec_module(module)
    assert module.answer == 42
