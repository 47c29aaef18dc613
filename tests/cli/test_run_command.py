"""``fastprof run``: an unchanged training job, its report, its files and its summary."""

from __future__ import annotations

import gc
import io
import os
import pstats
import signal
import subprocess
import sys
import textwrap
import time
from optparse import Values
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof.cli import main
from fastprof.cli.exit_hooks import Endings
from helpers import ChildResult, at_once, child_env, run_child, time_scale

SOURCE_PATH = str(Path(fastprof.__file__).parent.parent)
ENV = {"PYTHONPATH": os.pathsep.join(filter(None, [SOURCE_PATH, os.environ.get("PYTHONPATH")]))}
COMMAND = "import sys\nfrom fastprof.cli import main\nsys.exit(main(['run', *sys.argv[1:]]))\n"

TRAIN = """
import sys, time
from fastprof import profile_section

class _Loader:
    def __iter__(self):
        yield from range(5)
        self._shutdown_workers()
    def _shutdown_workers(self):
        time.sleep(0.01)

def train():
    total = 0
    for batch in _Loader():
        with profile_section("forward"):
            total += step(batch)
        with profile_section("backward"):
            time.sleep(0.001)
    return total

def step(batch):
    return sum(range(batch))

print("trained", train(), sys.argv[1:])
"""

HEADINGS = [
    "=== TOP 25 BY CUMULATIVE TIME ===",
    "=== TOP 25 BY SELF TIME ===",
    "=== DATALOADER SHUTDOWN ===",
    "=== TENSOR.ITEM() CALLERS ===",
]


