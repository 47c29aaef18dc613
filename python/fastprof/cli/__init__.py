"""The command ``fastprof``."""

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext

from fastprof.cli.exit_hooks import complain, said
from fastprof.cli.output import output_told_of, write_text
from fastprof.cli.parsing import USAGE_ERROR, nearest
from fastprof.errors import FastprofError
from fastprof.session.patching.collector import collector_paused

#: Command -> its module and function, and its line in the help.
_TABLE = {
    "run": (
        "run_command.run",
        "profile a training job: sections, steps and functions in one report",
    ),
    "report": ("report_command.run", "show a saved run, or that of a running process so far"),
    "compare": (
        "compare_command.run_compare",
        "compare saved runs, and test whether the changes are more than chance",
    ),
    "merge": (
        "merge_command.run",
        "compare the ranks of a distributed job: which is late, and why",
    ),
    "watch": (
        "watch_command.run",
        "show running processes, or the ranks of a job, and where a step goes",
    ),
    "attach": (
        "attach_command.run",
        "record a process that runs already, for some seconds, and show the report",
    ),
    "try": (
        "try_command.run_try",
        "run a program with fixes, without editing it, and measure what they save",
    ),
    "targets": (
        "targets_command.run",
        "print the limits of the findings and the values of a healthy run",
    ),
    "doctor": ("doctor.run", "say what fastprof can record here, what it cannot, and why"),
    "quickcheck": (
        "quickcheck_command.run",
        "measure the four phases of a step with a small network",
    ),
    "demo": ("demo.run_demo", "train a small network and show its report"),
}
#: Commands that record; the others read recordings.
_RECORDING = ("run", "quickcheck", "demo")
#: Commands that end with their answer and build it from millions of objects without cycles.
_WITHOUT_COLLECTOR = ("report", "compare")

_HELP = f"""\
usage: fastprof COMMAND ...

commands:
{chr(10).join(f"  {name:<12}{text}" for name, (_, text) in _TABLE.items())}

options:
  -h, --help   show this text, or that of a command
  --version    show the version

`python -m fastprof COMMAND ...` does the same, unless there is a file named COMMAND here.
`python -m fastprof [-o FILE] [-s KEY] [-m MODULE | SCRIPT] ARGS` is cProfile's command line.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (without the program's name; None: this process's).

    Returns the exit status: 2 for bad arguments or a bad input file, with one line on
    ``sys.stderr``.  ``run`` lets the profiled program's exceptions pass through.

    Raises:
        SystemExit: help was requested, arguments are wrong, or the output cannot be written.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if args[:1] == ["run"]:
        return _main(args)
    with output_told_of():
        return _main(args)


def main_of_module(argv: Sequence[str] | None = None) -> int:
    """Run the command line of ``python -m fastprof``: a command's, or cProfile's.

    If a file has the name of a command, the name means that script.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if args and (args[0] == "--version" or _is_command(args[0])):
        return main(args)
    if not _recorder_loads():
        return USAGE_ERROR
    from fastprof.cli.profile_command import main as profile

    return profile(args)


def _is_command(word: str) -> bool:
    # A word that names nothing here is a command, known or not; a folder may be a program.
    if not word.isalpha() or os.path.isfile(word):
        return False
    return word in _TABLE or not os.path.isdir(word)


def _recorder_loads() -> bool:
    """Return whether the extension loads; print the reason on standard error if it does not."""
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
        write_text(_HELP)
        return 0
    if name == "--version":
        from fastprof._version import __version__

        write_text(f"fastprof {__version__}\n")
        return 0
    if name in _RECORDING and not _recorder_loads():
        return USAGE_ERROR
    if name not in _TABLE:
        complain(
            f"no command {name!r:.120}{nearest(name, _TABLE)} There are: "
            f"{', '.join(_TABLE)} (fastprof --help)"
        )
        return USAGE_ERROR
    # Imported here: a command loads only its own modules.
    module, _, function = _TABLE[name][0].partition(".")
    command = getattr(importlib.import_module(f"fastprof.cli.{module}"), function)
    if name in _RECORDING:
        return int(command(rest))
    try:
        with collector_paused() if name in _WITHOUT_COLLECTOR else nullcontext():
            return int(command(rest))
    except (OSError, ValueError, FastprofError) as error:
        complain(said(error))
        return USAGE_ERROR
