"""Command lines: full option names, a hint at the nearest word, status 2 for every mistake."""

import argparse
import difflib
import optparse
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from fastprof.cli.messages import on_lines

#: Exit status for bad arguments and bad input files, as in argparse.
USAGE_ERROR = 2

#: The beginning of argparse's message about missing arguments.
_REQUIRED = "the following arguments are required: "


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` for a word that is similar to one of ``known``, else ``.``."""
    found = difflib.get_close_matches(word[:200], list(known), n=1, cutoff=0.7)
    return f"; did you mean {found[0]}?" if found else "."


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` that accepts no abbreviations and suggests the nearest word."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse like ``ArgumentParser``; an unknown option's error suggests the nearest one.

        Raises:
            SystemExit: with 2, arguments are wrong.
        """
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            word = unknown[0].partition("=")[0]
            known = [s for action in self._actions for s in action.option_strings]
            kind = "option" if word.startswith("-") else "argument"
            self.error(f"no {kind} {word!r}{nearest(word, known) if kind == 'option' else '.'}")
        return parsed

    def error(self, message: str) -> NoReturn:
        """End with the usage, one line and status 2."""
        missing = message.removeprefix(_REQUIRED)
        if missing != message:
            message = f"{missing} is missing; `{self.prog} --help` explains it"
        self.print_usage(sys.stderr)
        self.exit(USAGE_ERROR, _error(self.prog, message))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(
                action, f"{value!r} is not one of {', '.join(known)}{nearest(str(value), known)}"
            )


class Options(optparse.OptionParser):
    """An ``OptionParser`` that accepts no abbreviations and suggests the nearest word."""

    def flag(self, name: str, text: str, dest: str | None = None) -> None:
        """Add an option without a value; its default is false."""
        self.add_option(name, action="store_true", default=False, help=text, dest=dest)

    def _match_long_opt(self, opt: str) -> str:
        # The base class accepts the beginning of an option for the option.
        known = self._long_opt
        if opt in known:
            return opt
        raise _Unknown(opt, nearest(opt, known))

    def error(self, msg: str) -> NoReturn:
        """End with one line and status 2."""
        self.print_usage(sys.stderr)
        self.exit(USAGE_ERROR, _error(self.get_prog_name(), msg))


def _error(program: str, message: str) -> str:
    return on_lines(f"{program}: error: {message}", sys.stderr) + "\n"


class _Unknown(optparse.BadOptionError):
    def __init__(self, opt_str: str, hint: str) -> None:
        super().__init__(opt_str)
        self._hint = hint

    def __str__(self) -> str:
        return f"no option {self.opt_str!r}{self._hint}"
