"""Metrics as scalars in TensorBoard, and the report's summary as text."""

import importlib
import os
from collections.abc import Mapping
from typing import Any

from fastprof.names import printable_name


class TensorBoard:
    """Writes each metric as a scalar and, when the run ends, a summary of its report.

    The summary is the text ``fastprof/report`` (Markdown, which TensorBoard renders); its main
    figures are scalars: ``fastprof/step_ms``, ``fastprof/step_p95_ms``,
    ``fastprof/step/<section>_ms``, ``fastprof/gpu_utilization_pct`` and
    ``fastprof/gpu_memory_gib``, if known.

    Args:
        target: the program's ``SummaryWriter`` (torch's or tensorboardX's), or the directory for a
            new one.

    Raises:
        TypeError: ``target`` is neither.
        ImportError: ``target`` is a directory, and neither torch with tensorboard nor tensorboardX
            is installed.
    """

    def __init__(self, target: Any) -> None:
        self._writer = target
        if isinstance(target, (str, os.PathLike)):
            self._writer = _writer_class()(str(target))
        elif not callable(getattr(target, "add_scalar", None)):
            raise TypeError(
                f"target is {type(target).__name__}, expected a SummaryWriter or a directory"
            )

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Write the metrics of one step."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def log_change(self, text: str, step: int) -> None:
        """Write what the run says of a change as the text ``fastprof/changes``."""
        add_text = getattr(self._writer, "add_text", None)
        if callable(add_text):
            add_text("fastprof/changes", f"``{text}``", step)  # no Markdown: names have underscores
            self._writer.flush()

    def log_report(self, report: Any, step: int) -> None:
        """Write the summary of a :class:`~fastprof.Report` at ``step``."""
        add_text = getattr(self._writer, "add_text", None)
        if callable(add_text):
            add_text("fastprof/report", report.to_markdown(), step)
        self.log_metrics(_figures(report), step)


def _figures(report: Any) -> dict[str, float]:
    """Return the report's main figures by tag, without unknown ones."""
    steps, gpu, memory = report.shown_steps, report.gpu, report.memory
    utilization = None if gpu is None else gpu.utilization
    found = {"step_ms": steps.mean_ms, "step_p95_ms": steps.p95_ms}
    for row in steps.rows:
        # TensorBoard turns slashes in a tag into folders and other characters into underscores.
        found[f"step/{printable_name(row.name, 60)}_ms"] = row.mean_ms
    found["gpu_utilization_pct"] = None if utilization is None else 100 * utilization
    found["gpu_memory_gib"] = None if memory is None else memory.peak_reserved / (1 << 30)
    return {f"fastprof/{name}": value for name, value in found.items() if value is not None}


def _writer_class() -> Any:
    reason = None
    for name in ("torch.utils.tensorboard", "tensorboardX"):
        try:
            return importlib.import_module(name).SummaryWriter
        except ImportError as error:
            reason = error
    raise ImportError(
        "TensorBoard needs torch with tensorboard, or tensorboardX: pip install tensorboard"
    ) from reason
