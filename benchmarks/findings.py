"""Counts right and wrong findings on a corpus of training scripts with known findings.

    python benchmarks/findings.py [--only NAME ...] [--limit N] [--no-fixes]
        [--beside N] [--json FILE [--resume]]

Each script of ``benchmarks/corpus`` and ``examples/problems`` runs under ``fastprof run``.  Its
first lines name the right findings (``Right: rule, rule`` or ``none``; a problem's is its
``Rule:``): any other finding is wrong.  A right finding should name one of the lines that end with
``# the cause``.  ``Fix: rule OPTION ... [xN]`` tells how to apply a fix (of a problem
``Advice: OPTION``, or else ``--healthy``, which may take away more); the script then runs
without fastprof, unchanged and with the option, in turns, and the benchmark compares the time saved
per step to the finding's promise (``xN``: a step does the work of N); a finding without a promise
does not count.  A step of a script without an optimizer is a batch of its loader.  The CPU time
saved is shown, too: it is hardly disturbed by other programs, but lacks what a program waits for
(storage, locks, workers).  So is the CPU use of other programs: if it is high, a time proves
nothing.  With ``--beside N`` the scripts run beside N busy loops; the fixes do not.  With
``--json`` a file gathers the results of several calls, each as soon as it is known and with its
commit; ``--resume`` skips scripts that the file has.  Needs torch; skips scripts whose libraries
are missing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from harness import Cell, Table, machine, render

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "benchmarks" / "corpus"
PROBLEMS = ROOT / "examples" / "problems"
#: Not scripts, but modules that they share.
_SHARED = ("kit", "gpt")
#: Further right findings of a problem: the objects that burden the collector are created in no
#: phase.  A loop over elements creates a tensor for each in no phase, and the collector visits it.
_ALSO = {"gc_pressure": ("unaccounted",), "item_every_value": ("gc-pressure", "unaccounted")}
#: Limit of a run in seconds.
LIMIT_S = 120
#: Steps before measuring; `fastprof run` leaves them out, too.
WARM = 3
#: Rules that depend on the machine's other work, not on the script.
_OF_THE_MACHINE = ("cpu-contention",)


@dataclass(frozen=True)
class Fix:
    """How to apply the advice of a rule."""

    rule: str
    options: tuple[str, ...]
    scale: int


@dataclass(frozen=True)
class Script:
    """A training script and its right findings."""

    name: str
    path: Path
    options: tuple[str, ...]
    right: frozenset[str]
    fix: Fix | None
    causes: frozenset[int] = frozenset()


@dataclass
class Result:
    """Findings in a script: (rule, severity, title, saving in ms); times of the fix.

    ``outside`` are the rules of findings whose time is in no step, such as saving checkpoints.
    ``line``: a right finding names a line of the cause; None if the script marks none.
    """

    name: str
    right: list[str]
    found: list[tuple[str, str, str, float | None]] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    step_ms: float | None = None
    fix: str | None = None
    before_ms: float | None = None
    after_ms: float | None = None
    before_cpu_ms: float | None = None
    after_cpu_ms: float | None = None
    line: bool | None = None
    others: float | None = None
    waiting: float | None = None
    error: str = ""
    commit: str = ""
    when: str = ""


def scripts() -> list[Script]:
    """Return the corpus, the problems, and the problems' healthy versions."""
    found = []
    for path in sorted(CORPUS.glob("*.py")):
        if path.stem in _SHARED:
            continue
        text = path.read_text(encoding="utf-8")
        right = re.search(r"^Right: (.*)\.$", text, re.MULTILINE)
        fix = re.search(r"^Fix: (\S+) (.*?)(?: x(\d+))?\.$", text, re.MULTILINE)
        rules = frozenset(right[1].split(", ")) - {"none"} if right else frozenset[str]()
        how = Fix(fix[1], tuple(fix[2].split()), int(fix[3] or 1)) if fix else None
        lines = enumerate(text.splitlines(), 1)
        causes = frozenset(n for n, line in lines if line.endswith("# the cause"))
        found.append(Script(path.stem, path, (), rules, how, causes))
    for path in sorted(PROBLEMS.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        rule = re.search(r"^Rule: (.*)\.$", text, re.MULTILINE)
        if rule is None:
            continue
        advice = re.search(r"^Advice: (.*)\.$", text, re.MULTILINE)
        scale = 256 if path.stem == "tiny_batches" else 1
        fix_of = Fix(rule[1], (advice[1] if advice else "--healthy",), scale)
        rules = frozenset({rule[1], *_ALSO.get(path.stem, ())})
        found.append(Script(path.stem, path, (), rules, fix_of))
        found.append(Script(f"{path.stem}-healthy", path, ("--healthy",), frozenset(), None))
    return found


def in_fork(work: Callable[[], object], log: Path) -> str:
    """Run ``work`` in a fork whose output goes to a file; return the error, or an empty string."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(out, 1)
            os.dup2(out, 2)
            work()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            return "" if code == 0 else f"status {code}: {lines[-1] if lines else ''}"
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"did not end in {LIMIT_S} s"


@contextmanager
def beside(loops: int) -> Iterator[None]:
    """Let ``loops`` programs compute meanwhile.

    Each has its own session: Linux shares the CPUs among sessions first (``sched_autogroup``).
    """
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(loops)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def profile(script: Script, folder: Path, result: Result) -> None:
    """Fill in the findings of fastprof."""
    import fastprof

    out = folder / script.name
    command = ["-m", "fastprof", "run", "-o", str(out), str(script.path), *script.options]

    def work() -> None:
        # Not in this process: the collector would not visit what it has imported before the run.
        os.execv(sys.executable, [sys.executable, *command])

    result.error = in_fork(work, folder / "log.txt")
    files = sorted(out.rglob("*.fprof"))
    if result.error or not files:
        result.error = result.error or "no run was saved"
        return
    report = fastprof.load(files[0])
    result.step_ms = report.steps.mean_ms
    result.found = [(f.rule, f.severity, f.title, f.saving_ms) for f in report.findings]
    result.outside = [f.rule for f in report.findings if f.saving_total_ms is not None]
    if script.causes and script.right:
        words = " ".join(
            " ".join((f.title, *f.evidence)) for f in report.findings if f.rule in script.right
        )
        lines = {int(n) for n in re.findall(rf"{script.path.name}:(\d+)", words)}
        result.line = bool(lines & script.causes)
    split = {row.name: row.share for row in report.steps.split}
    result.waiting = split.get("cpu_wait")


def step_ms(script: Script, options: tuple[str, ...], folder: Path) -> tuple[float, float] | None:
    """Return the mean time and CPU time of a step without fastprof; None: unknown."""
    out = folder / "times.json"
    out.unlink(missing_ok=True)

    def work() -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        times: list[tuple[float, float]] = []
        batches: list[tuple[float, float]] = []
        fetch = _BaseDataLoaderIter.__next__

        def fetch_timed(iterator: Any) -> Any:
            batches.append((time.perf_counter(), time.process_time()))
            return fetch(iterator)

        _BaseDataLoaderIter.__next__ = fetch_timed
        register_optimizer_step_post_hook(
            lambda *_: times.append((time.perf_counter(), time.process_time()))
        )
        sys.argv = [str(script.path), *options]
        sys.path.insert(0, str(script.path.parent))
        runpy.run_path(str(script.path), run_name="__main__")
        out.write_text(json.dumps(times or batches))

    error = in_fork(work, folder / "plain.txt")
    times = json.loads(out.read_text()) if not error and out.exists() else []
    if len(times) <= WARM + 2:
        return None
    wall, cpu = (
        1e3 * (b - a) / (len(times) - 1 - WARM) for a, b in zip(times[WARM], times[-1], strict=True)
    )
    return wall, cpu


def others_since(before: tuple[float, ...] = ()) -> tuple[float, ...]:
    """Return the time, CPU seconds of the machine and of this program; others' CPUs since then."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return (0.0, 0.0, 0.0, 0.0)
    user, nice, system = map(int, stat.read_text().split()[1:4])
    whole = (user + nice + system) / os.sysconf("SC_CLK_TCK")
    now, own = time.monotonic(), sum(os.times()[:4])
    if not before:
        return (now, whole, own, 0.0)
    used = (whole - before[1]) - (own - before[2])
    return (now, whole, own, max(0.0, used / (now - before[0])))


def measure(script: Script, fix: Fix, folder: Path, rounds: int, result: Result) -> None:
    """Fill in the times of a step before and after the fix; the fastest of each counts."""
    before, after = [], []
    began = others_since()
    for _ in range(rounds):
        before.append(step_ms(script, script.options, folder))
        after.append(step_ms(script, (*script.options, *fix.options), folder))
    result.others = others_since(began)[-1]
    known = [ms for ms in before if ms], [ms for ms in after if ms]
    if all(known):
        result.fix = fix.rule
        (result.before_ms, result.before_cpu_ms), (after_ms, after_cpu_ms) = (
            map(min, zip(*times, strict=True)) for times in known
        )
        result.after_ms, result.after_cpu_ms = after_ms / fix.scale, after_cpu_ms / fix.scale


def examine(script: Script, folder: Path, *, fixes: bool, rounds: int, loops: int) -> Result:
    """Run a script, and its fix if the finding of its rule appeared."""
    result = Result(script.name, sorted(script.right))
    with beside(loops):
        profile(script, folder, result)
    rules = [rule for rule, *_ in result.found]
    if fixes and script.fix is not None:
        # Any of several right rules may have found it; they advise the same fix.
        known = [script.fix.rule, *(r for r in rules if r in script.right)]
        rule = next((r for r in known if r in rules), None)
        if rule is not None:
            measure(script, replace(script.fix, rule=rule), folder, rounds, result)
    for rule, severity, title, saving in result.found:
        mark = "right" if rule in script.right else (
            "machine" if rule in _OF_THE_MACHINE else "WRONG"
        )  # fmt: skip
        saves = "" if saving is None else f" [{saving:.3g} of {result.step_ms or 0:.3g} ms]"
        print(f"  {mark} {severity} {title}{saves}")
    return result


def promised(result: Result) -> float | None:
    """Return the saving that the finding promised, as a part of its step.

    Time in no step comes on top of the step; what a fix saves is measured of both.
    """
    saving = next((s for rule, _, _, s in result.found if rule == result.fix), None)
    if not saving or not result.step_ms:
        return None
    return saving / (result.step_ms + (saving if result.fix in result.outside else 0.0))


def measured(result: Result) -> float | None:
    """Return the saving by the fix, as a part of the step."""
    if not result.before_ms or result.after_ms is None:
        return None
    return 1 - result.after_ms / result.before_ms


def measured_cpu(result: Result) -> float | None:
    """Return the CPU time that the fix saved, as a part of that of the step."""
    if not result.before_cpu_ms or result.after_cpu_ms is None:
        return None
    return 1 - result.after_cpu_ms / result.before_cpu_ms


def by_rule(fixed: list[tuple[Result, float | None, float | None]]) -> Table:
    """Return what each rule promised and what its fixes saved, in medians over scripts."""
    rows: list[tuple[Cell, ...]] = []
    for rule in sorted({r.fix or "" for r, _, _ in fixed}):
        of_rule = [(r, p or 0.0, m or 0.0) for r, p, m in fixed if r.fix == rule]
        cpu = [saved for r, *_ in of_rule if (saved := measured_cpu(r)) is not None]
        rows.append((
            rule, len(of_rule), round(100 * median(p for _, p, _ in of_rule)),
            round(100 * median(m for *_, m in of_rule)),
            round(100 * median(cpu)) if cpu else "?",
        ))  # fmt: skip
    return Table(
        "Savings by rule, % of a step", ("rule", "scripts", "promised", "measured", "of CPU time"),
        tuple(rows),
    )  # fmt: skip


def tables(results: list[Result]) -> list[Table]:
    """Return tables: findings by rule; fixes by script; wrong findings."""
    rules: dict[str, list[int]] = {}
    wrong: list[tuple[Cell, ...]] = []
    for result in results:
        for rule, _, title, _ in result.found:
            counts = rules.setdefault(rule, [0, 0, 0])
            if rule in result.right:
                counts[0] += 1
            elif rule in _OF_THE_MACHINE:
                counts[2] += 1
            else:
                counts[1] += 1
                wrong.append((result.name, rule, title))
    tried = [(r, promised(r), measured(r)) for r in results if r.fix]
    rows: list[tuple[Cell, ...]] = [
        (
            r.name,
            r.fix,
            "nothing" if p is None else round(100 * p),
            round(100 * (m or 0)),
            "?" if measured_cpu(r) is None else round(100 * (measured_cpu(r) or 0)),
            "-" if p is None else kept(p, m),
            "?" if r.others is None else round(r.others, 2),
        )
        for r, p, m in tried
    ]
    fixed = [row for row in tried if row[1] is not None]
    half = sum(kept(p, m) == "yes" for _, p, m in fixed)
    sick, healthy = [r for r in results if r.right], [r for r in results if not r.right]
    first = sum(first_cause(r) in r.right for r in sick)
    waits = [r.waiting for r in results if r.waiting is not None]
    waited = "" if not waits else (
        f"waiting for a CPU, % of a step: median {100 * median(waits):.0f}, "
        f"{100 * min(waits):.0f} to {100 * max(waits):.0f}"
    )  # fmt: skip
    lines = [r.line for r in results if r.line is not None]
    clean = sum(all(f[0] in _OF_THE_MACHINE for f in r.found) for r in healthy)
    commits = Counter(r.commit for r in results)
    out = [
        Table("Findings by rule", ("rule", "right", "wrong", "machine"),
              tuple((rule, *counts) for rule, counts in sorted(rules.items())),
              (f"{len(results)} scripts; of {len(healthy)} healthy ones {clean} have no finding",
               f"of {len(sick)} others {first} have a right one first",
               f"of {len(lines)} with a marked cause {sum(lines)} name its line",
               waited,
               "commits: " + ", ".join(f"{c or 'unknown'} {n}" for c, n in commits.items()))),
        Table("Savings, % of a step",
              ("script", "rule", "promised", "measured", "of CPU time", "half of it",
               "CPUs of others"),
              tuple(rows), (f"{half} of {len(fixed)} saved at least half of what was promised",)),
        by_rule(fixed),
    ]  # fmt: skip
    missed: list[tuple[Cell, ...]] = [
        (r.name, ", ".join(r.right), first_cause(r) or "nothing")
        for r in sick
        if not r.error and first_cause(r) not in r.right
    ]
    if missed:
        out.append(Table("No right finding first", ("script", "right", "first"), tuple(missed)))
    if wrong:
        out.append(Table("Wrong findings", ("script", "rule", "title"), tuple(wrong)))
    failed = [r for r in results if r.error]
    if failed:
        out.append(
            Table("Left out", ("script", "why"), tuple((r.name, r.error[:120]) for r in failed))
        )
    return out


def first_cause(result: Result) -> str:
    """Return the first finding's rule, beside those about the machine; empty without any."""
    return next((rule for rule, *_ in result.found if rule not in _OF_THE_MACHINE), "")


def kept(promise: float | None, saved: float | None) -> str:
    """Return "yes" or "no": was at least half of a promise kept?"""
    return "yes" if promise is not None and saved is not None and saved >= promise / 2 else "no"


def gathered(path: str | None) -> dict[str, Any]:
    """Return the results of earlier calls in the file."""
    if path is None or not Path(path).exists():
        return {}
    found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return found


def commit() -> str:
    """Return the short hash of the running code, with "+" if files have changed since."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--exclude=*", "--dirty=+"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def done(row: dict[str, Any] | None, script: Script, fixes: bool) -> bool:
    """Return whether a file's row ended well and has the requested values."""
    if row is None or row["error"]:
        return False
    found = any(rule in script.right for rule, *_ in row["found"])
    return row["fix"] is not None or not (fixes and script.fix and found)


def main() -> None:
    known = scripts()
    parser = argparse.ArgumentParser(description="Right and wrong findings on a corpus.")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="scripts whose name holds it")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N of them")
    parser.add_argument("--no-fixes", action="store_true", help="measure no savings")
    parser.add_argument("--rounds", type=int, default=2, help="runs before and after a fix")
    parser.add_argument("--beside", type=int, default=0, metavar="N", help="beside N busy loops")
    parser.add_argument("--json", metavar="FILE", help="gather the results there")
    parser.add_argument("--resume", action="store_true", help="not those that FILE has")
    parser.add_argument("--show", action="store_true", help="only print what FILE holds")
    asked = parser.parse_args()
    chosen = [s for s in known if not asked.only or any(part in s.name for part in asked.only)]
    if not chosen or asked.rounds < 1:
        parser.error("no such script" if not chosen else "--rounds must be at least 1")
    kept_before = gathered(asked.json)
    if asked.resume:
        chosen = [s for s in chosen if not done(kept_before.get(s.name), s, not asked.no_fixes)]
    if not asked.show:
        # A first optimizer imports this half of torch. It is not made here, because a run knows
        # whose parameters the optimizers have only if it sees all of them.
        importlib.import_module("torch._dynamo")

        with tempfile.TemporaryDirectory() as folder:
            for script in chosen[: asked.limit]:
                print(script.name)
                result = examine(
                    script, Path(folder), fixes=not asked.no_fixes, rounds=asked.rounds,
                    loops=asked.beside,
                )  # fmt: skip
                if result.error:
                    print(f"  {result.error}")
                result.commit, result.when = commit(), time.strftime("%Y-%m-%d", time.gmtime())
                kept_before[script.name] = asdict(result)
                if asked.json:
                    part = Path(asked.json + ".part")
                    part.write_text(json.dumps(kept_before), encoding="utf-8")
                    part.replace(asked.json)
    about = ", ".join(f"{name} {value}" for name, value in machine().items())
    results = [Result(**row) for row in kept_before.values()]
    print(about)
    for table in tables(results):
        print("\n" + render(table))


if __name__ == "__main__":
    main()
