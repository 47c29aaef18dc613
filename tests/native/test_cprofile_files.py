"""``Profile.dump_stats``, ``run`` and ``runctx``: files whole or not at all, data never lost."""

from __future__ import annotations

import io
import os
import pstats
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof.capture import calibrate

LEN = ("~", 0, "<built-in method builtins.len>")


@pytest.fixture
def profile() -> fastprof.Profile:
    made = fastprof.Profile()
    made.runcall(len, ())
    return made


@contextmanager
def small_files_only() -> Iterator[None]:
    """RLIMIT_FSIZE of 100 bytes, as an error of write() and not as a signal.

    Keep it short: pytest's own output may go to a file.
    """
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def stats_in(path: Path) -> Any:
    return pstats.Stats(str(path), stream=io.StringIO()).stats  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("/dev/full", OSError),
        ("none/p.stats", FileNotFoundError),
        (".", IsADirectoryError),
        ("a\0b", ValueError),
        ("", ValueError),
        (3.5, TypeError),
    ],
)
def test_f40_what_cannot_be_written_raises_and_stays_in_memory(
    profile: fastprof.Profile, name: Any, error: type[Exception], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error):
        profile.dump_stats(name)
    assert profile.stats[LEN][:2] == (1, 1)
    assert not list(tmp_path.iterdir())
    profile.dump_stats(tmp_path / "elsewhere.stats")
    assert stats_in(tmp_path / "elsewhere.stats")[LEN][:2] == (1, 1)


def test_f40_a_file_size_limit_leaves_what_was_there(
    profile: fastprof.Profile, tmp_path: Path
) -> None:
    path = tmp_path / "p.stats"
    path.write_bytes(b"before")
    with small_files_only(), pytest.raises(OSError, match="File too large"):
        profile.dump_stats(path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_f40_a_read_only_directory(profile: fastprof.Profile, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    pid = os.fork()
    if not pid:
        try:
            os.setresuid(65534, 65534, 65534)
            profile.dump_stats(tmp_path / "p.stats")
        except PermissionError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_path_object_and_bytes_written_are_what_pstats_reads(
    profile: fastprof.Profile, tmp_path: Path
) -> None:
    profile.dump_stats(tmp_path / "a.stats")
    profile.dump_stats(str(tmp_path / "b.stats"))
    assert stats_in(tmp_path / "a.stats") == stats_in(tmp_path / "b.stats") == profile.stats


def test_f43_names_that_no_reader_could_take(tmp_path: Path) -> None:
    names = ["\ud800", "a\0b", "line\nbreak", "x" * 5000, "\u202eright", "\x1b[31m", ""]
    profile = fastprof.Profile()

    def work() -> None:
        pass

    for name in names:
        work.__code__ = work.__code__.replace(co_name=name, co_filename=f"<{name}>")
        profile.runcall(work)
    path = tmp_path / "p.stats"
    profile.dump_stats(path)
    read = stats_in(path)
    assert len([label for label in read if label[0].startswith("<")]) == len(names)
    for label in read:
        for part in (label[0], label[2]):
            part.encode("utf-8")
            assert part.isprintable()
    with redirect_stdout(io.StringIO()) as out:
        profile.print_stats()
    out.getvalue().encode("ascii", "strict")


def test_run_and_runctx_print_or_save(tmp_path: Path) -> None:
    with redirect_stdout(io.StringIO()) as out:
        fastprof.run("len(())", sort="tottime")
        fastprof.runctx("len(x)", {}, {"x": ()}, sort=("calls", "name"))
    assert "Ordered by: internal time" in out.getvalue()
    assert "Ordered by: call count, function name" in out.getvalue()
    assert out.getvalue().count("{built-in method builtins.len}") == 2
    assert out.getvalue().count("The function hook cost an estimated") == 2
    fastprof.run("len(())", str(tmp_path / "a"))
    fastprof.runctx("len(())", {}, {}, str(tmp_path / "b"))
    assert stats_in(tmp_path / "a")[LEN]
    assert stats_in(tmp_path / "b")[LEN]


def test_print_stats_says_when_nothing_was_corrected() -> None:
    profile = fastprof.Profile(correct=False)
    profile.runcall(len, ())
    with redirect_stdout(io.StringIO()) as out:
        profile.print_stats()
    assert "it is included in all times" in out.getvalue()


def test_corrected_times_are_the_default_and_never_larger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A second measurement may find other costs than those used for the correction.
    monkeypatch.setattr(calibrate, "_LATER_S", float("inf"))

    def many() -> None:
        for _ in range(2000):
            len(())

    profile = fastprof.Profile()
    profile.runcall(many)
    profile.create_stats()
    corrected = profile.stats
    profile._correct = False
    profile.create_stats()
    raw = profile.stats
    assert corrected.keys() == raw.keys()
    for label, row in corrected.items():
        assert row[:2] == raw[label][:2]
        assert row[2] <= raw[label][2] + 1e-9
        assert row[3] <= raw[label][3] + 1e-9
    cost = profile.snapshot().calibration
    # On a busy machine the calibration may find no cost inside C calls.
    assert (corrected[LEN][2] < raw[LEN][2]) == (cost is not None and cost.c.inside_ns > 0)


def test_pstats_takes_the_profiler_itself(profile: fastprof.Profile) -> None:
    stats: Any = pstats.Stats(profile, stream=io.StringIO())
    assert stats.stats[LEN][:2] == (1, 1)
    assert stats.total_calls >= 1
