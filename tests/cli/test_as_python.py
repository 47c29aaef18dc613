"""The commands run a program as ``python`` runs it: each test compares with Python itself."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof.cli.launch import _RANK
from helpers import ChildResult, run_command

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)
ENV = {"PYTHONPATH": os.pathsep.join(filter(None, [SOURCE_PATH, os.environ.get("PYTHONPATH")]))}

#: Commands that run a program; the program and its arguments follow.
COMMANDS = {
    "-m fastprof": ("-m", "fastprof", "-o", "out.stats"),
    "run": ("-m", "fastprof", "run", "-o", "out"),
    "run --functions": ("-m", "fastprof", "run", "--functions", "-o", "out"),
}


@pytest.fixture(params=COMMANDS)
def command(request: Any) -> Sequence[str]:
    return COMMANDS[request.param]


def python(*args: object, cwd: Path, **options: Any) -> ChildResult:
    env = {**ENV, **options.pop("env", {})}
    return run_command([sys.executable, *map(str, args)], cwd=cwd, env=env, **options)


def of_program(output: str) -> list[str]:
    """Return the lines that a program of these tests printed."""
    return [line for line in output.splitlines() if line.startswith("|")]


def write(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


#: How a program starts itself: its arguments for python.
WAYS = {
    "a script": ("show.py",),
    "a script by ./": ("./show.py",),
    "a script behind a link and ..": ("link/../show.py",),
    "a link to a script": ("linked.py",),
    "a folder": ("./app/",),
    "an archive": ("app.pyz",),
    "standard input": ("-",),
    "a module": ("-m", "show"),
    "a module in a package": ("-m", "app.inside"),
    "a package": ("-m", "app"),
}

#: Those of each command that are fast tests.
WAYS_OF = {
    "run": tuple(WAYS),
    "-m fastprof": ("a script", "an archive", "standard input", "a module in a package"),
    "run --functions": (),
}

SHOW = """
    import sys
    names = sorted(name for name in globals() if name != "sys")
    loader = getattr(__loader__, "__name__", type(__loader__).__name__)
    print("|", sys.argv, sys.path, names)
    print("|", __name__, __file__, __spec__ and __spec__.name, repr(__package__), loader)
    print("|", sys._getframe().f_code.co_filename, sys.modules["__main__"].__dict__ is globals())
    print("|", "fastprof" in str(sys.excepthook), list(sys.meta_path)[-3:])
    {}["missing"]
