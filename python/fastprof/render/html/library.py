"""The charting library of a page: plotly.js, as the installed plotly package ships it.

It goes into the page compressed and is unpacked there when the rest stands, so the file
stays below 2 MB and opens as fast as without.  No name of the recording is handed to it,
because it reads markup in them.
"""

from __future__ import annotations

import base64
import gzip
import importlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Library:
    """``text`` is the script itself, ``packed`` the same as base64 of gzip."""

    text: str
    packed: str


def load_library() -> Library | None:
    """Return the charting library, None if it is not installed or has no script inside."""
    try:
        text = importlib.import_module("plotly.offline").get_plotlyjs()
    except (ImportError, AttributeError, OSError):
        return None
    if not isinstance(text, str):
        return None
    packed = gzip.compress(text.encode("utf-8"), 6, mtime=0)
    return Library(text, base64.b64encode(packed).decode("ascii"))
