"""Shared by test files: child processes that may crash or hang, and the backends."""

from __future__ import annotations

import importlib.util
import os
import resource
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

ROOT = Path(__file__).resolve().parent.parent
GUARD = ROOT / "tests" / "guard"

#: Hook backends of this interpreter.
BACKENDS = ("setprofile", "monitoring") if sys.version_info >= (3, 12) else ("setprofile",)

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

MIB = 1 << 20

A = TypeVar("A")
T = TypeVar("T")


def sanitized(*names: str) -> bool:
    """Return whether this interpreter runs under a preloaded sanitizer: one of `names`, or any."""
    return any(name in os.environ.get("LD_PRELOAD", "") for name in names or ("asan", "tsan"))


def need_running_threads(backend: str) -> None:
    """Skip the test if the hook cannot be set in threads that run already."""
    version = sys.version_info[:3]
    if backend == "setprofile" and (version == (3, 14, 0) or (FREE_THREADED and version < (3, 14))):
        pytest.skip("3.14.0 and 3.13t set a profile function in their own thread only")


def check_patiently(check: Callable[[T], None], record: Callable[[int], T]) -> None:
    """Check the result of ``record(0)``; if the check fails, try two more recordings.

    A busy machine changes the shares of a step; a wrong rule fails three times.
    """
    for number in range(2):
        recorded = record(number)
        try:
            return check(recorded)
        except AssertionError as error:
            print(f"once more: {error}")
    return check(record(2))


def thread_state(thread: int) -> str:
    """Return the kernel's letter for the state of a thread: R runs, S sleeps.

    Raises:
        OSError: the thread no longer exists.
    """
    stat = Path(f"/proc/self/task/{thread}/stat").read_text()
    return stat[stat.rindex(")") + 2]


def wait_for_sleeping_threads(limit_s: float = 5.0) -> None:
    """Wait until every other thread of this process sleeps, twice in a row, or `limit_s`.

    For a fork under a sanitizer: GCC's sanitizers do not free their allocator's locks in the child,
    and a starting or ending thread (pytest's watchdog at each test) may hold one.
    """
    me = threading.get_native_id()
    deadline = time.monotonic() + limit_s
    quiet = 0
    while quiet < 2 and time.monotonic() < deadline:
        others = {int(thread) for thread in os.listdir("/proc/self/task")} - {me}
        try:
            asleep = all(thread_state(thread) == "S" for thread in others)
        except OSError:  # one has ended
            asleep = False
        if asleep:
            quiet += 1
        else:
            quiet = 0
            time.sleep(0.0005)


def time_scale() -> float:
    """Return the factor for limits against hanging (valgrind and sanitizers are slow)."""
    return float(os.environ.get("FASTPROF_TEST_TIME_SCALE", "1"))


def examples(count: int) -> int:
    """Return with how many examples to try a property: a quarter of `count`, in ``.ci/full`` all.

    ``.ci/run`` has the same examples each time.
    """
    return count if os.environ.get("FULL") else count // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """How a child process ended.

    `end` is "ok" (status 0), "status" (any other exit status), "crash" (a signal, or
    "Fatal Python error") or "hang" (it had to be killed).
    """

    end: str
    returncode: int
    stdout: str
    stderr: str

    def check(self, *, returncode: int = 0) -> ChildResult:
        """Fail the test and show the child's output, unless it ended with `returncode`."""
        if self.end in ("crash", "hang") or self.returncode != returncode:
            raise AssertionError(
                f"the child ended with {self.end}, exit status {self.returncode}, "
                f"not {returncode}\n--- stdout\n{self.stdout[-8000:]}"
                f"\n--- stderr\n{self.stderr[-8000:]}"
            )
        return self


