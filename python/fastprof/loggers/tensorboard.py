"""Metrics as scalars in TensorBoard."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any


class TensorBoard:
    """Writes each metric as a scalar.

    Args:
        target: a ``SummaryWriter`` that the program has (torch's or tensorboardX's), or
            the directory for a new one.

    Raises:
        TypeError: ``target`` is neither.
        ImportError: a directory was given, and there is neither torch with tensorboard
            nor tensorboardX.
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
