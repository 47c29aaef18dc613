"""``fastprof try``: runs a program with fixes that are applied from outside, and what they save."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastprof.cli.exit_hooks import complain
from fastprof.cli.folders import link_latest, run_folder
from fastprof.cli.output import write_text
from fastprof.cli.parsing import USAGE_ERROR, Options
from fastprof.cli.target import parse_target
from fastprof.results.saved import load
from fastprof.session.environment import switch
from fastprof.tables.layout import width_of, wrapped
from fastprof.trial.interventions import INTERVENTIONS, chosen
from fastprof.trial.keep import keep
from fastprof.trial.result import TrialResult
from fastprof.trial.runs import Runs
from fastprof.trial.text import table
from fastprof.trial.trial import FIRST_RUN, Choice, Trial, TrialError
from fastprof.trial.verdict import FIRST, MOST

OUTPUT = "fastprof_out"

_USAGE = (
    "fastprof try [--only ID] [--skip ID] [--also numerics] [--steps N] [--rounds N]\n"
    "                    [--scratch DIR] [--json] [--patch] [-o DIR]\n"
    "                    [-m MODULE | SCRIPT] [ARG] ...\n"
    "       fastprof try --list"
)


def run_try(argv: Sequence[str]) -> int:
    """Try fixes on the program that ``argv`` names; 0 if the trial came to its end."""
    if list(argv) == ["--list"]:
        write_text(table([(i.id, i.subject, ", ".join(i.rules)) for i in INTERVENTIONS]))
        return 0
    options, args = parse_target(_parser(), argv)
    if switch.MODE == "off":
        raise ValueError("FASTPROF=0 is set: no run can be measured")
    if args[0] == "-" and not options.module:
        raise ValueError("a program on standard input can be read once: save it to a file")
    try:
        choice = _choice(options)
        folder = Path(_folder(options.output, args[0]))
    except OSError as error:
        complain(f"cannot write to {options.output or OUTPUT!r}: {error.strerror}")
        return USAGE_ERROR
    scratch = options.scratch
    parts = None if scratch is None else Path(scratch).parts
    if parts is not None and (os.path.isabs(scratch) or ".." in parts or not parts):
        raise ValueError(f"--scratch is {scratch!r:.80}, expected a folder below this one")
    words = ["-m", *args] if options.module else args
    progress = _Progress()
    shared = "" if scratch else " It writes its files each time (--scratch DIR: to a copy)."
    progress.say(f"The program runs several times, part of its steps each time.{shared}")
    trial = Trial(Runs(folder, words, scratch), choice, load, progress.show)
    _end_in_order()
    try:
        result = TrialResult.of(trial.run(args[0]))
    except TrialError as error:
        progress.clear()
        complain(str(error))
        return 1
    progress.clear()
    first = folder / f"{FIRST_RUN}.fprof"
    keep(load(first), result, first)
    if options.output is None:
        link_latest(str(folder))
    if options.json:
        write_text(result.to_json())
    else:
        write_text(result.to_text(width=width_of(sys.stdout)))
        if options.patch and result.patch:
            write_text(result.patch)
        elif options.patch:
            complain("no diff: nothing helped that changes a known call of the program")
    return 130 if result.stopped else 0  # as a shell reports Ctrl-C


def _end_in_order() -> None:
    """Let signals that end this process end the run of the program, too."""

    def end(number: int, frame: object) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one
            signal.signal(number, end)


def _parser() -> Options:
    parser = Options(usage=_USAGE, prog="fastprof try")
    for name, text in (
        ("--only", "try this, whatever the findings say; can be repeated (--list shows all)"),
        ("--skip", "do not try this; can be repeated"),
    ):
        parser.add_option(name, action="append", default=[], metavar="ID", help=text)
    parser.add_option(
        "--also", type="choice", choices=["numerics"], metavar="numerics",
        help="also fixes that change the results: torch.compile, TF32, bfloat16",
    )  # fmt: skip
    parser.add_option(
        "--steps", type="int", metavar="N",
        help="steps of each run (default: what the precision needs, as the first run shows)",
    )  # fmt: skip
    parser.add_option(
        "--rounds", type="int", default=MOST, metavar="N",
        help=f"runs of each candidate, at most (default: {MOST}; the first look is at {FIRST})",
    )  # fmt: skip
    parser.add_option(
        "--scratch", metavar="DIR",
        help="the program's output folder, below this one: each run gets a copy of it",
    )  # fmt: skip
    parser.add_option(
        "-o", "--output", metavar="DIR",
        help=f"folder for the recordings (default: a new one in {OUTPUT})",
    )  # fmt: skip
    parser.flag("--json", "print the result as JSON")
    parser.flag("--patch", "also print the changes that helped as a diff; nothing applies it")
    parser.flag("--list", "show what can be tried")
    return parser


def _choice(options: Any) -> Choice:
    if options.steps is not None and options.steps < 8:
        raise ValueError(f"--steps is {options.steps}, expected 8 or more")
    if options.rounds < FIRST:
        raise ValueError(f"--rounds is {options.rounds}, expected {FIRST} or more")
    chosen(options.skip)
    return Choice(
        chosen(options.only) or None,
        options.skip,
        options.also == "numerics",
        options.steps,
        options.rounds,
    )


def _folder(output: str | None, program: str) -> str:
    if output is None:
        return os.path.abspath(run_folder(OUTPUT, f"try-{os.path.basename(program)}"))
    os.makedirs(output, exist_ok=True)
    return os.path.abspath(output)


class _Progress:
    """One line of a terminal that says what runs now."""

    def __init__(self) -> None:
        self._on = sys.stderr is not None and sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Write a message that stays."""
        if sys.stderr is not None:
            for line in wrapped(text, width_of(sys.stderr)):
                sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def show(self, text: str) -> None:
        """Write what runs now over the last line of this kind."""
        if self._on:
            line = f"fastprof: {text}"[: width_of(sys.stderr) - 1]
            sys.stderr.write(f"\r\x1b[2K{line}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Empty the line."""
        if self._on:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
