"""fastprof's finders on ``sys.meta_path``, which wait for an import."""

import sys
from typing import Any


def add_finder(finder: Any) -> None:
    """Put ``finder`` before the others on ``sys.meta_path``."""
    # A new list here, too: before 3.12 the interpreter keeps the first one, with what it contains,
    # until after the program's objects are destroyed.
    sys.meta_path = [finder, *sys.meta_path]


def remove_finder(finder: Any) -> None:
    """Remove ``finder`` from ``sys.meta_path``, if it is there."""
    if any(other is finder for other in sys.meta_path):
        # Replace the list: removing an entry would make an import that iterates over it, here or in
        # another thread, skip a finder.
        sys.meta_path = [other for other in sys.meta_path if other is not finder]
