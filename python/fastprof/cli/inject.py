"""Puts a process that has not announced itself into standby, by ``sys.remote_exec`` (3.14+)."""

import json
import os
import re
import sys
import tempfile
from contextlib import suppress
from typing import Any

from fastprof.clock import time
from fastprof.session.outside.ask import NoAnswerError, named
from fastprof.session.outside.places import Place, Process, check_top, state_of, top_folder

#: The main thread runs the script when it next executes Python code.
_LIMIT_S = 30.0
_LOOK_S = 0.05
_VERSION = re.compile(r"(?:lib)?python(3\.[0-9]+)[a-z]*(?:[.-]|$)", re.ASCII)

#: It begins a thread, because the import takes longer than a pause of the program may.
_SCRIPT = """\
def _fastprof_begin():
    def run():
        import sys
        error = None
        try:
            if {path!r}:
                sys.path.insert(0, {path!r})
            try:
                import fastprof
                if getattr(fastprof, "__file__", None) is None:  # a folder of that name
                    del sys.modules["fastprof"]
                    raise ImportError("it cannot import fastprof")
                from fastprof.integrations import standby
            finally:
                if {path!r} in sys.path:
                    sys.path.remove({path!r})
            standby.begin({top!r}, temporary=True)
        except BaseException as found:
            error = type(found).__name__ + ": " + str(found)[:300]
        try:
            import json
            with open({answer!r}, "w") as stream:
                json.dump(error, stream)
        except OSError:
            pass
    import _thread
    _thread.start_new_thread(run, ())
_fastprof_begin()
del _fastprof_begin
"""


def inject(pid: int, why: str, pythonpath: str | None) -> tuple[Process, Place]:
    """Put a process into standby until its recording is over; return it.

    Args:
        pid: its number.
        why: the sentence that says why it cannot be asked without.
        pythonpath: a folder with the package fastprof, if it cannot import it; None: it can.

    Raises:
        NoAnswerError: that is not possible; the message says why, and what to do.
    """
    if state_of(pid) is None or os.stat(f"/proc/{pid}").st_uid != os.geteuid():
        raise NoAnswerError(why)
    version = version_of(pid)
    here = "{}.{}".format(*sys.version_info[:2])
    if version is None:
        raise NoAnswerError(f"process {pid} has no Python interpreter that is known by its files")
    if not hasattr(sys, "remote_exec") and version == here:
        raise NoAnswerError(
            f"process {pid} is one of Python {version}, which lets nobody in before 3.14: start it "
            "with FASTPROF=standby (it must import fastprof), or with `fastprof run`"
        )
    if version != here:
        raise NoAnswerError(
            f"process {pid} is one of Python {version} and this is {here}: only fastprof of Python "
            f"{version}, from 3.14 on, can attach to it; before 3.14 start it with FASTPROF=standby"
        )
    top = top_folder()
    if top is None:
        raise NoAnswerError(why)
    with suppress(FileExistsError):
        os.mkdir(top, 0o700)
    check_top(top)
    with tempfile.TemporaryDirectory(prefix=".attach-", dir=top) as folder:
        script, answer = os.path.join(folder, "attach.py"), os.path.join(folder, "answer")
        path = "" if pythonpath is None else os.path.abspath(pythonpath)
        with open(script, "w", encoding="utf-8") as stream:
            stream.write(_SCRIPT.format(path=path, top=top, answer=answer))
        _execute(pid, script)
        return _begun(pid, answer)


def _execute(pid: int, script: str) -> None:
    remote_exec: Any = sys.remote_exec  # type: ignore[attr-defined]
    try:
        remote_exec(pid, script)
    except PermissionError:
        raise NoAnswerError(
            f"the system lets nobody trace process {pid}: run this command as root or with "
            "CAP_SYS_PTRACE, in a container with --cap-add=SYS_PTRACE, or set "
            "/proc/sys/kernel/yama/ptrace_scope to 0"
        ) from None
    except (OSError, RuntimeError, ValueError) as error:
        raise NoAnswerError(
            f"process {pid} cannot be attached to: {error} (PYTHON_DISABLE_REMOTE_DEBUG or "
            "-X disable_remote_debug forbids it)"
        ) from None


def _begun(pid: int, answer: str) -> tuple[Process, Place]:
    until = time.monotonic() + _LIMIT_S
    while True:
        error = None
        with suppress(OSError, ValueError):
            with open(answer, encoding="utf-8") as stream:
                error = json.load(stream)
            if error is None:
                return named(str(pid))
        if error is not None:
            raise NoAnswerError(
                f"fastprof cannot begin in process {pid}: {str(error)[:300]} (--pythonpath names "
                "the folder that has the package fastprof)"
            )
        state = state_of(pid)
        if state is None or state[0] in "ZX":
            raise NoAnswerError(f"process {pid} has ended meanwhile")
        if time.monotonic() > until:
            stopped = f": it is stopped; `kill -CONT {pid}`" if state[0] in "Tt" else (
                ": its main thread runs no Python code, as in a long call of C code; it begins "
                "nothing later, since what it would read is gone"
            )  # fmt: skip
            raise NoAnswerError(f"process {pid} has not begun within {_LIMIT_S:g} s{stopped}")
        time.sleep(_LOOK_S)


def version_of(pid: int) -> str | None:
    """Return the version of the interpreter of a process, such as ``"3.14"``; None: unknown."""
    with suppress(OSError), open(f"/proc/{pid}/maps", errors="replace") as stream:
        for line in stream:
            found = _VERSION.match(os.path.basename(line.rstrip().rpartition(" ")[2]))
            if found is not None:
                return found[1]
    return None
