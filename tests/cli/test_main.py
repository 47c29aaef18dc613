"""The command ``fastprof`` and its subcommands report, doctor and the dispatch to them."""

from __future__ import annotations

import _thread
import collections
import gc
import json
import os
import pstats
import re
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof.cli import doctor, main, main_of_module
from helpers import ChildResult, child_env, run_child, run_command
from trees import record

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)
ENV = {"PYTHONPATH": os.pathsep.join(filter(None, [SOURCE_PATH, os.environ.get("PYTHONPATH")]))}

COMMAND = "import sys\nfrom fastprof.cli import main\nsys.exit(main(sys.argv[1:]))\n"


def fastprof_command(*args: object, **options: Any) -> ChildResult:
    env = {**ENV, **options.pop("env", {})}
    return run_child(COMMAND, *map(str, args), env=env, **options)


@pytest.fixture
def saved(tmp_path: Path) -> dict[str, Path]:
    def fact(n: int) -> int:
        return 1 if n <= 1 else n * fact(n - 1)

    profile = fastprof.Profile()
    profile.runcall(fact, 5)
    paths = {"fprof": tmp_path / "run.fprof", "stats": tmp_path / "run.stats"}
    profile.report().save(paths["fprof"])
    profile.dump_stats(paths["stats"])
    return paths


def test_python_m_has_the_commands_unless_there_is_such_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('trained')\n")
    module = [sys.executable, "-m", "fastprof"]
    run = run_command([*module, "run", "--functions", "train.py"], cwd=tmp_path, env=ENV)
    assert run.returncode == 0
    assert "trained" in run.stdout
    assert (tmp_path / "fastprof_out" / "latest" / "train_profile.fprof").exists()
    (tmp_path / "run").write_text("import sys\nprint('a script', sys.argv[1:])\n")
    script = run_command([*module, "run", "x"], cwd=tmp_path, env=ENV)
    assert script.returncode == 0
    assert "a script ['x']" in script.stdout
    assert main_of_module(["targets"]) == 0
    assert capsys.readouterr().out
    (tmp_path / "targets").mkdir()
    assert main_of_module(["targets"]) == 0
    assert main_of_module(["export", "train.fprof"]) == 2
    assert "no command 'export'" in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fastprof {fastprof.__version__}\n"
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for command in (
        "run",
        "report",
        "compare",
        "merge",
        "watch",
        "targets",
        "doctor",
        "quickcheck",
        "demo",
    ):
        assert f"\n  {command} " in text
    for command in (
        "run",
        "report",
        "compare",
        "merge",
        "watch",
        "targets",
        "doctor",
        "quickcheck",
    ):
        with pytest.raises(SystemExit) as exit_info:
            main([command, "-h"])
        assert exit_info.value.code == 0
        assert "sage: " in capsys.readouterr().out


def test_no_or_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: fastprof" in capsys.readouterr().err
    assert main(["comapre\x1b"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "'comapre\\x1b'" in error


@pytest.mark.parametrize("arguments", [[], ["--full"], ["-m"]])
def test_run_without_a_program_names_what_is_missing(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", *arguments])
    assert end.value.code == 2
    assert "error: SCRIPT or -m MODULE is missing" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["fprof", "stats"])
def test_report_shows_a_saved_run(
    saved: dict[str, Path], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(saved[kind])]) == 0
    assert re.search(r"^fact ", capsys.readouterr().out, re.MULTILINE)
    assert main(["report", str(saved[kind]), "--full"]) == 0
    text = capsys.readouterr().out
    assert "fact" in text
    assert "5/1" in text


@pytest.mark.parametrize("name", ["text", "json", "speedscope", "collapsed"])
def test_report_writes_the_format_asked_for(
    saved: dict[str, Path], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(saved["fprof"]), "--format", name]) == 0
    shown = capsys.readouterr().out
    assert "fact" in shown
    if name in ("json", "speedscope"):
        json.loads(shown)
    path = tmp_path / "out.x"
    assert main(["report", str(saved["fprof"]), "--format", name, "-o", str(path)]) == 0
    assert "fact" in path.read_text(encoding="utf-8")
    assert capsys.readouterr().out == f"Wrote {path}\n"