def child_env(env: Mapping[str, str] | None = None, *, guard: bool = True) -> dict[str, str]:
    """Return this process's environment without FASTPROF variables, plus `env`.

    With `guard` the child refuses network connections, like the test process.
    """
    result = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FASTPROF") or name == "FASTPROF_TEST_TIME_SCALE"
    }
    result.update(env or {})
    if guard:
        paths = [str(GUARD), *filter(None, [result.get("PYTHONPATH")])]
        result["PYTHONPATH"] = os.pathsep.join(paths)
    return result


# A crash is expected in some tests; its core file would fill the disk.
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run_command(
    command: Sequence[str],
    *,
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
    rlimit_as: int | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: str | None = None,
    guard: bool = True,
) -> ChildResult:
    """Run `command` and return how it ended.

    Arguments:
        timeout: seconds after which it counts as a hang; only a limit, so generous.
        env: variables added to `child_env()`.
        rlimit_as: address space in bytes; ignored under a sanitizer, whose shadow memory
            takes terabytes of it.
        stdin: text for its standard input; None: no input.
        guard: whether the child refuses network connections.  Turn it off if every allocation of
            the child counts, and under ``-I`` or ``-E``, where it cannot work.
    """

    def limit_memory() -> None:
        assert rlimit_as is not None
        resource.setrlimit(resource.RLIMIT_AS, (rlimit_as, rlimit_as))

    # Use it only if necessary: it makes the child run Python between fork and exec, and another
    # thread may have locked a sanitizer's allocator at the fork.
    before_exec = None if rlimit_as is None or sanitized() else limit_memory
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="backslashreplace",
        env=child_env(env, guard=guard),
        cwd=cwd,
        # A separate group, to end a hanging child with its children.
        start_new_session=True,
        preexec_fn=before_exec,
    ) as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout * time_scale())
            end = "ok" if process.returncode == 0 else "status"
        except subprocess.TimeoutExpired:
            # SIGABRT makes faulthandler show the hanging code.
            os.killpg(process.pid, signal.SIGABRT)
            try:
                stdout, stderr = process.communicate(timeout=10.0)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                stdout, stderr = process.communicate()
            end = "hang"
    if end == "status" and (process.returncode < 0 or "Fatal Python error" in stderr):
        end = "crash"
    return ChildResult(end=end, returncode=process.returncode, stdout=stdout, stderr=stderr)


def at_once(run: Callable[[A], T], arguments: Iterable[A]) -> list[T]:
    """Call ``run`` for each argument at the same time, for children that mostly wait."""
    given = list(arguments)
    with ThreadPoolExecutor(len(given)) as pool:
        return list(pool.map(run, given))


def run_together(
    commands: Sequence[Sequence[str]], env: Mapping[str, str], limit_s: float = 120.0
) -> list[str]:
    """Run the ranks of a job, a command each; return their output.  All must succeed."""
    children = [
        subprocess.Popen(
            command, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for command in commands
    ]
    try:
        said = [child.communicate(timeout=limit_s * time_scale())[0] for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0] * len(children), said
    return said


def run_child(
    code: str,
    *args: str,
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
    rlimit_as: int | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: str | None = None,
    options: Sequence[str] = (),
    guard: bool = True,
) -> ChildResult:
    """Run `code` as a script in a new interpreter, faulthandler on; see `run_command`.

    `args` are the script's own arguments, `options` the interpreter's.  The code is in a
    file, not in ``-c``, so that tracebacks and profiles have its lines.
    """
    with tempfile.TemporaryDirectory(prefix="fastprof-child-") as folder:
        script = Path(folder) / "child.py"
        script.write_text(code, encoding="utf-8")
        command = [sys.executable, "-X", "faulthandler", *options, str(script), *args]
        return run_command(
            command,
            timeout=timeout,
            env=env,
            rlimit_as=rlimit_as,
            cwd=cwd,
            stdin=stdin,
            guard=guard,
        )


def imported_script(path: str) -> Any:
    """Return a script of this repository as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as dataclasses expect
    spec.loader.exec_module(module)
    return module
