"""Trainers and frameworks: one line each.

::

    from fastprof.integrations.lightning import FastprofProfiler  # Trainer(profiler=...)
    from fastprof.integrations.transformers import attach  # attach(trainer)
    from fastprof.integrations.accelerate import attach  # attach(accelerator)

fastprof imports a framework only when you import its module here.
"""

import pkgutil
from typing import Any

from fastprof.own_imports import first_use


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name in __dir__():
        return first_use(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
