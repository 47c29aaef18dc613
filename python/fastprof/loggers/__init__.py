"""Loggers for ``Profiler(logger=...)``: each takes all metrics of a step in one call.

A logger is any object with ``log_metrics(dict, step)`` or ``log(dict, step)``, so the loggers of
most trainers work directly.  These here pass the metrics to targets with other interfaces, or write
files.  Creating a logger imports its package, nothing before.
"""

from __future__ import annotations

from fastprof.own_imports import first_use

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fastprof.loggers.files import CSV, JSONLines
    from fastprof.loggers.mlflow import MLflow
    from fastprof.loggers.prometheus import Prometheus
    from fastprof.loggers.tensorboard import TensorBoard
    from fastprof.loggers.wandb import WandB

_LAZY = {
    "CSV": "files",
    "JSONLines": "files",
    "MLflow": "mlflow",
    "Prometheus": "prometheus",
    "TensorBoard": "tensorboard",
    "WandB": "wandb",
}

__all__ = ["CSV", "JSONLines", "MLflow", "Prometheus", "TensorBoard", "WandB"]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'fastprof.loggers' has no attribute {name!r}")
    value = getattr(first_use(f"fastprof.loggers.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
