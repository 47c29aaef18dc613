"""``fastprof attach PID``: records a process that was started without a recording."""

import re
import sys
from collections.abc import Sequence

from fastprof.cli.inject import inject
from fastprof.cli.output import standard_output, write_text
from fastprof.cli.parsing import Parser
from fastprof.cli.summary import next_lines
from fastprof.render import terminal
from fastprof.results.saved import load
from fastprof.session.outside.ask import EndedError, NoAnswerError, named, request
from fastprof.session.outside.places import ATTACH, NOW, TEMPORARY, Place, Process, runs
from fastprof.tables.layout import width_of, wrapped

#: The recording begins and ends when the main thread returns to Python code.
_LIMIT_S = 60.0
_LONGEST_S = 24 * 3600.0
_PID = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)


def run(argv: Sequence[str]) -> int:
    """Record the process that ``argv`` names for a while, and show the report."""
    parser = Parser(
        prog="fastprof attach",
        description="Record a running process for a while and show the report; then the process is "
        "as it was before. It was started with FASTPROF=standby and imports fastprof, or it runs "
        "Python 3.14 or newer.",
    )
    parser.add_argument("pid", metavar="PID", help="the number of the process")
    parser.add_argument(
        "--seconds", type=float, default=30.0, metavar="S", help="how long to record (default: 30)"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="also save the recording: a .fprof file"
    )
    parser.add_argument(
        "--pythonpath",
        metavar="DIR",
        help="the folder that has the package fastprof, if the process cannot import it",
    )
    options = parser.parse_args(argv)
    if _PID.fullmatch(options.pid) is None:
        raise ValueError(f"PID is {options.pid!r:.80}, expected the number of a process")
    if not 0.1 <= options.seconds <= _LONGEST_S:
        raise ValueError(f"--seconds is {options.seconds:g}, expected 0.1 to {_LONGEST_S:g}")
    if options.output is not None and not options.output.endswith(".fprof"):
        raise ValueError(
            f"--output is {options.output!r:.80}, expected a name that ends with .fprof"
        )
    process, place = _found(options.pid, options.pythonpath)
    try:
        _record(process, place, options.seconds, options.output)
    except EndedError as ended:
        if process.mode != TEMPORARY or not runs(process):
            raise
        # The standby of an earlier attach has just ended, or the program has.
        try:
            process, place = _found(options.pid, options.pythonpath)
        except NoAnswerError:
            raise ended from None
        _record(process, place, options.seconds, options.output)
    return 0


def _found(pid: str, pythonpath: str | None) -> tuple[Process, Place]:
    try:
        return named(pid)
    except NoAnswerError as error:
        return inject(int(pid), str(error), pythonpath)


def _record(process: Process, place: Place, seconds: float, output: str | None) -> None:
    write_text(f"Recording {process.program} (process {process.pid}) for {seconds:g} s.\n")
    sys.stdout.flush()

    def show() -> None:
        report = load(place.path(NOW))
        with standard_output() as stream:
            width = width_of(stream)
            if output is None:
                last = wrapped("Not saved: -o FILE.fprof keeps a recording.", width)
            else:
                report.save(output)
                last = next_lines(output, width)
            terminal.show(report, stream, last=last)

    asked = {"seconds": seconds}
    request(process, place, ATTACH, seconds + _LIMIT_S, asked, show)
