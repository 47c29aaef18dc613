"""Files are written completely or not at all, and read within bounds."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fastprof.errors import ExportError, LoadError
from fastprof.fileio import atomic_write, read_bounded, resolve_output
from fastprof.render import formats
from fastprof.results import saved as loading
from fastprof.results.report import build_report
from helpers import child_env, run_child
from unit.hostile import snapshot_with

SUFFIXES = (".fprof", ".stats", ".prof", ".pstats", ".json", ".txt", ".speedscope.json",
            ".collapsed", ".folded")  # fmt: skip

#: Creates a report in a child process; tests/ is its first argument.
MAKE = """
import sys
sys.path.insert(0, sys.argv[1])
from unit.hostile import snapshot_with
from fastprof.render import formats
from fastprof.results.report import build_report
report = build_report(snapshot_with("x" * 2000))
"""
TESTS = str(Path(__file__).resolve().parent.parent)


@pytest.fixture
def report():
    return build_report(snapshot_with("f"))


def write(path, data=b"new"):
    with atomic_write(str(path)) as stream:
        stream.write(data)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_p5_a_file_is_its_owners_alone_and_nothing_else_is_left(tmp_path, report, suffix):
    path = tmp_path / f"out{suffix}"
    report.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_p5_the_umask_limits_permissions_further(tmp_path):
    before = os.umask(0o277)
    try:
        write(tmp_path / "out")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o400


def test_p5_a_symlink_at_the_output_name_is_replaced_and_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    link = tmp_path / "out.fprof"
    link.symlink_to(victim)
    write(link)
    assert victim.read_bytes() == b"precious"
    assert not link.is_symlink()
    assert link.read_bytes() == b"new"


def test_p5_a_symlink_to_a_device_is_replaced_too(tmp_path):
    link = tmp_path / "out.fprof"
    link.symlink_to("/dev/full")
    write(link)
    assert link.read_bytes() == b"new"


def test_p5_what_was_there_stays_when_writing_fails(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"old")

    def fail_in_the_middle():
        with atomic_write(str(path)) as stream:
            stream.write(b"half of the n")
            raise KeyError

    with pytest.raises(KeyError):
        fail_in_the_middle()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, sys
from fastprof.fileio import atomic_write
with atomic_write(sys.argv[1]) as stream:
    stream.write(b"half of the n")
    stream.flush()
    os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files without a name are Linux's")
def test_p5_a_process_that_is_killed_while_it_writes_leaves_nothing(tmp_path):
    try:
        os.close(os.open(tmp_path, os.O_RDWR | os.O_TMPFILE))
    except OSError:
        pytest.skip("this file system has no files without a name")
    path = tmp_path / "out"
    for content in (None, b"old"):
        if content is not None:
            path.write_bytes(content)
        command = [sys.executable, "-c", KILLED, str(path)]
        assert subprocess.run(command, check=False, env=child_env()).returncode == -signal.SIGKILL
        assert list(tmp_path.iterdir()) == ([] if content is None else [path])


@pytest.mark.parametrize("refused", ["link", "open", "exists"])
def test_p5_where_files_without_a_name_are_refused_others_are_written(
    tmp_path, monkeypatch, refused
):
    def refuses(*args, **kwargs):
        nameless = getattr(os, "O_TMPFILE", 0)
        if refused == "open" and args[1] & nameless != nameless:
            return opens(*args, **kwargs)
        raise PermissionError(1, "no")

    opens = os.open
    if refused == "exists":
        monkeypatch.setattr("fastprof.fileio.os.path.exists", lambda path: False)
    else:
        monkeypatch.setattr(f"fastprof.fileio.os.{refused}", refuses)
    path = tmp_path / "out"
    for content in (b"new" * 1000, b"newer"):
        write(path, content)
        assert path.read_bytes() == content
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(tmp_path.iterdir()) == [path]


def test_f40_full_disk():
    device = Path("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write(device)
    assert stat.S_ISCHR(device.stat().st_mode), "the device itself was replaced"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_f40_full_disk_through_every_exporter(report, suffix):
    with pytest.raises(OSError, match="No space left"):
        with atomic_write("/dev/full") as stream:
            formats.write(report, formats.format_of(f"x{suffix}"), stream)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_f40_file_size_limit(tmp_path, suffix):
    child = run_child(
        MAKE + "import resource, os\n"
        "path = sys.argv[2]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    report.save(path)\n"
        "except OSError as error:\n"
        "    print('OSError', error.errno)\n"
        "print(os.listdir(os.path.dirname(path)))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "report.save(path)\n"  # the data is still there
        "print(os.listdir(os.path.dirname(path)))\n",
        TESTS,
        str(tmp_path / f"out{suffix}"),
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    ).check()
    assert child.stdout.splitlines() == ["OSError 27", "[]", f"['out{suffix}']"]


def test_f40_missing_and_read_only_directories(tmp_path, report):
    with pytest.raises(FileNotFoundError):
        report.save(tmp_path / "no" / "out.fprof")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        report.save(tmp_path / "file" / "out.fprof")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_f40_read_only_directory_as_another_user(tmp_path, report):
    tmp_path.chmod(0o555)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setuid(65534)
            report.save(tmp_path / "out.fprof")
        except PermissionError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_f40_a_directory_as_the_name(tmp_path, report, suffix):
    path = tmp_path / f"out{suffix}"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        report.save(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("path", ["out\0.fprof", ""])
def test_f40_a_nul_or_nothing_in_the_name(report, path):
    with pytest.raises(ValueError):
        report.save(path)
    with pytest.raises(ValueError):
        resolve_output(path)


@pytest.mark.parametrize("path", [b"out.fprof", 7, None])
def test_an_invalid_path_is_a_type_error(path):
    with pytest.raises(TypeError):
        resolve_output(path)


def test_f41_a_relative_path_means_what_it_meant_when_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = resolve_output("out.fprof")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write(path)
    assert (tmp_path / "out.fprof").read_bytes() == b"new"


def test_an_unknown_suffix_is_refused_and_the_known_ones_are_named(tmp_path, report):
    with pytest.raises(ExportError) as caught:
        report.save(tmp_path / "out.html5")
    assert all(suffix in str(caught.value) for suffix in SUFFIXES)
    assert list(tmp_path.iterdir()) == []


def test_a_suffix_in_capitals_is_known(tmp_path, report):
    report.save(tmp_path / "OUT.TXT")
    assert (tmp_path / "OUT.TXT").read_text() == report.to_text(full=True)


def test_a_pipe_is_written_directly_and_one_without_a_reader_is_an_error(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError):
        write(path)
    got = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    while True:
        try:
            write(path, b"x" * 200_000)  # more than a pipe holds
            break
        except OSError:  # the reader has not opened it yet
            time.sleep(0.01)
    reader.join()
    assert got == [b"x" * 200_000]
    assert stat.S_ISFIFO(path.lstat().st_mode)


def test_standard_output_can_be_named(tmp_path):
    child = run_child(
        "from fastprof.fileio import atomic_write, resolve_output\n"
        "with atomic_write(resolve_output('/dev/stdout')) as stream: stream.write(b'hello')\n",
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    ).check()
    assert child.stdout == "hello"


SIX_KILLED = (
    MAKE
    + """
