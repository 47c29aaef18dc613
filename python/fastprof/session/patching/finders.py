"""fastprof's finders on ``sys.meta_path``, which wait for an import.

The list stays the program's own object: it may have kept it, to add a finder later.
"""

import sys
from typing import Any


def add_finder(finder: Any) -> None:
    """Put ``finder`` before the others on ``sys.meta_path``."""
    sys.meta_path.insert(0, finder)


def remove_finder(finder: Any) -> None:
    """Remove ``finder`` from ``sys.meta_path``, if it is there."""
    path = sys.meta_path
    if not any(other is finder for other in path):
        return
    rest = [other for other in path if other is not finder]
    if _is_iterated():
        # An import that is past it would skip the next finder.
        sys.meta_path = rest
    else:
        path[:] = rest


def _is_iterated() -> bool:
    """Return whether an import, in this thread or another, searches ``sys.meta_path`` now."""
    at: Any
    # This function's frame is among them: a variable of it that keeps it would keep its callers.
    for at in sys._current_frames().values():
        while at is not None:
            if at.f_code.co_name == "_find_spec" and "importlib" in at.f_code.co_filename:
                return True
            at = at.f_back
    return False
