"""The C library's clock stands still (libfaketime): everything ends, and no time is invented."""

from __future__ import annotations

import glob
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from fastprof._core import clock_name
from helpers import run_child, run_command, sanitized

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a library"),
    pytest.mark.skipif(sanitized(), reason="a sanitizer is preloaded"),
]

CLOCK = """
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int
clock_gettime(clockid_t id, struct timespec *t)
{
    if (id == CLOCK_MONOTONIC || id == CLOCK_REALTIME) {
        t->tv_sec = 1000;
        t->tv_nsec = 0;
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, id, t);
}
"""


@pytest.fixture
def frozen(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a process whose clock stands still."""
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(CLOCK)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run(
        [*compiler, "-D_GNU_SOURCE", "-shared", "-fPIC", str(source), "-o", str(library)],
        check=True,
    )
    return {"LD_PRELOAD": str(library)}


@pytest.mark.skipif(clock_name() == "monotonic", reason="this machine has no counter")
def test_a_recording_has_the_machines_time(frozen: dict[str, str]) -> None:
    """The counter's ticks counted as nanoseconds."""
    result = run_child(
        textwrap.dedent("""
        import time
        import fastprof

        def uptime():
            with open("/proc/uptime") as file:
                return float(file.read().split()[0])

        assert time.monotonic() == time.monotonic() == 1000.0
        with fastprof.Profiler(functions=True, skip_first=0) as prof:
            began = uptime()
            while uptime() < began + 0.5:
                pass
            prof.step()
            took = uptime() - began
        step = prof.snapshot().steps.sum_ns / 1e9
        assert 0.8 * took < step < 1.25 * took, (step, took)
        text = prof.report().to_text()
        text = " ".join(text.split())
        assert "cost unknown" in text, text
        """),
        env=frozen,
    )
    result.check()


def test_waits_end(frozen: dict[str, str]) -> None:
    """The time limit of a lock is the clock's: it never came."""
    result = run_child(
        textwrap.dedent("""
        import threading
        from fastprof.cli import job
        from fastprof.clock import acquired

        lock = threading.Lock()
        assert acquired(lock, 0.1) and not acquired(lock, 0.1)
        assert job._wait(".", "missing", 2, 0, lambda: True) == []
        """),
        env=frozen,
    )
    result.check()


@pytest.mark.parametrize("clock", ["2020-01-01 00:00:00", "+0 x20", "-3d x0.1"])
def test_a_run_under_the_real_libfaketime(tmp_path: Path, clock: str) -> None:
    libraries = glob.glob("/usr/lib*/*/faketime/libfaketime.so.1")
    if not libraries:
        pytest.skip("libfaketime is not installed")
    (tmp_path / "program.py").write_text(
        "import threading\n"
        "def work(): return sum(range(1000))\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start(); thread.join()\n"
        "print('done', flush=True)\n"
        "raise SystemExit(3)\n"
    )
    result = run_command(
        [sys.executable, "-m", "fastprof", "run", "-o", "out", "program.py"],
        env={"LD_PRELOAD": libraries[0], "FAKETIME": clock},
        cwd=tmp_path,
    ).check(returncode=3)
    assert result.stdout.startswith("done\n")
    assert result.stderr == ""
    assert (tmp_path / "out" / "train_profile.fprof").is_file()
