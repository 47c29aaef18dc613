"""Converts the values that ranks publish to and from bytes: compressed JSON, read strictly.

Anybody who can write to the store or folder may write anything there.  So a reader refuses
data that is too long, not JSON or of another version, and each value of a wrong type or range.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

#: Most characters of a name, and the largest number.
MAX_NAME = 100
MAX_NUMBER = 10**13

_T = TypeVar("_T")


def pack(value: Mapping[str, Any], level: int = -1) -> bytes:
    """Return ``value`` as bytes, compressed at zlib's ``level``."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return zlib.compress(text.encode("ascii"), level)


def newest_that_fit(
    items: Sequence[_T], packed: Callable[[Sequence[_T]], bytes], most: int
) -> bytes:
    """Return ``packed`` of as many of the last ``items`` as fit into ``most`` bytes.

    Drops an eighth of them at a time.  Without any, the bytes may still be too many.
    """
    while len(data := packed(items)) > most and items:
        items = items[max(1, len(items) // 8) :]
    return data


def unpack(data: bytes, max_bytes: int, max_text: int, version: int) -> dict[str, Any]:
    """Return the value that :func:`pack` packed.

    Args:
        version: the required value of ``v``.

    Raises:
        ValueError: they are not from :func:`pack`, too long, or of another version.
    """
    if len(data) > max_bytes:
        fail()
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(data, max_text)
        if inflate.unconsumed_tail or not inflate.eof:
            fail()
        found = json.loads(text.decode("ascii"), parse_constant=fail)
    except (zlib.error, ValueError, RecursionError, MemoryError) as error:
        raise ValueError("not a value that fastprof wrote") from error
    if not isinstance(found, dict) or found.get("v") != version:
        fail()
    return found


def fail(*_: object) -> NoReturn:
    """Raise ValueError."""
    raise ValueError("not a value that fastprof wrote, or one of another version")


def numbers_of(value: object, most: int) -> list[int]:
    """Return ``value``, a list of at most ``most`` whole numbers; raises ValueError."""
    if not isinstance(value, list) or len(value) > most:
        fail()
    # bool does not count as int here; these three tests are much faster than a loop.
    if value and (set(map(type, value)) != {int} or min(value) < 0 or max(value) > MAX_NUMBER):
        fail()
    return value


def text_of(value: object, longest: int = MAX_NAME) -> str:
    """Return ``value``, a text of at most ``longest`` characters; raises ValueError."""
    if not isinstance(value, str) or len(value) > longest:
        fail()
    return value
