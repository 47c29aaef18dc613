"""The time of a group of functions, and the text of a place."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastprof.names import file_name, readable
from fastprof.snapshot import Key


@dataclass(frozen=True, slots=True)
class Caller:
    """The place of calls: a text such as ``train (train.py:12)``; figures per span."""

    text: str
    ms: float
    calls: float
    own_ms: float


@dataclass(frozen=True, slots=True)
class Use:
    """Time of a group of functions: ms and calls per span, ``total_ms`` over the recording.

    ``places`` splits ``ms`` by the outermost section, ``shared`` by the other groups to which it
    also belongs, ``calls_within`` by the groups around the calls.
    """

    ms: float
    calls: float
    total_ms: float
    places: Mapping[str, float]
    shared: Mapping[str, float]
    calls_within: Mapping[str, float]
    callers: tuple[Caller, ...]


NOTHING = Use(0.0, 0.0, 0.0, {}, {}, {}, ())


def where(key: Key) -> str:
    """Return a function with its place: ``Trainer.fit (train.py:12)``."""
    return located(key.qualname or key.name, key.file, key.line)


def located(name: str, file: str, line: int) -> str:
    """Return a name with file and line, printable and of bounded length.

    Code of a script outside of functions has the name of its file.
    """
    text = readable(name, 80)
    if not line:
        return text
    if name == "<module>":
        return readable(file_name(file), 60)
    return f"{text} ({readable(file_name(file), 60)}:{line})"
