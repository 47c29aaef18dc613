"""Starts one process per run, and ends what does not end."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fastprof.trial.model import CRASHED, HUNG, Answer, Plan

#: Makes the interpreter the command of one run; "-m" would put the current folder on its path.
_CODE = "import sys; sys.argv[0] = 'fastprof'; from fastprof.cli.try_child import main; "
_CHILD = _CODE + "sys.exit(main())"

#: Seconds for a program to clean up after its last step, and to end after SIGTERM.
_CLEAN_UP_S, _TERMINATED_S = 20.0, 5.0
#: A run may take so many times as long as the longest of the baseline, and at least so many
#: seconds.
_TIMES, _LEAST_S = 4.0, 60.0
_POLL_S = 0.02
_LONGEST_REASON = 160


@dataclass(frozen=True, slots=True)
class Failure:
    """A run without an answer: ``crashed`` or ``hung``, and what it wrote last."""

    status: str
    reason: str


class Runs:
    """The runs of one program.

    Args:
        folder: for recordings and output.
        words: the program and its arguments, as for ``python``.
        scratch: the program's output folder; each run gets a copy of it.  None: they share it.
    """

    def __init__(self, folder: Path, words: Sequence[str], scratch: str | None) -> None:
        self.folder = folder
        self._words = list(words)
        if scratch is not None and words[0].startswith(".."):
            # Runs work in another folder.
            self._words[0] = os.path.abspath(words[0])
        self._scratch = scratch
        self._longest_s: float | None = None
        self.count = 0

    def run(self, name: str, plan: Plan, *, is_baseline: bool = False) -> Answer | Failure:
        """Run the program once; ``name`` names its files."""
        plan = replace(
            plan,
            answer=str(self.folder / f".{name}.json"),
            run=str(self.folder / f"{name}.fprof"),
        )
        plan_file = self.folder / f".{name}.plan"
        plan_file.write_text(plan.to_json(), encoding="utf-8")
        work = None if self._scratch is None else _copy_of_work(self.folder, name, self._scratch)
        self.count += 1
        began = time.monotonic()
        limit = None if self._longest_s is None else began + self._limit_s
        try:
            with open(self.folder / f"{name}.log", "wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-c", _CHILD, str(plan_file), *self._words],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                    start_new_session=True, cwd=work, env=_environment(),
                )  # fmt: skip
                try:
                    in_time = _wait(process, Path(plan.answer), limit)
                finally:
                    _end(process)
            if is_baseline:
                self._longest_s = max(self._longest_s or 0.0, time.monotonic() - began)
            return self._answer(plan, name, process.returncode, in_time=in_time)
        finally:
            plan_file.unlink(missing_ok=True)
            Path(plan.answer).unlink(missing_ok=True)
            if work is not None:
                shutil.rmtree(work, ignore_errors=True)

    @property
    def _limit_s(self) -> float:
        return max(_LEAST_S, _TIMES * (self._longest_s or 0.0))

    def _answer(self, plan: Plan, name: str, status: int, *, in_time: bool) -> Answer | Failure:
        last = _last_line(self.folder / f"{name}.log")
        try:
            answer = Answer.from_json(Path(plan.answer).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            answer = None
        if not in_time:
            return Failure(HUNG, f"no end after {self._limit_s:.0f} s")
        # After the last step the program has no say in the result.
        reached = answer is not None and len(answer.ends_ns) >= plan.steps
        if answer is None or (status and not reached):
            return Failure(CRASHED, last or f"exit status {status}")
        return answer


def _environment() -> dict[str, str]:
    # The order of sets is a part of the program's results.
    return {"PYTHONHASHSEED": "0", **os.environ}


def _wait(process: "subprocess.Popen[bytes]", answer: Path, limit: float | None) -> bool:
    """Wait for the end of a process; False: it did not answer before the limit."""
    until = None
    while process.poll() is None:
        now = time.monotonic()
        if until is None and answer.exists():
            until = now + _CLEAN_UP_S
        if until is not None and now > until:
            return True
        if until is None and limit is not None and now > limit:
            return False
        time.sleep(_POLL_S)
    return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process and all that it has started."""
    try:
        if process.poll() is None:
            _signal(process, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_TERMINATED_S)
    finally:  # after a second Ctrl-C, too
        # Its workers are in its session, also if it has ended.
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _last_line(path: Path) -> str:
    with suppress(OSError):
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in map(str.strip, text.splitlines()) if line]
        # fastprof's own lines are no reason.
        lines = [line for line in lines if not line.startswith("fastprof:")]
        return lines[-1][:_LONGEST_REASON] if lines else ""
    return ""


def _copy_of_work(folder: Path, name: str, output: str) -> Path:
    """Return a folder with links to all that is in the current one, and a copy of ``output``."""
    here = Path.cwd()
    work = folder / f".{name}-work"
    work.mkdir()
    copy = work
    for part in Path(output).parts:
        for path in here.iterdir() if here.is_dir() else ():
            if path.name != part:
                (copy / path.name).symlink_to(path)
        here, copy = here / part, copy / part
        copy.mkdir()
    if here.is_dir():
        shutil.copytree(here, copy, symlinks=True, dirs_exist_ok=True)
    return work
