"""Finders of ours on ``sys.meta_path``, which wait for an import."""

from __future__ import annotations

import sys
from typing import Any


def remove_finder(finder: Any) -> None:
    """Take ``finder`` out of ``sys.meta_path``, if it is there."""
    if any(other is finder for other in sys.meta_path):
        # Another list in its place: an import that is going through this one, here or
        # in another thread, would leave out a finder.
        sys.meta_path = [other for other in sys.meta_path if other is not finder]