@pytest.mark.parametrize("args", [["-o", "x.stats"], ["--format", "pstats", "-o", "x.anything"]])
def test_report_converts_to_pstats(
    saved: dict[str, Path], tmp_path: Path, args: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(saved["fprof"]), *args]) == 0
    converted: Any = pstats.Stats(str(tmp_path / args[-1]))
    direct: Any = pstats.Stats(str(saved["stats"]))
    assert converted.stats.keys() == direct.stats.keys()


def test_report_raw_subtracts_nothing(
    saved: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--raw", "--full", str(saved["fprof"])]) == 0
    assert "it is included in all times" in " ".join(capsys.readouterr().out.split())


def bad_inputs(folder: Path) -> dict[str, Path]:
    made = {
        "missing": folder / "missing.fprof",
        "folder": folder,
        "empty": folder / "empty.fprof",
        "text": folder / "text.fprof",
        "json": folder / "json.fprof",
        "bomb": folder / "bomb.stats",
        "pipe": folder / "pipe.fprof",
        "device": Path("/dev/zero"),
    }
    made["empty"].write_bytes(b"")
    made["text"].write_text("hello\n" * 100)
    made["json"].write_text('{"schema": "other"}')
    made["bomb"].write_bytes(b"(\xff\xff\xff\x0b")
    os.mkfifo(made["pipe"])
    return made


@pytest.mark.parametrize(
    "kind", ["missing", "folder", "empty", "text", "json", "bomb", "pipe", "device"]
)
def test_f46_bad_input_is_one_line_and_status_2(kind: str, tmp_path: Path) -> None:
    result = fastprof_command(
        "report", bad_inputs(tmp_path)[kind], rlimit_as=2 << 30, timeout=60
    ).check(returncode=2)
    assert result.stdout == ""
    assert result.stderr.startswith("fastprof: ")
    assert result.stderr.count("\n") == 1


def test_f46_a_cut_file_is_one_line_and_status_2(
    saved: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, path in saved.items():
        data = path.read_bytes()
        for size in range(1, len(data), max(1, len(data) // 60)):
            cut = tmp_path / f"cut.{kind}"
            cut.write_bytes(data[:size])
            assert main(["report", str(cut)]) == 2, (kind, size)
            captured = capsys.readouterr()
            assert captured.out == ""
            assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--format", "pstats"], "name a file with -o FILE"),
        (["-o", "x.unknown"], "cannot tell the format"),
        (["-o", ".", "--format", "json"], "is a directory"),
        (["-o", "none/x.json"], "no such directory: "),
        (["-o", "/dev/full", "--format", "json"], "No space left"),
    ],
)
def test_bad_output_is_one_line_and_status_2(
    saved: dict[str, Path],
    tmp_path: Path,
    args: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(saved["fprof"]), *args]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_stats_file_has_no_flame_graph(
    saved: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(saved["stats"]), "--format", "collapsed"]) == 2
    assert "calling contexts" in capsys.readouterr().err


def test_s3_19_doctor_tells_what_there_is_and_how_to_enable() -> None:
    result = fastprof_command("doctor").check()
    assert max(map(len, result.stdout.splitlines())) <= 100
    lines = re.sub(r"\n +", " ", result.stdout).splitlines()
    rows = dict(line.split(None, 1) for line in lines)
    assert rows["fastprof"] == fastprof.__version__
    assert rows["extension"] == "loaded"
    version = ".".join(map(str, sys.version_info[:3]))
    assert f"CPython {version}" in rows["python"]
    backend = "monitoring" if sys.version_info >= (3, 12) else "setprofile"
    assert f"backend {backend}" in rows["functions"]
    assert rows["clock"].startswith(("tsc: ", "cntvct: ", "monotonic: "))
    assert ("gil" in rows) == bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    assert rows["constructors"].startswith(
        "recorded" if backend == "monitoring" else "not recorded"
    )
    assert rows["threads"].startswith("recorded: ")
    # Before 3.12 a profile function slows all bytecode.
    assert ("bias" in rows) == (sys.version_info < (3, 12))
    assert "FASTPROF=1" in rows["switch"]
    assert "fastprof run" in rows["switch"]
    assert {"torch", "rich", "gpu", "clock", "other"} <= set(rows)


def test_s3_19_doctor_is_right_about_constructors_and_threads(backend: str) -> None:
    finished = threading.Event()

    def in_a_thread() -> None:
        finished.set()

    def run() -> None:
        collections.OrderedDict()
        _thread.start_new_thread(in_a_thread, ())
        assert finished.wait(30)

    snapshot = record(run, backend)
    names = {key.name for key in snapshot.keys}
    kinds = {key.kind for key in snapshot.keys}
    # The hook misses the constructor, and a thread that does not begin in the module threading.
    assert ("type" in kinds) == doctor.constructors(backend).startswith("recorded")
    everything = doctor.threads(backend).startswith("recorded: all")
    assert ("in_a_thread" in names) == everything == (backend == "monitoring")


def test_doctor_is_right_about_threads_that_run_already(backend: str) -> None:
    begun, go, finished = (threading.Event() for _ in range(3))

    def in_a_thread() -> None:
        finished.set()

    def waits() -> None:
        begun.set()
        assert go.wait(30)
        in_a_thread()

    def run() -> None:
        go.set()
        assert finished.wait(30)

    thread = threading.Thread(target=waits)
    thread.start()
    assert begun.wait(30)
    names = {key.name for key in record(run, backend).keys}
    thread.join(30)
    said = doctor.threads(backend)
    assert said.startswith(
        ("recorded: all", "recorded: threads that run at the start", "recorded: the")
    )
    assert ("in_a_thread" in names) == ("not others that run already" not in said)


@pytest.mark.parametrize(
    ("value", "text"),
    [("0", "FASTPROF=0: everything is switched off"), ("7", "FASTPROF=7 is ignored")],
)
def test_s3_19_doctor_tells_what_the_switch_does(value: str, text: str) -> None:
    result = fastprof_command("doctor", env={"FASTPROF": value}).check()
    assert text in result.stdout


def test_doctor_names_who_holds_the_hook() -> None:
    code = "import cProfile\nheld = cProfile.Profile()\nheld.enable()\n" + COMMAND
    result = run_child(code, "doctor", env=ENV).check()
    if sys.version_info >= (3, 12):
        assert "sys.monitoring tool 2: cProfile" in result.stdout
        assert "can be recorded: backend monitoring" in result.stdout
    else:
        assert "cannot be recorded now: " in result.stdout
        assert "sys.setprofile: Profile" in result.stdout


def test_doctor_does_not_import_torch() -> None:
    code = (
        "import sys\nfrom fastprof.cli import main\nmain(['doctor'])\n"
        "assert 'torch' not in sys.modules\n"
    )
    run_child(code, env=child_env(ENV)).check()


def test_findings_go_where_the_output_is_to_go(
    saved: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "findings.txt"
    assert main(["report", str(saved["fprof"]), "--findings", "-o", str(path)]) == 0
    assert capsys.readouterr().out == ""
    assert "Not checked:" in path.read_text()
    for other in (["--format", "json"], ["--table", "steps"]):
        assert main(["report", str(saved["fprof"]), "--checklist", *other]) == 2
        assert "print text" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["targets"],
        ["report", "F"],
        ["compare", "F", "F"],
    ],
)
def test_the_status_counts_without_standard_output(
    arguments: list[str], saved: dict[str, Path]
) -> None:
    closed = f"import sys\nsys.stdout = None\n{COMMAND}"
    words = [str(saved["fprof"]) if word == "F" else word for word in arguments]
    result = run_child(closed, *words, env=ENV)
    assert (result.returncode, result.stderr) == (0, "")


def test_f40_an_error_names_the_file_that_was_asked_for(
    saved: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "none" / "x.json")
    assert main(["report", str(saved["fprof"]), "-o", path]) == 2
    assert capsys.readouterr().err == f"fastprof: no such directory: {tmp_path / 'none'}\n"


def test_help_has_single_percent_signs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "%" in text
    assert "%%" not in text


def test_a_report_of_a_saved_run_is_made_without_collections(
    saved: dict[str, Path], tmp_path: Path
) -> None:
    # Each would visit all objects of a large run's report.
    found: list[str] = []
    main(["report", str(saved["fprof"])])  # imports its modules

    def note(phase: str, info: dict[str, int]) -> None:
        found.append(phase)

    gc.callbacks.append(note)
    try:
        for file in (str(saved["fprof"]), "no such file"):
            gc.collect()
            found.clear()
            main(["report", file, "-o", str(tmp_path / "out.html")])
            assert found.count("start") <= 1  # one is due as soon as the collector is on again
            assert gc.isenabled()
    finally:
        gc.callbacks.remove(note)
