"""``python -m fastprof``: the program runs as if alone, and its profile is kept."""

from __future__ import annotations

import io
import os
import pstats
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import fastprof
import pytest
from helpers import ChildResult, child_env, run_command, time_scale

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)
ENV = {"PYTHONPATH": os.pathsep.join(filter(None, [SOURCE_PATH, os.environ.get("PYTHONPATH")]))}

WORK = """
import sys
def fact(n):
    return 1 if n <= 1 else n * fact(n - 1)
def wait():
    import threading
    threading.Event().wait()
def work():
    return [fact(5), len(sys.argv)]
work()
"""


@pytest.fixture
def script(tmp_path: Path) -> Any:
    def write(text: str, name: str = "train.py") -> Path:
        path = tmp_path / name
        path.write_text(WORK + textwrap.dedent(text), encoding="utf-8")
        return path

    return write


def python(*args: object, cwd: Path, **options: Any) -> ChildResult:
    env = {**ENV, **options.pop("env", {})}
    return run_command([sys.executable, *map(str, args)], cwd=cwd, env=env, **options)


def fastprof_m(*args: object, cwd: Path, **options: Any) -> ChildResult:
    return python("-m", "fastprof", *args, cwd=cwd, **options)


def rows(path: Path) -> dict[tuple[str, int, str], Any]:
    return pstats.Stats(str(path), stream=io.StringIO()).stats  # type: ignore[attr-defined]


def has_work(path: Path) -> bool:
    return [row[:2] for label, row in rows(path).items() if label[2] == "fact"] == [(1, 5)]


def test_s0_04_argv_and_namespace_are_what_python_gives(script: Any, tmp_path: Path) -> None:
    path = script(
        """
        import pickle, types
        class Thing: pass
        assert type(pickle.loads(pickle.dumps(Thing()))) is Thing
        print("__annotations__" in globals())
        import __main__
        assert isinstance(__main__, types.ModuleType) and __main__.Thing is Thing
        print(sys.argv, sys.path[0], __name__, __file__, __spec__, __package__, __doc__)
        """
    )
    plain = python(path.name, "-o", "x", "--y", "-m", cwd=tmp_path).check()
    ours = fastprof_m("-o", "out.stats", path.name, "-o", "x", "--y", "-m", cwd=tmp_path).check()
    assert ours.stdout == plain.stdout
    assert "['train.py', '-o', 'x', '--y', '-m']" in ours.stdout
    assert has_work(tmp_path / "out.stats")
    assert not (tmp_path / "x").exists()