def fastprof_run(*args: object, cwd: Path, **options: Any) -> ChildResult:
    env = {**ENV, **options.pop("env", {})}
    return run_child(COMMAND, *map(str, args), env=env, cwd=cwd, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def functions(path: Path) -> dict[str, int]:
    stats: Any = pstats.Stats(str(path), stream=io.StringIO())
    return {label[2]: row[1] for label, row in stats.stats.items()}


def test_s0_09_the_report_and_then_the_four_blocks(folder: Path) -> None:
    text = fastprof_run("--full", "train.py", "--lr", "1", cwd=folder).check().stdout
    assert text.startswith("trained 10 ['--lr', '1']\n")
    places = [text.index(heading) for heading in HEADINGS]
    assert places == sorted(places)
    assert text.index("Sections, in order of first use") < places[0]
    sections = text[text.index("Sections, in order") :]
    assert sections.index("forward") < sections.index("backward")
    # The caller of _shutdown_workers: the loader's iterator.
    shutdown = text[places[2] : places[3]]
    assert "(_shutdown_workers)" in shutdown
    assert "(__iter__)" in shutdown
    assert "Tensor.item was not called" in text[places[3] :]


def test_s0_09_callers_of_tensor_item(folder: Path) -> None:
    pytest.importorskip("torch")
    (folder / "train.py").write_text(
        "import torch\ndef log(loss): return loss.item()\n"
        "for i in range(4): log(torch.tensor(1.0))\n"
    )
    text = fastprof_run("--full", "train.py", cwd=folder, timeout=180).check().stdout
    callers = text[text.index(HEADINGS[3]) :]
    assert "'item'" in callers
    assert "train.py:2(log)" in callers


@pytest.mark.parametrize("run_by", ["fastprof run", "FASTPROF=1"])
def test_a_program_that_fails_before_its_first_step_is_not_blamed_for_its_steps(
    folder: Path, run_by: str
) -> None:
    program = "import fastprof\n\ndef train():\n    raise KeyError('x')\n\ntrain()\n"
    (folder / "train.py").write_text(program)
    if run_by == "fastprof run":
        result = fastprof_run("train.py", cwd=folder)
    else:
        result = run_child(program, env={**ENV, "FASTPROF": "1"}, cwd=folder)
    printed = " ".join((result.stdout + result.stderr).split())
    assert "The program ended with KeyError before the end of its first step" in printed
    assert "saw no step" not in printed
    assert "Operators were not recorded" not in printed


def test_s0_10_the_files_are_in_fastprof_out(folder: Path) -> None:
    result = fastprof_run("train.py", cwd=folder).check()
    out = folder / "fastprof_out/latest"
    assert sorted(path.name for path in out.iterdir()) == [
        "train_profile.fprof",
        "train_profile.stats",
    ]
    assert functions(out / "train_profile.stats")["step"] == 5
    report = fastprof.load(out / "train_profile.fprof")
    assert report.section("forward").count == 5
    assert report.section("backward").total_ms >= 5
    written = " ".join(result.stdout.split())
    where = f"fastprof_out/{out.resolve().name}"
    assert f"Wrote {where}: train_profile.fprof, train_profile.stats" in written
    assert f"More: fastprof report {where} " in written


def test_s0_10_the_directory_can_be_chosen(folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN + "import os; os.chdir('/')\n")
    fastprof_run("-o", "deep/er", "train.py", cwd=folder).check()
    assert (folder / "deep/er/train_profile.stats").exists()


def test_s0_02_functions_only(folder: Path) -> None:
    text = fastprof_run("--full", "--functions", "-m", "train", cwd=folder).check().stdout
    assert "Sections, in order" not in text
    report = fastprof.load(folder / "fastprof_out/latest/train_profile.fprof")
    assert report.sections == ()
    assert [f.calls for f in report.functions if f.name == "step"] == [5]
    assert all(heading in text for heading in HEADINGS)


# Both layers end by the same code.
@pytest.mark.parametrize("options", [[], pytest.param(["--functions"], marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("sys.exit(7)", 7),
        ("raise ValueError('boom')", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os._exit(9)", 9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_every_ending_keeps_its_status_and_writes(
    folder: Path, options: list[str], ending: str, status: int
) -> None:
    (folder / "train.py").write_text(TRAIN + textwrap.dedent(ending) + "\n")
    result = fastprof_run(*options, "train.py", cwd=folder)
    assert result.returncode == status
    assert functions(folder / "fastprof_out/latest/train_profile.stats")["step"] == 5
    assert "\nWrote fastprof_out/train-" in result.stdout


def test_f42_two_ranks_with_the_same_arguments(folder: Path) -> None:
    def run(rank: int) -> ChildResult:
        env = {"RANK": str(rank), "WORLD_SIZE": "2"}
        return fastprof_run("train.py", cwd=folder, env=env).check()

    for rank, result in enumerate(at_once(run, (0, 1))):
        assert ("Wrote fastprof_out/" in result.stdout) == (rank == 0)
    assert sorted(path.name for path in (folder / "fastprof_out/latest").iterdir()) == [
        "rank0_train_profile.fprof",
        "rank0_train_profile.stats",
        "rank1_train_profile.fprof",
        "rank1_train_profile.stats",
    ]


def test_a_program_with_its_own_profiler_runs_unchanged(folder: Path) -> None:
    program = """
import fastprof
def step(): pass
step()
with fastprof.Profiler() as prof:
    step()
    prof.step()
print("own report:", prof.report().steps.count)
"""
    (folder / "train.py").write_text(program)
    result = fastprof_run("train.py", cwd=folder).check()
    assert "own report: 1" in result.stdout
    assert "profiling stopped: the program started its own Profiler" in result.stderr
    said = " ".join(result.stdout.split())
    assert " recorded until the program started its own Profiler, cost" in said
    assert "saw no step" not in said
    assert functions(folder / "fastprof_out/latest/train_profile.stats")["step"] == 1


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        ([], 2, "sage: "),
        (["-m"], 2, "sage: "),
        (["none.py"], 2, "can't open file 'none.py'"),
        (["-m", "no_such_module_xyz"], 1, "no module named"),
        (["--nonsense", "train.py"], 2, "no option '--nonsense'"),
        (["-o", "train.py", "train.py"], 2, "cannot write to"),
        (["-o", "/proc/1/x", "train.py"], 2, "cannot write"),
    ],
)
def test_bad_arguments(folder: Path, args: list[str], status: int, message: str) -> None:
    result = fastprof_run(*args, cwd=folder).check(returncode=status)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert "trained" not in result.stdout


def test_another_profiler_is_named_and_nothing_runs(folder: Path) -> None:
    code = (
        "import sys\nif sys.version_info >= (3, 12):\n"
        "    for i in range(6): sys.monitoring.use_tool_id(i, 'other')\n"
        "sys.setprofile(lambda *a: None)\n" + COMMAND
    )
    result = run_child(code, "train.py", env=ENV, cwd=folder).check(returncode=2)
    assert "trained" not in result.stdout
    assert result.stderr.startswith("fastprof: another profile function is active")


def test_names_that_standard_output_cannot_write_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        "from fastprof import profile_section\n"
        "def t\u00e2che():\n"
        "    with profile_section('donn\u00e9es'): pass\n"
        "t\u00e2che()\n",
        encoding="utf-8",
    )
    env = {"PYTHONIOENCODING": "ascii"}
    result = run_child(COMMAND, "--full", "work.py", cwd=tmp_path, env=env).check()
    assert "t\\xe2che" in result.stdout
    assert "=== TENSOR.ITEM() CALLERS ===" in result.stdout
    assert result.stderr == ""


def test_the_table_of_functions_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fastprof.cli import run_command
    from fastprof.export import pstats_
    from fastprof.session.environment.rank import Identity

    profile = fastprof.Profile()
    profile.runcall(sorted, [3, 1, 2], key=abs)
    made: list[object] = []

    def counted(*args: Any, **options: Any) -> Any:
        made.append(args)
        return original(*args, **options)

    original = pstats_.stats_dict
    monkeypatch.setattr(pstats_, "stats_dict", counted)
    monkeypatch.setattr(run_command, "stats_dict", counted)
    paths = [str(tmp_path / name) for name in run_command.FILES]
    options = Values({"output": str(tmp_path), "full": True})
    begun = run_command._Begun(str(tmp_path), str(tmp_path), 0, options)
    arguments = (paths, begun, Identity(), lambda: None, lambda: True, float("inf"))
    show = run_command._finish(profile.report(), *arguments)
    assert show is not None
    show()
    assert len(made) == 1
    assert pstats.Stats(paths[0]).total_calls >= 1
    assert HEADINGS[0] in capsys.readouterr().out


def test_a_program_without_standard_output_has_its_files(tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text("sorted([2, 1])\n")
    closed = f"import sys\nsys.stdout = None\n{COMMAND}"
    result = run_child(closed, "--functions", "quiet.py", env=ENV, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(os.listdir(tmp_path / "fastprof_out/latest")) == [
        "train_profile.fprof", "train_profile.stats"
    ]  # fmt: skip


def test_f40_a_full_disk_behind_standard_output_does_not_deny_the_files(tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text("sorted([2, 1])\n")
    full = f"import sys\nsys.stdout = open('/dev/full', 'w')\n{COMMAND}"
    result = run_child(full, "--functions", "quiet.py", env=ENV, cwd=tmp_path)
    assert "train_profile.fprof' written, but not shown" in result.stderr
    assert (tmp_path / "fastprof_out/latest/train_profile.fprof").exists()


def test_a_program_that_closes_standard_output_has_its_files(tmp_path: Path) -> None:
    """`python -m json.tool` closes it."""
    (tmp_path / "closes.py").write_text("import sys\nprint(5)\nsys.stdout.close()\n")
    result = fastprof_run("closes.py", cwd=tmp_path).check()
    assert result.stdout == "5\n"
    assert "written, but not shown: cannot write to standard output: the program has closed it" in (
        result.stderr
    )


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_collector_rests_while_the_profile_is_written(
    enabled: bool, fails: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    during: list[bool] = []

    def save() -> None:
        during.append(gc.isenabled())
        if fails:
            raise OSError("no room")

    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with Endings(lambda: None, save):
            pass
        assert during == [False]
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
    assert ("no room" in capsys.readouterr().err) is fails


def test_a_library_is_imported_without_the_hook_where_that_can_be(tmp_path: Path) -> None:
    installed = tmp_path / "lib" / "python3" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "light_library.py").write_text(
        "def call(n):\n    return n\n\nfor i in range(5000): call(i)\n"
    )
    (tmp_path / "mine.py").write_text("def used():\n    return 1\n\nused()\n")
    (tmp_path / "train.py").write_text("import light_library, mine\nmine.used()\n")
    env = {"PYTHONPATH": f"{installed}{os.pathsep}{ENV['PYTHONPATH']}"}
    for options in ((), ("--functions",)):
        done = fastprof_run(*options, "-o", "out", "train.py", cwd=tmp_path, env=env).check()
        assert done.stderr == ""
        names = functions(tmp_path / "out" / "train_profile.stats")
        assert names["used"] == 2
        # Only with --functions each function of an imported library has a row.
        folded = names.get("(functions during imports)", 0)
        assert names.get("call", 0) == (5000 if options else 0)
        assert (folded > 5000) is (not options and sys.version_info >= (3, 12))


FIRST_OF_TWO = {"RANK": "0", "WORLD_SIZE": "2"}
LATER = "`fastprof merge` compares all ranks by their files, when all have ended."


@pytest.mark.parametrize(
    "end",
    [
        "raise ValueError('x')",
        "sys.exit(3)",
        "import os; os._exit(0)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    ],
)
def test_rank_0_that_does_not_end_in_order_waits_for_no_rank(tmp_path, end):
    (tmp_path / "train.py").write_text(f"import sys\n{end}\n")
    result = fastprof_run("-o", "p", "train.py", cwd=tmp_path, env=FIRST_OF_TWO)
    assert "Wrote p" in result.stdout
    assert LATER in " ".join(result.stdout.split())
    assert "saved no file" not in result.stdout


def test_rank_0_that_ends_in_order_waits_for_the_others(tmp_path):
    (tmp_path / "train.py").write_text("import sys\nexec(sys.argv[1])\n")

    def run(number_and_end):
        number, end = number_and_end
        return fastprof_run("-o", str(number), "train.py", end, cwd=tmp_path, env=FIRST_OF_TWO)

    for result in at_once(run, enumerate(["", "sys.exit()", "sys.exit(0)"])):
        said = " ".join(result.check().stdout.split())
        assert "Rank 1 saved no file in the 5 s after rank 0 ended" in said


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, -15), (signal.SIGINT, 0)])
def test_a_signal_ends_the_wait_for_the_others_not_the_report(tmp_path, number, status):
    (tmp_path / "train.py").write_text("print('trained')\n")
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, "-o", "p", "train.py"],
        cwd=tmp_path, env=child_env({**ENV, **FIRST_OF_TWO}, guard=False), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        said = process.stderr.readline()
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60 * time_scale())
    assert said == "fastprof: rank 0 waits for the files of the other ranks, 5 s at most\n"
    assert process.returncode == status
    assert stderr == ""
    assert "Wrote p" in stdout
    assert LATER in " ".join(stdout.split())


