"""Metrics in MLflow."""

import importlib
import re
from collections.abc import Mapping
from typing import Any

#: Characters that MLflow rejects in names on at least one system.
_NOT_ALLOWED = re.compile(r"[^/\w.\- ]", re.ASCII)


class MLflow:
    """Logs to a run, all metrics of a step in one call.

    Args:
        target: the module ``mlflow``, or anything with its ``log_metrics(dict, step=)``;
            None: the module.
        run_id: the run; None: the active one, or a new one.

    Raises:
        TypeError: ``target`` has no ``log_metrics``.
        ImportError: ``target`` is None and mlflow is not installed.
    """

    def __init__(self, target: Any = None, *, run_id: str | None = None) -> None:
        if target is None:
            try:
                target = importlib.import_module("mlflow")
            except ImportError as error:
                raise ImportError("MLflow needs mlflow: pip install mlflow-skinny") from error
        if not callable(getattr(target, "log_metrics", None)):
            raise TypeError(f"target is {type(target).__name__}, expected the module mlflow")
        self._target = target
        self._more = {} if run_id is None else {"run_id": run_id}

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Log the metrics of one step; invalid characters in names become ``_``."""
        clean = {_NOT_ALLOWED.sub("_", name): value for name, value in metrics.items()}
        self._target.log_metrics(clean, step=step, **self._more)
