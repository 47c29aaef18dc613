"""fastprof's finders on ``sys.meta_path``, which wait for an import."""

import sys
from typing import Any


def remove_finder(finder: Any) -> None:
    """Remove ``finder`` from ``sys.meta_path``, if it is there."""
    if any(other is finder for other in sys.meta_path):
        # Replace the list: removing an entry would make an import that iterates over it, here or in
        # another thread, skip a finder.
        sys.meta_path = [other for other in sys.meta_path if other is not finder]
