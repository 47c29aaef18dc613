"""Lightning: ``Trainer(profiler=FastprofProfiler())``, or ``callbacks=[FastprofCallback()]``.

Both import names work, ``lightning.pytorch`` and ``pytorch_lightning``; at first use this
module makes the two classes for the names that the program has imported.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

from fastprof.integrations._session.lightning import NAMESPACES
from fastprof.integrations._session.lightning_run import LightningRun
from fastprof.integrations._session.session import NO_SESSION
from fastprof.results.report import Report

if TYPE_CHECKING:
    FastprofProfiler: Any
    FastprofCallback: Any

__all__ = ["FastprofCallback", "FastprofProfiler"]


class _ProfilerMethods(LightningRun):
    """Records a Lightning run in a :class:`fastprof.Profiler`.

    Args:
        loader_names: names of the training loaders in metric keys; several form one
            name, because each batch has a part of every loader.
        val_loader_names: names of the validation (test, predict) loaders.
        **options: keywords of :class:`fastprof.Profiler`; ``profile_training=False`` means
            ``enabled=False``.  Without ``logger``, metrics go to ``trainer.loggers``;
            without ``log_every``, every ``trainer.log_every_n_steps`` steps.

    Raises:
        TypeError, ValueError, OSError: as :class:`fastprof.Profiler`.
    """

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        """Start a run (called by the trainer)."""
        super().setup(stage, local_rank, log_dir)  # type: ignore[misc]
        self._begin(self._lightning_module.trainer)

    def summary(self) -> str:
        """End the run and return its report; the trainer writes it to its log."""
        if self._session is NO_SESSION or not self._options.get("enabled", True):
            return ""
        self._end()
        return "\n" + self.report().to_text()

    def teardown(self, stage: str | None) -> None:
        """End the run (called by the trainer, and when this is collected)."""
        if self._session is not NO_SESSION:
            self._end()
        super().teardown(stage)  # type: ignore[misc]


class _CallbackMethods:
    """Puts a :class:`FastprofProfiler` into the trainer, for users who can only add a callback.

    A profiler that the trainer already has continues, too.  The arguments are those
    of the profiler.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        #: The profiler; ``.report()`` returns its report.
        self.plugin = _class("FastprofProfiler")(**options)
        self._replaced: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Replace the trainer's profiler (called by the trainer)."""
        plugin = self.plugin
        if isinstance(trainer.profiler, _ProfilerMethods):
            return
        self._replaced = trainer.profiler
        if type(trainer.profiler).__name__ != "PassThroughProfiler":
            plugin._other = trainer.profiler
        plugin._lightning_module = trainer.lightning_module
        trainer.profiler = plugin
        plugin.setup(
            stage=stage,
            local_rank=trainer.local_rank if trainer.world_size > 1 else None,
            log_dir=trainer.log_dir,
        )

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Write the report and restore the trainer's own profiler (called by the trainer)."""
        self._put_back(trainer)
        self.plugin.describe()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Restore the trainer's own profiler (called by the trainer)."""
        self._put_back(trainer)

    def _put_back(self, trainer: Any) -> None:
        if self._replaced is not None and trainer.profiler is self.plugin:
            trainer.profiler = self._replaced
        self._replaced = self.plugin._other = None

    def report(self) -> Report:
        """Return the report of the run."""
        report: Report = self.plugin.report()
        return report


_PARTS = {
    "FastprofProfiler": (_ProfilerMethods, "profilers", "Profiler"),
    "FastprofCallback": (_CallbackMethods, "callbacks", "Callback"),
}


def _class(name: str) -> Any:
    imported = tuple(n for n in NAMESPACES if n in sys.modules)
    if not imported:
        for namespace in NAMESPACES:
            with contextlib.suppress(ImportError):
                importlib.import_module(namespace)
                imported = (namespace,)
                break
        else:
            raise ImportError(
                "neither lightning nor pytorch_lightning can be imported; install one of them"
            )
    return _make(name, imported)


@functools.cache
def _make(name: str, namespaces: tuple[str, ...]) -> Any:
    methods, module, base = _PARTS[name]
    bases = [getattr(importlib.import_module(f"{n}.{module}"), base) for n in namespaces]
    body = {"__module__": __name__, "__doc__": methods.__doc__, "__qualname__": name}
    return type(name, (methods, *bases), body)


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return _class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