import json, os, random, signal, time
from fastprof.results import saved as loading
dice = random.Random(21)
for _ in range(6):
    wait, ready = os.pipe()
    child = os.fork()
    if child == 0:
        while True:
            for suffix in (".fprof", ".stats", ".json"):
                report.save(sys.argv[2] + suffix)
            os.write(ready, b"x")
    os.close(ready)
    os.read(wait, 1)
    time.sleep(dice.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    os.close(wait)
    assert loading.load(sys.argv[2] + ".fprof").sections[0].count == 10
    assert len(loading.load(sys.argv[2] + ".stats").functions) == 3
    with open(sys.argv[2] + ".json") as file:
        json.load(file)
"""
)


def test_f21_a_child_that_is_killed_while_it_writes_leaves_a_complete_file(tmp_path):
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    run_child(SIX_KILLED, TESTS, str(tmp_path / "run"), env=env).check()


# ---- reading ----


def test_f46_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/null"):
        with pytest.raises(LoadError, match="not a regular file"):
            read_bounded(path, max_bytes=100)
    with pytest.raises((LoadError, IsADirectoryError)):
        read_bounded(tmp_path, max_bytes=100)


def test_f46_a_file_may_not_be_larger_than_the_limit(tmp_path):
    path = tmp_path / "in"
    path.write_bytes(b"x" * 100)
    assert read_bounded(path, max_bytes=100) == b"x" * 100
    with pytest.raises(LoadError, match="max_bytes=99"):
        read_bounded(path, max_bytes=99)


def test_f46_a_file_that_says_it_is_empty_is_read_within_the_limit():
    # Files in /proc have size 0 and content.
    with pytest.raises(LoadError, match="max_bytes=10 "):
        read_bounded("/proc/self/status", max_bytes=10)


def test_f40_a_nul_in_the_name_of_a_file_to_read():
    with pytest.raises(ValueError):
        read_bounded("a\0b", max_bytes=10)


def test_f46_a_missing_file_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        loading.load(tmp_path / "no.fprof")