#: Without the GIL, and with it.
WAITS = (("CDLL", signal.SIGTERM), ("PyDLL", signal.SIGHUP))


def test_a_signal_ends_a_program_that_waits_in_c_for_ever(tmp_path):
    """Like a rank in a collective when torchrun ends the job: else SIGKILL comes 30 s later."""
    (tmp_path / "train.py").write_text(
        """
import ctypes, sys
lib = getattr(ctypes, sys.argv[1])(None)
mutex = ctypes.create_string_buffer(64)
lib.pthread_mutex_lock(mutex)
print("ready", flush=True)
lib.pthread_mutex_lock(mutex)
"""
    )
    # They wait at the same time.
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COMMAND, "-o", loader, "train.py", loader],
            cwd=tmp_path, env=child_env(ENV, guard=False), text=True, stdout=subprocess.PIPE,
        )
        for loader, _ in WAITS
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        time.sleep(0.5 * time_scale())  # until they wait
        for process, (_, number) in zip(processes, WAITS, strict=True):
            process.send_signal(number)
        for process, (_, number) in zip(processes, WAITS, strict=True):
            assert process.wait(60 * time_scale()) == -number
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_nproc_starts_one_process_per_rank(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(folder)
    started: list[list[str]] = []

    def execv(path: str, command: list[str]) -> None:
        started.append(command)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execv)
    for options in (["--nproc", "3", "--full"], ["--full", "--nproc=3"]):
        with pytest.raises(SystemExit):
            main(["run", *options, "-m", "train", "--nproc", "7"])
        assert "--nproc-per-node=3" in started[-1]
        assert started[-1][-6:] == ["run", "--full", "-m", "train", "--nproc", "7"]


