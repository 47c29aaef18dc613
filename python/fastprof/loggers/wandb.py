"""Metrics in Weights & Biases."""

import importlib
from collections.abc import Mapping
from typing import Any


class WandB:
    """Logs to a run with ``step``, all metrics of a step in one call.

    Weights & Biases drops values of an earlier step than its latest.  So the program must log with
    the same steps (optimizer steps, from 1) or none; if it counts differently, ``own_axis`` draws
    the metrics over ``profile/step``.

    Args:
        run: the run; None: the current run of ``wandb.init()``, when it is first needed.
        own_axis: log without ``step``, in a separate row, with ``profile/step``.

    Raises:
        TypeError: ``run`` has no ``log``.
        ImportError: ``run`` is None and wandb is not installed.
    """

    def __init__(self, run: Any = None, *, own_axis: bool = False) -> None:
        self._module: Any = None
        if run is None:
            try:
                self._module = importlib.import_module("wandb")
            except ImportError as error:
                raise ImportError("WandB needs wandb: pip install wandb") from error
        elif not callable(getattr(run, "log", None)):
            raise TypeError(f"run is {type(run).__name__}, expected a run of wandb")
        self._run = run
        self._own_axis = own_axis
        self._defined_for: Any = None

    def log_change(self, text: str, step: int) -> None:
        """Log what the run says of a change as ``fastprof/changes``."""
        self.log_metrics({"fastprof/changes": text}, step)

    def log_metrics(self, metrics: Mapping[str, float | str], step: int) -> None:
        """Log the metrics of one step.

        Raises:
            RuntimeError: there is no run.
        """
        # A program may create one run after another.
        newest = getattr(self._module, "run", None)
        run = self._run if newest is None else newest
        if run is None:
            raise RuntimeError("there is no run: call wandb.init() before training")
        self._run = run
        if not self._own_axis:
            run.log(dict(metrics), step=step)
            return
        if self._defined_for is not run:
            self._defined_for = run
            define = getattr(run, "define_metric", None)
            if define is not None:
                define("profile/step")
                define("profile/*", step_metric="profile/step")
        run.log({**metrics, "profile/step": step})
