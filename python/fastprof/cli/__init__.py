"""The command ``fastprof``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from fastprof.cli.output import output_told_of, standard_output
from fastprof.cli.parsing import USAGE_ERROR, nearest

#: Commands of ``fastprof``.
COMMANDS = (
    "run", "report", "compare", "check", "merge", "watch", "targets", "doctor", "quickcheck",
    "demo",
)  # fmt: skip
#: Those that record; the others read what was recorded.
_RECORDING = ("run", "quickcheck", "demo")

_HELP = """\
usage: fastprof COMMAND ...

commands:
  run         profile a training job: sections, steps and functions in one report
  report      show a saved run (.fprof or .stats), or convert it
  compare     what changed between saved runs, and whether it is more than chance
  check       conditions on a saved run, for continuous integration
  merge       the ranks of a distributed job beside each other: who is late, and why
  watch       the ranks of a running job: who is late, where a step goes
  targets     what a healthy run looks like, and where findings begin
  doctor      tell what can be recorded here, what cannot, and why
  quickcheck  what the four phases of a step take here, with a small network
  demo        train a small network and show its report

options:
  -h, --help   show this text, or that of a command
  --version    show the version

`python -m fastprof COMMAND ...` does the same, unless there is a file named COMMAND here.
`python -m fastprof [-o FILE] [-s KEY] [-m MODULE | SCRIPT] ARGS` is cProfile's command line.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (without the program's name; None: this process's).

    Returns the exit status: 2 for bad arguments or a bad input file, with one line on
    ``sys.stderr``.  ``run`` lets what the profiled program raises pass through.

    Raises:
        SystemExit: help was asked for, arguments are wrong, or the output cannot be written.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if args[:1] == ["run"]:
        return _main(args)
    with output_told_of():
        return _main(args)


def main_of_module(argv: Sequence[str] | None = None) -> int:
    """Run the command line of ``python -m fastprof``: a command's, or cProfile's.

    The name of a command is a script where there is a file of that name.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if args and args[0] in COMMANDS and not os.path.isfile(args[0]):
        return main(args)
    if not _recorder_loads():
        return USAGE_ERROR
    from fastprof.cli.profile_command import main as profile

    return profile(args)


def _recorder_loads() -> bool:
    """Say why on standard error if it does not."""
    try:
        import fastprof.capture  # noqa: F401
    except ImportError as error:
        sys.stderr.write(f"fastprof: {error}\n")
        return False
    return True


def _main(args: list[str]) -> int:
    if not args:
        sys.stderr.write(_HELP)
        return USAGE_ERROR
    name, rest = args[0], args[1:]
    if name in ("-h", "--help"):
        with standard_output() as stream:
            stream.write(_HELP)
        return 0
    if name == "--version":
        from fastprof._version import __version__

        with standard_output() as stream:
            stream.write(f"fastprof {__version__}\n")
        return 0
    if name in _RECORDING and not _recorder_loads():
        return USAGE_ERROR
    command = _command(name)
    if command is None:
        sys.stderr.write(
            f"fastprof: no command {name!a:.120}{nearest(name, COMMANDS)} There are: "
            f"{', '.join(COMMANDS)} (fastprof --help)\n"
        )
        return USAGE_ERROR
    return command(rest)


def _command(name: str) -> Callable[[Sequence[str]], int] | None:
    # Imported here: a command loads no more than it needs.
    if name == "run":
        from fastprof.cli.run_command import run

        return run
    if name == "report":
        from fastprof.cli.report_command import run as report

        return report
    if name == "compare":
        from fastprof.cli.compare_command import run_compare

        return run_compare
    if name == "check":
        from fastprof.cli.compare_command import run_check

        return run_check
    if name == "merge":
        from fastprof.cli.merge_command import run as merge

        return merge
    if name == "watch":
        from fastprof.cli.watch_command import run as watch

        return watch
    if name == "targets":
        from fastprof.cli.targets_command import run as targets

        return targets
    if name == "doctor":
        from fastprof.cli.doctor import run as doctor

        return doctor
    if name == "quickcheck":
        from fastprof.cli.quickcheck_command import run as quickcheck

        return quickcheck
    if name == "demo":
        from fastprof.cli.demo import run_demo

        return run_demo
    return None
