"""Asks the questions of questions.py, saves the answers, and only then judges.

    python runner.py --data FOLDER [--part N] [--only NAME] [--device torch|simulated]

tests/gpu/first_day calls it.  FOLDER/answers has a file per question, FOLDER/logs the programs'
output.  A question with an answer is not asked again, unless --only names it.  If $OUT is set, that
folder gets an archive of everything and the verdicts after each question, so that little is lost if
this process is ended.  Exit status: 0 if nothing failed, else 1.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import answering
import judge
from judge import FAIL, NOT_ASKED, Verdict
from questions import QUESTIONS, Question

HERE = Path(__file__).resolve().parent

#: With less time left, start no program.
LEAST_S = 10.0


class Asking:
    """Asks questions of a device until a given time of the monotonic clock."""

    def __init__(self, data: Path, device: str, env: Mapping[str, str], until: float) -> None:
        self.answers, self.logs = data / "answers", data / "logs"
        for folder in (self.answers, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.device = device
        self.env = {**env, answering.FOLDER: str(self.answers), "PYTHONUNBUFFERED": "1"}
        self.until = until

    def has(self, question: Question) -> bool:
        return (self.answers / f"{question.name}.json").exists()

    def forget(self, questions: Sequence[Question]) -> None:
        """Drop their answers, so that they are asked again."""
        for one in questions:
            (self.answers / f"{one.name}.json").unlink(missing_ok=True)

    def ask(self, questions: Sequence[Question]) -> None:
        """Ask those without an answer, in one process; if it fails, ask the rest one by one."""
        missing = [one for one in questions if not self.has(one) and not one.compares]
        if self.device == "simulated":
            for one in missing:
                if not one.simulated:
                    self._save(one, "not asked", "simulation")
            missing = [one for one in missing if one.simulated]
        if len(missing) > 1:
            self._run(missing, keep=False)
            missing = [one for one in missing if not self.has(one)]
        for one in missing:
            self._run([one], keep=True)

    def _run(self, questions: Sequence[Question], keep: bool) -> None:
        """Run the program of some questions; ``keep``: save an error as the answer."""
        first = questions[0]
        limit = min(float(max(one.limit_s for one in questions)), self.until - time.monotonic())
        if limit < LEAST_S:
            return
        names = [one.name for one in questions]
        command = [sys.executable, str(HERE / first.script), self.device, *names]
        log = self.logs / f"{first.name}.txt"
        with log.open("ab") as stream:
            stream.write(f"$ {' '.join(command)}\n".encode())
            stream.flush()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=self.env,
                start_new_session=True,
            )
            try:
                status: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end_group(process)
        if not keep or self.has(first):
            return
        if status is None:
            self._save(first, "timed out", f"ended after {limit:.0f} s")
        else:
            said = log.read_text(errors="replace").strip().splitlines()[-1:]
            self._save(first, "failed", f"exit status {status}: {' '.join(said)}")

    def _save(self, question: Question, status: str, reason: str) -> None:
        path = self.answers / f"{question.name}.json"
        about = {"question": question.name, "device": self.device}
        answering.save(path, about | {"status": status, "reason": reason})


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a program and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wanted(part: int | None, only: Sequence[str]) -> list[Question]:
    """Return the questions of a part, or some by name."""
    known = {one.name for one in QUESTIONS}
    for name in only:
        if name not in known:
            raise SystemExit(
                f"there is no question {name!r}; there are: {', '.join(sorted(known))}"
            )
    return [
        one
        for one in QUESTIONS
        if (part is None or one.part == part) and (not only or one.name in only)
    ]


def rounds(questions: Sequence[Question]) -> Iterator[list[Question]]:
    """Yield the questions for one process."""
    numbered = enumerate(questions)
    for _, some in groupby(numbered, key=lambda pair: pair[1].together or str(pair[0])):
        yield [one for _, one in some]


def environment(device: str, data: Path) -> dict[str, str]:
    """Return the environment of the programs; build the simulated device."""
    if device == "torch":
        return {name: value for name, value in os.environ.items() if name != "FASTPROF"}
    import build_fake
    from fake_handles import FakeGpu

    folder = data / "simulation"
    folder.mkdir(parents=True, exist_ok=True)
    build_fake.build_module(folder)
    libraries = (build_fake.build_cupti, build_fake.build_cuda, build_fake.build_nvml)
    fake = FakeGpu(folder, *(build(folder) for build in libraries))
    return fake.env()


def leave(data: Path, verdicts: Sequence[Verdict], out: Path | None) -> None:
    """Write the verdicts and the files of $OUT, each whole or not at all."""
    lines = "".join(f"{one.line()}\n" for one in verdicts)
    (data / "verdicts.txt").write_text(lines, encoding="utf-8")
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    (out / "verdicts.txt").write_text(lines, encoding="utf-8")
    beside = out / "first_day.tar.gz.part"
    with tarfile.open(beside, "w:gz", compresslevel=6) as archive:
        for name in ("answers", "logs", "verdicts.txt", "subject.txt"):
            if (data / name).exists():
                archive.add(data / name, arcname=f"first_day/{name}")
    beside.replace(out / "first_day.tar.gz")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", choices=("torch", "simulated"), default="torch")
    parser.add_argument("--part", type=int, choices=(1, 2, 3, 4))
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for everything")
    arguments = parser.parse_args(argv)
    until = time.monotonic() + arguments.limit
    out = Path(os.environ["OUT"]) if os.environ.get("OUT") else None
    questions = wanted(arguments.part, arguments.only)
    env = environment(arguments.device, arguments.data)
    asking = Asking(arguments.data.resolve(), arguments.device, env, until)
    if arguments.only:
        asking.forget(questions)
    verdicts: list[Verdict] = []
    for some in rounds(questions):
        asking.ask(some)
        for one in some:
            found = judge.judge(one, judge.read(asking.answers, one))
            verdicts.append(found)
            print(found.line(), flush=True)
        leave(arguments.data, verdicts, out)
    count = {
        kind: sum(v.verdict == kind for v in verdicts) for kind in (judge.PASS, FAIL, NOT_ASKED)
    }
    print(", ".join(f"{number} {kind}" for kind, number in count.items()))
    return 1 if count[FAIL] else 0


if __name__ == "__main__":
    sys.exit(main())