def test_s0_04_the_module_form(script: Any, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    script("", "pkg/__init__.py")
    script(
        """
        print(sys.argv[1:], sys.path[0], __name__, __file__, __spec__.name, __package__)
        """,
        "pkg/train.py",
    )
    plain = python("-m", "pkg.train", "--x", "1", cwd=tmp_path).check()
    ours = fastprof_m("-o", "p.stats", "-m", "pkg.train", "--x", "1", cwd=tmp_path).check()
    assert ours.stdout == plain.stdout
    files = {Path(label[0]).name for label in rows(tmp_path / "p.stats") if label[2] == "fact"}
    assert files == {"__init__.py", "train.py"}


def test_the_table_is_cprofiles(script: Any, tmp_path: Path) -> None:
    path = script("import textwrap; textwrap.fill('a b ' * 50)\n")
    python("-m", "cProfile", "-o", "theirs.stats", path, cwd=tmp_path).check()
    fastprof_m("-o", "ours.stats", path, cwd=tmp_path).check()

    def of_program(name: str) -> dict[object, object]:
        return {
            label: (row[:2], {k: v[:2] for k, v in row[4].items()})
            for label, row in rows(tmp_path / name).items()
            if label[0] == str(path) or label[0].endswith("textwrap.py")
        }

    assert of_program("ours.stats") == of_program("theirs.stats")
    assert len(of_program("ours.stats")) > 5


def test_without_o_the_table_is_printed(script: Any, tmp_path: Path) -> None:
    result = fastprof_m("-s", "ncalls", script("").name, cwd=tmp_path).check()
    assert "Ordered by: call count" in result.stdout
    assert "train.py:3(fact)" in result.stdout
    assert "5/1" in result.stdout
    assert "The function hook cost" in result.stdout


#: How a program ends, and its status.
ENDINGS = [
    ("pass", 0),
    ("sys.exit()", 0),
    ("sys.exit(7)", 7),
    ("sys.exit('a message')", 1),
    ("raise SystemExit(3)", 3),
    ("raise ValueError('boom')", 1),
    ("raise KeyboardInterrupt", -signal.SIGINT),
    ("import os; os._exit(9)", 9),
    ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
    ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ("import threading, os; threading.Thread(target=os._exit, args=(5,)).start(); wait()", 5),
]


@pytest.mark.parametrize(
    ("ending", "status", "form"),
    [
        *((ending, status, "script") for ending, status in ENDINGS),
        # A module differs in the frames of its traceback alone.
        *(
            pytest.param(*ending, "module", marks=() if "raise" in ending[0] else pytest.mark.slow)
            for ending in ENDINGS
        ),
    ],
)
def test_s0_04_every_ending_keeps_its_status_and_writes(
    script: Any, tmp_path: Path, ending: str, status: int, form: str
) -> None:
    script(ending)
    target = ["train.py"] if form == "script" else ["-m", "train"]
    plain = python(*target, cwd=tmp_path)
    ours = fastprof_m("-o", "p.stats", *target, cwd=tmp_path)
    assert plain.returncode == status
    assert ours.returncode == status
    assert has_work(tmp_path / "p.stats")
    assert ours.stdout == plain.stdout
    # The traceback, too, equals that of the program alone.
    assert ours.stderr == plain.stderr


def test_f22_sigterm_from_outside_writes_and_dies_by_it(script: Any, tmp_path: Path) -> None:
    script("import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.01)\n")
    with subprocess.Popen(
        [sys.executable, "-m", "fastprof", "-o", "p.stats", "train.py"],
        cwd=tmp_path,
        env=child_env(ENV),
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60 * time_scale()) == -signal.SIGTERM
    assert has_work(tmp_path / "p.stats")


def test_f22_a_handler_of_the_program_is_its_own(script: Any, tmp_path: Path) -> None:
    script(
        """
        import os, signal
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGTERM, lambda *a: sys.exit(4))
        os.kill(os.getpid(), signal.SIGTERM)
        """
    )
    fastprof_m("-o", "p.stats", "train.py", cwd=tmp_path).check(returncode=4)
    assert has_work(tmp_path / "p.stats")


@pytest.mark.parametrize(
    ("calls", "status"),
    [
        ("old(*args)", 0),  # Lightning: it ends after the step, or goes on
        ("old(*args)\n    else:\n        os._exit(7)", 7),
    ],
)
def test_f22_the_program_finds_the_default_action(
    script: Any, tmp_path: Path, calls: str, status: int
) -> None:
    source = f"""
import os, signal
old = signal.getsignal(signal.SIGTERM)
def handler(*args):
    print("handled", flush=True)
    if callable(old):
        {calls}
signal.signal(signal.SIGTERM, handler)
os.kill(os.getpid(), signal.SIGTERM)
print("alive", flush=True)
signal.signal(signal.SIGTERM, old)
"""
    script(source)
    result = fastprof_m("-o", "p.stats", "train.py", cwd=tmp_path).check(returncode=status)
    assert result.stdout.split() == ["handled", "alive"][: 1 if status else 2]
    assert has_work(tmp_path / "p.stats")


def test_f22_an_ignored_sigterm_stays_ignored(script: Any, tmp_path: Path) -> None:
    script("import os, signal; os.kill(os.getpid(), signal.SIGTERM); print('alive')\n")
    command = f"trap '' TERM; exec {sys.executable} -m fastprof -o p.stats train.py"
    result = run_command(["sh", "-c", command], cwd=tmp_path, env=ENV).check()
    assert result.stdout == "alive\n"


def test_forked_children_do_not_write(script: Any, tmp_path: Path) -> None:
    script(
        """
        import os, signal
        def child(leave):
            pid = os.fork()
            if not pid:
                fact(3)
                leave()
            return os.waitpid(pid, 0)[1]
        def fall_off():
            raise SystemExit(6)
        codes = [child(lambda: os._exit(5)), child(fall_off),
                 child(lambda: os.kill(os.getpid(), signal.SIGTERM) or os._exit(1))]
        print(codes)
        """
    )
    result = fastprof_m("train.py", cwd=tmp_path).check()
    assert f"[{5 << 8}, {6 << 8}, {int(signal.SIGTERM)}]" in result.stdout
    assert result.stdout.count("Ordered by") == 1
    assert " 5/1 " in result.stdout  # the parent's table excludes the children's calls


def test_f20_workers_of_every_start_method(script: Any, tmp_path: Path) -> None:
    script(
        """
        import multiprocessing
        def double(x): return 2 * x
        if __name__ == "__main__":
            for method in multiprocessing.get_all_start_methods():
                with multiprocessing.get_context(method).Pool(2) as pool:
                    print(method, pool.map(double, range(4)))
        """
    )
    result = fastprof_m("-o", "p.stats", "train.py", cwd=tmp_path, timeout=120).check()
    assert result.stdout.count("[0, 2, 4, 6]") == 3
    assert has_work(tmp_path / "p.stats")


def test_f41_a_relative_path_means_what_it_meant_at_the_start(script: Any, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    script("import os; os.chdir('elsewhere')\n")
    fastprof_m("-o", "p.stats", "train.py", cwd=tmp_path).check()
    assert has_work(tmp_path / "p.stats")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_f42_each_rank_has_a_separate_file(script: Any, tmp_path: Path) -> None:
    script("")
    for rank in (0, 1):
        env = {"RANK": str(rank), "WORLD_SIZE": "2"}
        fastprof_m("-o", "p.stats", "train.py", cwd=tmp_path, env=env).check()
    names = sorted(path.name for path in tmp_path.glob("*.stats"))
    assert names == ["rank0_p.stats", "rank1_p.stats"]


def test_an_fprof_file_is_a_saved_run(script: Any, tmp_path: Path) -> None:
    fastprof_m("-o", "p.fprof", script("").name, cwd=tmp_path).check()
    report = fastprof.load(tmp_path / "p.fprof")
    [fact] = [f for f in report.functions if f.name == "fact"]
    assert (fact.calls, fact.primitive_calls) == (5, 1)


@pytest.mark.parametrize("name", ["there/is/none.stats", ".", "/proc/1/x.stats"])
def test_f40_an_impossible_output_is_refused_before_the_run(
    script: Any, tmp_path: Path, name: str
) -> None:
    result = fastprof_m("-o", name, script("print('ran')").name, cwd=tmp_path)
    result.check(returncode=2)
    assert result.stdout == ""
    assert result.stderr.startswith("fastprof: cannot write the profile: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("ending", ["pass", "sys.exit(7)"])
def test_f40_a_full_disk_costs_neither_the_status_nor_the_data(
    script: Any, tmp_path: Path, ending: str
) -> None:
    script(ending)
    (tmp_path / "tmp").mkdir()
    result = fastprof_m(
        "-o", "/dev/full", "train.py", cwd=tmp_path, env={"TMPDIR": str(tmp_path / "tmp")}
    ).check(returncode=7 if "7" in ending else 0)
    assert result.stderr.startswith("fastprof: cannot write '/dev/full': No space left on device")
    assert result.stderr.count("\n") == 1
    [kept] = (tmp_path / "tmp").iterdir()
    assert has_work(kept)
    assert str(kept) in result.stderr


@pytest.mark.parametrize("action", ["SIG_IGN", "SIG_DFL"])
def test_f40_a_file_size_limit_leaves_nothing_half_written(
    script: Any, tmp_path: Path, action: str
) -> None:
    script(
        f"""
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.{action})
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        """
    )
    (tmp_path / "tmp").mkdir()
    (tmp_path / "p.stats").write_bytes(b"before")
    result = fastprof_m(
        "-o", "p.stats", "train.py", cwd=tmp_path, env={"TMPDIR": str(tmp_path / "tmp")}
    ).check()
    assert "File too large" in result.stderr
    assert (tmp_path / "p.stats").read_bytes() == b"before"
    assert not list((tmp_path / "tmp").iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.stats", "tmp", "train.py"]


def test_an_unknown_sorting_key_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    result = fastprof_m("-s", "demo", "x.py", cwd=tmp_path).check(returncode=2)
    assert "option -s: invalid choice: 'demo'" in result.stderr
    assert "'cumtime'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        ([], 2, "Usage: "),
        (["-m"], 2, "Usage: "),
        (["missing.py"], 2, "can't open file 'missing.py'"),
        (["."], 2, "can't find '__main__' module in '.'"),
        (["-m", "no_such_module_xyz"], 1, "no module named 'no_such_module_xyz'"),
        (["--nonsense"], 2, "no option '--nonsense'"),
    ],
)
def test_bad_arguments(tmp_path: Path, args: list[str], status: int, message: str) -> None:
    result = fastprof_m(*args, cwd=tmp_path).check(returncode=status)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_syntax_error_is_pythons(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def (:\n")
    result = fastprof_m("bad.py", cwd=tmp_path).check(returncode=1)
    python = subprocess.run(
        [sys.executable, "bad.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    # Python names the file by its path from 3.13 on.
    assert result.stderr.splitlines()[1:] == python.stderr.splitlines()[1:]
    assert len(result.stderr.splitlines()) == len(python.stderr.splitlines())


def test_future_statements_of_ours_do_not_reach_the_program(script: Any, tmp_path: Path) -> None:
    script("def f(x: int): pass\nassert f.__annotations__ == {'x': int}\n")
    fastprof_m("-o", "p.stats", "train.py", cwd=tmp_path).check()
    scope: dict[str, Any] = {}
    fastprof.Profile().runctx("def f(x: int): pass", scope, scope)
    assert scope["f"].__annotations__ == {"x": int}


def test_a_reader_that_closes_the_pipe_is_no_error(script: Any, tmp_path: Path) -> None:
    script("")
    command = f"{sys.executable} -m fastprof train.py | true; echo done"
    result = run_command(["sh", "-c", command], cwd=tmp_path, env=ENV).check()
    assert result.stdout == "done\n"
    assert result.stderr == ""


def test_fastprof_0_runs_the_program_without_a_profile(script: Any, tmp_path: Path) -> None:
    script("print('ran')")
    result = fastprof_m("-o", "p.stats", "train.py", cwd=tmp_path, env={"FASTPROF": "0"}).check()
    assert result.stdout == "ran\n"
    assert "FASTPROF=0" in result.stderr
    assert not (tmp_path / "p.stats").exists()


def test_s0_05_python_m_pstats_reads_it(script: Any, tmp_path: Path) -> None:
    fastprof_m("-o", "p.stats", script("").name, cwd=tmp_path).check()
    result = python(
        "-m", "pstats", "p.stats", cwd=tmp_path,
        stdin="sort cumtime\nstats 30\ncallers fact\ncallees work\nquit\n",
    ).check()  # fmt: skip
    assert "Ordered by: cumulative time" in result.stdout
    assert "train.py:8(work)" in result.stdout
    assert "was called by..." in result.stdout
    assert "called..." in result.stdout


def test_s0_07_callers_and_callees(script: Any, tmp_path: Path) -> None:
    fastprof_m("-o", "p.stats", script("").name, cwd=tmp_path).check()
    stream = io.StringIO()
    stats = pstats.Stats(str(tmp_path / "p.stats"), stream=stream).strip_dirs()
    stats.print_callers("fact")
    stats.print_callees("work")
    text = stream.getvalue()
    assert "train.py:8(work)" in text
    assert "train.py:3(fact)" in text
    assert "4/1" in text
