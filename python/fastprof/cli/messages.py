"""Messages on standard error: one line for files and programs, whole words in a terminal."""

from typing import TextIO

from fastprof.own_imports import Protected

_NARROWEST = 40


def on_lines(line: str, stream: TextIO | None) -> str:
    """Return a message as ``stream`` shows it: wrapped at words in a terminal, else one line."""
    # The program's own object need not have more than write().
    if stream is None or not hasattr(stream, "isatty") or not stream.isatty():
        return line
    # Imported here, so that they are no part of a process that only profiles a program: what
    # the program itself imports has rows.
    with Protected():
        import shutil
        import textwrap

    width = max(_NARROWEST, shutil.get_terminal_size().columns)
    # A path stays whole, to be copied.
    return textwrap.fill(
        line, width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )
