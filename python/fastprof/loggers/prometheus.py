"""Metrics as a file in the text format of Prometheus, for the node exporter to collect."""

import math
import os
import re
from collections.abc import Mapping

from fastprof.fileio import atomic_write, resolve_output

_LOADER = re.compile(r"profile/(?P<split>[^/]+)/dl_(?P<loader>[^/]+)/(?P<name>[^/]+)")
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_]")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class Prometheus:
    r"""Writes the latest value of every metric, and the step, as gauges.

    ``profile/train/dl_main/time_data_ms`` becomes
    ``fastprof_time_data_ms{split="train",loader="main"}``.  Each write replaces the whole file; the
    node exporter of Prometheus needs a name that ends in ``.prom``.

    Args:
        path: the file.
        labels: more labels for every metric, such as ``{"job": "llm"}``.

    Raises:
        TypeError, ValueError, OSError: ``path`` is not a file's, or a label is invalid.
    """

    def __init__(
        self, path: str | os.PathLike[str], labels: Mapping[str, str] | None = None
    ) -> None:
        self._path = resolve_output(path)
        self._labels = dict(labels or {})
        for name, value in self._labels.items():
            if not _LABEL.fullmatch(name) or name.startswith("__"):
                raise ValueError(f"invalid label name {name!r:.80}: use letters, digits and _")
            if name in ("split", "loader"):
                raise ValueError(f"label {name!r} is reserved by fastprof")
            if not isinstance(value, str):
                raise TypeError(f"label {name!r} is {value!r:.80}, expected a string")
        self._values: dict[tuple[str, str], float] = {}

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Take the metrics of one step and replace the file."""
        for key, value in metrics.items():
            self._values[self._sample(key)] = value
        self._values["fastprof_step", self._labelled({})] = step
        lines: list[str] = []
        last = None
        for (name, labels), value in sorted(self._values.items()):
            if name != last:
                lines.append(f"# TYPE {name} gauge")
                last = name
            lines.append(f"{name}{labels} {_number(value)}")
        # Others read it: a collector runs as another user.
        with atomic_write(self._path) as stream:
            os.fchmod(stream.fileno(), 0o644)
            stream.write(("\n".join(lines) + "\n").encode("utf-8", "backslashreplace"))

    def _sample(self, key: str) -> tuple[str, str]:
        """Return a metric's name and labels in Prometheus' syntax."""
        match = _LOADER.fullmatch(key)
        if match is not None:
            name, labels = match["name"], {"split": match["split"], "loader": match["loader"]}
        else:
            name, labels = key.removeprefix("profile/"), {}
        return "fastprof_" + _NOT_ALLOWED.sub("_", name), self._labelled(labels)

    def _labelled(self, labels: Mapping[str, str]) -> str:
        pairs = [f'{name}="{_escape(v)}"' for name, v in {**labels, **self._labels}.items()]
        return "{" + ",".join(pairs) + "}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
