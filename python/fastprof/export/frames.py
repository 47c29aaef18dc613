"""Labels of tree nodes for flame graphs."""

from fastprof.names import printable_name
from fastprof.snapshot import Key

#: Longest name in a flame graph, trace or callgrind file.
MAX_LABEL = 500


def frame_name(key: Key) -> str:
    """Return the name of a frame: a section in brackets, a function by its qualname."""
    name = printable_name(key.qualname or key.name, MAX_LABEL)
    return f"[{name}]" if key.kind == "section" else name


def frame_label(key: Key) -> str:
    """Return the name with the place of its definition, if it has one."""
    if key.kind == "python":
        return f"{frame_name(key)} ({printable_name(key.file, MAX_LABEL)}:{key.line})"
    return frame_name(key)
