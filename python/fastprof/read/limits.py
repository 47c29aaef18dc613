"""Limits on the cost of reading a foreign file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on a saved run; a file beyond one is refused with an error that names it.

    ``max_bytes`` limits the size of the file, ``max_unpacked_bytes`` its size after decompression.
    ``max_entries`` counts the values in it, ``max_depth`` their nesting, and ``max_name`` the
    characters of one string as written.  ``max_memory`` (bytes) is an estimate, made before
    anything is built from the file.
    """

    max_bytes: int = 64 << 20
    max_unpacked_bytes: int = 128 << 20
    max_entries: int = 8_000_000
    max_depth: int = 16
    max_name: int = 1 << 16
    max_memory: int = 400 << 20