"""


@pytest.fixture
def ways(tmp_path: Path) -> Path:
    """A folder with a program in every form; its parent has another ``show.py``."""
    here = tmp_path / "here"
    for folder in (here / "app", here / "deep" / "folder"):
        folder.mkdir(parents=True)
    for place in ("show.py", "deep/show.py", "app/__main__.py", "app/inside.py"):
        write(here / place, SHOW)
    (here / "link").symlink_to("deep/folder")
    (here / "linked.py").symlink_to("deep/show.py")
    with zipfile.ZipFile(here / "app.pyz", "w") as archive:
        archive.write(here / "app" / "__main__.py", "__main__.py")
    return here


# One piece of code starts a program for all commands: that of `run` has every way, the others in
# turn have those that differ in what they find as `__main__`.
@pytest.mark.parametrize(
    ("command", "way"),
    [
        pytest.param(command, way, marks=() if fast else pytest.mark.slow)
        for command, some in WAYS_OF.items()
        for way, fast in ((way, way in some) for way in WAYS)
    ],
    indirect=["command"],
)
def test_every_way_to_start_a_program_is_pythons(
    ways: Path, command: Sequence[str], way: str
) -> None:
    program = [*WAYS[way], "-o", "x"]
    text = (ways / "show.py").read_text() if way == "standard input" else None
    plain = python(*program, cwd=ways, stdin=text)
    ours = python(*command, *program, cwd=ways, stdin=text)
    assert len(of_program(plain.stdout)) == 4
    assert of_program(ours.stdout) == of_program(plain.stdout)
    assert ours.returncode == plain.returncode == 1
    # The traceback is Python's, frame by frame.
    assert ours.stderr == plain.stderr


def test_a_rank_of_a_job_is_pythons(ways: Path) -> None:
    plain = python("show.py", cwd=ways)
    ours = python("-c", _RANK, "run", "-o", "out", "show.py", cwd=ways)
    assert len(of_program(plain.stdout)) == 4
    assert of_program(ours.stdout) == of_program(plain.stdout)


def test_a_module_that_sitecustomize_replaces_stays_replaced(
    tmp_path: Path, command: Sequence[str]
) -> None:
    for name in ("site_folder", "here"):
        (tmp_path / name).mkdir()
    write(tmp_path / "site_folder" / "other_sqlite3.py", "")
    write(
        tmp_path / "site_folder" / "sitecustomize.py",
        """
        import sys, other_sqlite3
        sys.modules["sqlite3"] = other_sqlite3
        """,
    )
    write(tmp_path / "here" / "show.py", "import sqlite3; print('|', sqlite3.__name__)")
    path = os.pathsep.join([str(tmp_path / "site_folder"), ENV["PYTHONPATH"]])
    # Without the guard, which is another sitecustomize.
    result = python(
        *command, "show.py", cwd=tmp_path / "here", env={"PYTHONPATH": path}, guard=False
    )
    assert of_program(result.check().stdout) == ["| other_sqlite3"]


def test_tracemalloc_traces_the_program_and_not_fastprofs_imports(
    tmp_path: Path, command: Sequence[str]
) -> None:
    """They took 10 to 25 s of a program of 0.1 s: all of them come before the program."""
    write(
        tmp_path / "show.py",
        """
        import _tracemalloc
        print("|", _tracemalloc.get_traced_memory()[0] < 1 << 20)
        import atexit, sys, tracemalloc
        print("|", tracemalloc.get_traceback_limit())
        before = set(sys.modules)
        def at_exit():
            later = sys.modules.keys() - before
            print("|", sorted(name for name in later if name.startswith("fastprof")))
        atexit.register(at_exit)
        """,
    )
    result = python("-X", "tracemalloc=3", *command, "show.py", cwd=tmp_path)
    assert of_program(result.check().stdout) == ["| True", "| 3", "| []"]


def test_a_collection_does_not_visit_fastprofs_objects(
    tmp_path: Path, command: Sequence[str]
) -> None:
    """CPython's tests of asyncio, which collect often, took five times as long."""
    write(
        tmp_path / "show.py",
        """
        import atexit, gc
        print(len(gc.get_objects()))
        atexit.register(lambda: print("|", gc.get_freeze_count()))
        """,
    )
    alone = int(python("show.py", cwd=tmp_path).check().stdout.split()[0])
    result = python(*command, "show.py", cwd=tmp_path).check()
    assert int(result.stdout.split()[0]) < alone
    assert of_program(result.stdout) == ["| 0"]


@pytest.mark.parametrize("command", [("-m", "fastprof"), ("-m", "fastprof", "run")])
def test_the_collector_shows_the_programs_globals_and_keeps_what_it_froze(
    tmp_path: Path, command: Sequence[str]
) -> None:
    write(
        tmp_path / "own.py",
        """
        import atexit, gc
        class Thing: pass
        thing = Thing()
        print("|", [globals() is one for one in gc.get_referrers(thing)])
        gc.freeze()
        atexit.register(lambda: print("|", gc.get_freeze_count() > 0))
        """,
    )
    result = python(*command, "own.py", cwd=tmp_path).check()
    assert of_program(result.stdout) == ["| [True]", "| True"]


def test_decorators_do_not_read_the_programs_folder_each_time(tmp_path: Path) -> None:
    write(
        tmp_path / "decorates.py",
        """
        import sys
        from fastprof import profile_section
        def decorate(): profile_section("part")(lambda: None)
        decorate()
        read = []
        sys.addaudithook(lambda event, args: event == "os.listdir" and read.append(args[0]))
        decorate()
        # A thread of fastprof looks for requests.
        print("|", [path for path in read if not str(path).endswith("requests")])
        """,
    )
    result = python("-m", "fastprof", "run", "-o", "out", "decorates.py", cwd=tmp_path)
    assert of_program(result.check().stdout) == ["| []"]


def test_without_a_current_folder(tmp_path: Path) -> None:
    script = write(tmp_path / "show.py", SHOW)
    gone = tmp_path / "gone"
    start = "import os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); "
    run = "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"

    def without(*args: object) -> ChildResult:
        return python("-c", start + run, *args, cwd=tmp_path, guard=False)

    plain = without(script)
    for name, form in (("a.fprof", ()), ("out", ("run",))):
        ours = without("-m", "fastprof", *form, "-o", tmp_path / name, script)
        assert of_program(ours.stdout) == of_program(plain.stdout)
        assert ours.stderr == plain.stderr
        refused = without("-m", "fastprof", *form, "-o", name, script)
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
    assert not gone.exists()


