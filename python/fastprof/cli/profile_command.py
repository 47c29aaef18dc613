"""``python -m fastprof``: cProfile's command line, which survives every end of the program.

Exit statuses: the program's own, whatever happens to the profile; 2 if the program was not started
(bad arguments, an unwritable output, another profiler active).
"""

import os
import pstats
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import Any

from fastprof.cli.exit_hooks import Endings, complain
from fastprof.cli.output import check_output, save_or_keep, standard_output
from fastprof.cli.parsing import Options
from fastprof.cli.target import execute, parse_target, prepare_or_run
from fastprof.session.cprofile import Profile
from fastprof.session.environment.rank import Identity
from fastprof.session.output.files import path_of_rank

_USAGE = "python -m fastprof [-o output_file_path] [-s sort] [-m module | scriptfile] [arg] ..."


def main(argv: Sequence[str] | None = None) -> int:
    """Profile the program that ``argv`` names (None: ``sys.argv[1:]``).

    Returns 0 if the program reached its end; its exceptions pass through.
    """
    options, args = _parse(list(sys.argv[1:] if argv is None else argv))
    return profile_target(args, as_module=options.module, output=options.outfile, sort=options.sort)


def _parse(argv: list[str]) -> tuple[Any, list[str]]:
    parser = Options(usage=_USAGE, prog="fastprof")
    parser.add_option(
        "-o",
        "--outfile",
        metavar="FILE",
        help="save the statistics to FILE (.fprof: as a run of fastprof, else for pstats) "
        "instead of printing them",
    )
    parser.add_option(
        "-s",
        "--sort",
        default=2,  # cumulative
        choices=sorted(pstats.Stats.sort_arg_dict_default),
        metavar="KEY",
        help="order of the printed table: a key of pstats.Stats.sort_stats",
    )
    return parse_target(parser, argv)


def profile_target(
    args: Sequence[str], *, as_module: bool, output: str | None, sort: str | int
) -> int:
    """Run a program under a :class:`~fastprof.Profile`; save or print its statistics."""
    if output is not None:
        try:
            # The program may change its directory: resolve the path now.
            output = os.path.abspath(output)
            problem = check_output(output)
        except OSError as error:  # the current folder was deleted
            problem = f"cannot write the profile to {output!r}: {error.strerror}"
        if problem is not None:
            complain(problem)
            return 2
    target = prepare_or_run(args, as_module=as_module)
    if isinstance(target, int):
        return target
    profile, identity = Profile(), Identity()
    identity.ask()

    def save() -> Callable[[], None] | None:
        profile.create_stats()
        if output is None:
            return partial(_print, profile, sort)
        # Ranks of one job have the same command line.
        save_or_keep(path_of_rank(output, identity), lambda path: _save(profile, path))
        return None

    return execute(target, profile.enable, Endings(profile.disable, save))


def _save(profile: Profile, path: str) -> None:
    if path.endswith(".fprof"):
        profile.report().save(path)
    else:
        profile.dump_stats(path)


def _print(profile: Profile, sort: str | int) -> None:
    if sys.stdout is None:
        return
    try:
        with standard_output() as stream, redirect_stdout(stream):
            profile.print_stats(sort)
    except BrokenPipeError:
        # The program's own output failed: its reader has seen enough.
        sys.stdout = None