@pytest.mark.parametrize(
    ("size", "arguments", "said"),
    [
        ("4", ["2", "train.py"], "--nproc starts a job, and this is a process of a job of 4"),
        ("1", ["0", "train.py"], "--nproc is 0, expected 1 or more"),
        ("1", ["2", "nix.py"], "can't open file 'nix.py': No such file or directory"),
    ],
)
def test_nproc_that_cannot_be_is_one_line_and_status_2(
    folder: Path, size: str, arguments: list[str], said: str
) -> None:
    if arguments[-1] == "nix.py":
        pytest.importorskip("torch")
    env = {"WORLD_SIZE": size, "RANK": "0"}
    result = fastprof_run("--nproc", *arguments, cwd=folder, env=env).check(returncode=2)
    assert result.stderr.startswith(f"fastprof: {said}")
    assert result.stderr.count("\n") == 1
    assert not (folder / "fastprof_out").exists()


def test_nproc_without_torch_names_another_launcher(folder: Path) -> None:
    code = COMMAND.replace("import sys\n", "import sys\nsys.modules['torch'] = None\n")
    result = run_child(code, "--nproc", "2", "train.py", env=ENV, cwd=folder)
    assert result.check(returncode=2).stderr.startswith("fastprof: --nproc needs torch")


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (
            ["-m", "torch.distributed.run", "--nproc-per-node=2", "train.py", "--lr", "1"],
            "python -m torch.distributed.run --nproc-per-node=2 -m fastprof run train.py --lr 1",
        ),
        (["/bin/torchrun", "train.py"], "torchrun -m fastprof run train.py"),
        (
            ["accelerate", "launch", "--num_processes", "2", "train.py"],
            "accelerate launch --num_processes 2 -m fastprof run train.py",
        ),
        (["deepspeed", "train.py"], "deepspeed --module fastprof run train.py"),
        (["torchrun", "-m", "pkg.train"], "torchrun ... -m fastprof run TRAIN.py"),
    ],
)
def test_a_launcher_is_not_profiled_and_the_command_that_works_is_named(
    folder: Path, arguments: list[str], remedy: str
) -> None:
    result = fastprof_run(*arguments, cwd=folder).check(returncode=2)
    assert result.stdout == ""
    assert "starts the processes that train" in result.stderr
    assert result.stderr.endswith(f" start fastprof in them: {remedy}\n")
    assert not (folder / "fastprof_out").exists() or not any((folder / "fastprof_out").iterdir())


def test_os_exit_can_be_the_target_of_a_spawned_process(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import multiprocessing, os\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=os._exit, args=(5,))\n"
        "    process.start()\n"
        "    process.join()\n"
        "    print(process.exitcode)\n"
    )
    assert fastprof_run("program.py", cwd=tmp_path).check().stdout.startswith("5\n")


def test_the_main_thread_does_not_run_on_while_another_one_ends_the_process(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(
        "import os, threading, time\n"
        "threading.Thread(target=os._exit, args=(5,)).start()\n"
        "while True:\n"
        "    time.sleep(0.001)\n"
        "    if os.path.exists('out/train_profile.fprof'): print('ran on')\n"
    )
    result = fastprof_run("-o", "out", "program.py", cwd=tmp_path).check(returncode=5)
    assert "ran on" not in result.stdout
    assert (tmp_path / "out/train_profile.fprof").exists()


def test_ctrl_c_before_the_first_step_is_named(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    result = run_child(COMMAND, "work.py", cwd=tmp_path)
    said = " ".join(result.stdout.split())
    assert "The program ended with KeyboardInterrupt before the end of its first step" in said
    assert result.stderr.rstrip().endswith("KeyboardInterrupt")
