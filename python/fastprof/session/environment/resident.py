"""The memory of this process."""

import os
import sys


def resident_bytes() -> int | None:
    """Return the memory of this process in RAM in bytes; None: unknown."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        with open("/proc/self/statm", "rb") as stream:
            return int(stream.read(200).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
