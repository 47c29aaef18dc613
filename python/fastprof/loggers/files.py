"""Metrics in a file: a row, or a line of JSON, per emission."""

import csv
import io
import json
import math
import os
from collections.abc import Mapping

from fastprof.fileio import resolve_output


class _File:
    """Appends to a file, created at the first emission.

    Raises:
        TypeError, ValueError, OSError: not the path of a file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = resolve_output(path)

    def _append(self, text: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        # In one write: a concurrent reader sees whole lines.
        with open(os.open(self._path, flags, 0o600), "ab", buffering=0) as stream:
            stream.write(text.encode("utf-8", "backslashreplace"))


class JSONLines(_File):
    """Appends one JSON object per emission: ``{"step": 50, "profile/...": 1.5}``."""

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Append the metrics of one step; NaN and infinity become null."""
        finite = {name: v if math.isfinite(v) else None for name, v in metrics.items()}
        self._append(json.dumps({"step": step, **finite}, allow_nan=False) + "\n")

    def log_change(self, text: str, step: int) -> None:
        """Append what the run says of a change: ``{"step": 50, "text": "since step ..."}``."""
        self._append(json.dumps({"step": step, "text": text}) + "\n")


class CSV(_File):
    """Appends a row per value, ``step,name,value``, because names differ between emissions."""

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Append the metrics of one step; NaN and infinity become empty cells."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        try:
            empty = os.stat(self._path).st_size == 0
        except FileNotFoundError:
            empty = True
        if empty:
            rows.writerow(("step", "name", "value"))
        for name, value in metrics.items():
            rows.writerow((step, name, repr(float(value)) if math.isfinite(value) else ""))
        self._append(text.getvalue())