def test_no_folder_of_the_user_is_removed(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    for name in ("theirs", "ours"):
        python("-m", "fastprof", "run", "-o", name, "nosuch.py", cwd=tmp_path).check(returncode=2)
    assert (tmp_path / "theirs").is_dir()
    assert not (tmp_path / "ours").exists()


#: Without these ``python -m`` itself does not work.
RUNPY = "collections contextlib functools importlib keyword operator reprlib types".split()


@pytest.mark.parametrize("form", ["-m fastprof", "-m fastprof run", "fastprof run"])
def test_a_program_finds_its_modules_with_names_of_standard_ones(tmp_path: Path, form: str) -> None:
    write(tmp_path / "loaded.py", "import sys; print('|', *sys.modules)")
    _, *words = form.split()
    if form == "fastprof run":
        script = tmp_path / "bin" / "fastprof"
        script.parent.mkdir()
        write(script, "import sys\nfrom fastprof.cli import main\nsys.exit(main())\n")
        command = (script, "run", "-o", "out")
    else:
        command = ("-m", *words, "-o", "out" if "run" in words else "out.fprof")
    found = of_program(python(*command, "loaded.py", cwd=tmp_path, guard=False).check().stdout)
    loaded = {name.partition(".")[0] for name in found[0].split()}
    at_start = python("-c", "import sys; print(*sys.modules)", cwd=tmp_path, guard=False).stdout
    taken = {
        "runpy",
        *at_start.split(),
        *sys.builtin_module_names,
        *(RUNPY if form[0] == "-" else ()),
    }
    names = sorted((loaded | {"gzip", "html", "pstats"}) & sys.stdlib_module_names - taken)
    assert len(names) > 50
    for name in names:
        (tmp_path / f"{name}.py").write_text("KEY = 'mine'\n")
    write(
        tmp_path / "train.py",
        f"""
        import sys
        for name in {names}:
            module = __import__(name)
            print("|", name, getattr(module, "KEY", "python's"), "KEY" in vars(sys.modules[name]))
        """,
    )
    plain = python("train.py", cwd=tmp_path, guard=False).check()
    ours = python(*command, "train.py", cwd=tmp_path, guard=False).check()
    assert of_program(plain.stdout).count("| secrets mine True") == 1
    assert of_program(ours.stdout) == of_program(plain.stdout)
    # From 3.13 on Python says so of files in the folder of its own script.
    hint = re.compile(r" \(consider renaming .*\)")
    assert hint.sub("", ours.stderr) == hint.sub("", plain.stderr)
    saved = tmp_path / ("out/train_profile.fprof" if "run" in words else "out.fprof")
    assert fastprof.load(str(saved)).snapshot.threads


def test_threads_that_protect_their_imports_at_once_leave_the_programs_modules(
    tmp_path: Path,
) -> None:
    write(tmp_path / "secrets.py", "KEY = 'mine'")
    write(
        tmp_path / "train.py",
        """
        import secrets, sys
        from fastprof.own_imports import Protected
        path = sys.path, list(sys.path)
        first, second = Protected(), Protected()
        with first, second:
            print("|", hasattr(sys.modules["secrets"], "KEY"))
        first.__enter__()
        second.__enter__()
        first.__exit__()
        print("|", hasattr(sys.modules["secrets"], "KEY"))
        second.__exit__()
        print("|", sys.modules["secrets"] is secrets, (sys.path, list(sys.path)) == path)
        """,
    )
    result = python("-m", "fastprof", "run", "-o", "out", "train.py", cwd=tmp_path)
    assert of_program(result.check().stdout) == ["| False", "| False", "| True True"]


#: What a program leaves to the end of the interpreter.
LEFT = """
    import bz2, gzip, shelve, sys, zipfile
    class Thing(dict):
        def __init__(self, name): self.update(name=name)
        def __del__(self): print("| deleted", self["name"], flush=True)
        def work(self): local = Thing("local"); return self.keys() and END
    first = Thing("first")
    _private = Thing("private")
    def function(): return first
    class Holder:
        thing = Thing("class attribute")
        def method(self): return function()
    Holder().method()
    last = Thing("last")
    archive = zipfile.ZipFile("archive", "w")
    archive.writestr("member", "text")
    packed = gzip.open("packed", "wb")
    packed.write(b"text")
    packed2 = bz2.open("packed2", "wb")
    packed2.write(b"text")
    shelf = shelve.open("shelf", writeback=True)
    shelf["key"] = []
    shelf["key"].append(1)
    plain = open("plain", "w")
    plain.write("text")
    first.work()
"""

#: From 3.14 on Python itself leaves a gzip file without its end.
READ_LEFT = """
    import bz2, gzip, shelve, zipfile
    def shown(read):
        try:
            return read()
        except EOFError as error:
            return error
    print(zipfile.ZipFile("archive").namelist(), shown(gzip.open("packed").read),
          shown(bz2.open("packed2").read), dict(shelve.open("shelf")), open("plain").read())
"""


@pytest.mark.parametrize(
    ("command", "form", "end"),
    [
        ("run", "script", "None"),
        ("run", "script", "sys.exit(3)"),
        ("run", "script", "1 / 0"),
        ("run", "module", "None"),
        ("-m fastprof", "script", "sys.exit(3)"),
        ("run --functions", "script", "1 / 0"),
        # The same code ends the program of each command.
        pytest.param("-m fastprof", "module", "None", marks=pytest.mark.slow),
        pytest.param("run --functions", "module", "None", marks=pytest.mark.slow),
    ],
    indirect=["command"],
)
def test_globals_are_destroyed_as_by_python(
    tmp_path: Path, command: Sequence[str], form: str, end: str
) -> None:
    write(tmp_path / "left.py", LEFT.replace("END", end))
    reads = write(tmp_path / "reads.py", READ_LEFT)
    target = ["left.py"] if form == "script" else ["-m", "left"]
    results = []
    for before in ((), command):
        for name in ("archive", "packed", "packed2", "plain", *map(str, tmp_path.glob("shelf*"))):
            (tmp_path / name).unlink(missing_ok=True)
        result = python(*before, *target, cwd=tmp_path)
        left = python(reads, cwd=tmp_path).check().stdout
        results.append((result.returncode, of_program(result.stdout), left))
    assert results[1] == results[0]
    assert len(results[0][1]) == 5
    assert "member" in results[0][2]


@pytest.mark.parametrize("begin", ["", "Profiler().start()", "Profile().enable()"])
def test_globals_are_destroyed_as_by_python_in_a_run_that_nobody_stops(
    tmp_path: Path, begin: str
) -> None:
    write(tmp_path / "left.py", f"from fastprof import *\n{begin}\n" + textwrap.dedent(LEFT))
    reads = write(tmp_path / "reads.py", READ_LEFT)
    text = (tmp_path / "left.py").read_text().replace("END", "None")
    (tmp_path / "left.py").write_text(text)
    result = python("left.py", cwd=tmp_path, env={} if begin else {"FASTPROF": "1"}).check()
    assert sorted(of_program(result.stdout)) == [
        f"| deleted {name}" for name in ("class attribute", "first", "last", "local", "private")
    ]
    assert "member" in python(reads, cwd=tmp_path).check().stdout


@pytest.mark.parametrize("form", ["script", "module"])
def test_a_hook_for_exceptions_gets_the_programs_frames(
    tmp_path: Path, command: Sequence[str], form: str
) -> None:
    write(
        tmp_path / "hooked.py",
        """
        import atexit, sys, traceback
        def hook(kind, error, tb):
            print("|", [f.name for f in traceback.extract_tb(tb) if "runpy" not in f.filename])
            print("|", tb is error.__traceback__ is sys.last_traceback)
        assert sys.excepthook is sys.__excepthook__
        sys.excepthook = hook
        atexit.register(lambda: print("|", sys.excepthook is hook))
        def load(): {}["missing"]
        load()
        """,
    )
    target = ["hooked.py"] if form == "script" else ["-m", "hooked"]
    plain = python(*target, cwd=tmp_path)
    ours = python(*command, *target, cwd=tmp_path)
    assert of_program(plain.stdout) == ["| ['<module>', 'load']", "| True", "| True"]
    assert of_program(ours.stdout) == of_program(plain.stdout)
    assert ours.returncode == plain.returncode == 1


@pytest.mark.parametrize("way", ["command", "FASTPROF=1"])
def test_a_stream_of_the_program_needs_only_write(
    tmp_path: Path, command: Sequence[str], way: str
) -> None:
    write(
        tmp_path / "tee.py",
        f"""
        import sys
        {"import fastprof" if way == "FASTPROF=1" else ""}
        class Tee:
            def __init__(self, name): self.name = name
            def write(self, text):
                with open(self.name, "a") as file: file.write(text)
        sys.stdout, sys.stderr = Tee("stdout"), Tee("stderr")
        sum(i * i for i in range(300000))
        """,
    )
    if way == "command":
        python(*command[:-2], "tee.py", cwd=tmp_path).check(returncode=120)
        shown = (tmp_path / "stdout").read_text()
        assert "could not" not in (tmp_path / "stderr").read_text()
    else:
        # Python's own status: it cannot flush them at the end.
        python("tee.py", cwd=tmp_path, env={"FASTPROF": "1"}).check(returncode=120)
        shown = (tmp_path / "stderr").read_text()
    assert "recorded" in shown or "function calls" in shown
