"""The memory of a process."""

import os


def resident_bytes(pid: int | None = None) -> int | None:
    """Return the memory of a process in RAM in bytes; None: unknown, as outside of Linux.

    Args:
        pid: None: this process.
    """
    try:
        with open(f"/proc/{'self' if pid is None else pid}/statm", "rb") as stream:
            return int(stream.read(200).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
