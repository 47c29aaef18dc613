"""Compilations by ``jax.jit``, from the events of ``jax.monitoring``.

jax reports durations when they have ended, with the function's name, and no reason.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

from fastprof.session.compiling.interface import Compiler
from fastprof.snapshot.compilations import CompileEvent, GraphBreak

MODULE = "jax._src.monitoring"

_TRACED = "/jax/core/compile/jaxpr_trace_duration"
_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILED = "/jax/core/compile/backend_compile_duration"
_HIT, _MISS = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"

#: The reason of every compilation of a function after its first: jax gives none.
NEW_SHAPES = "new shapes or types"

#: Functions whose names are remembered.
_MOST = 4096


class JaxCompiler(Compiler):
    """Collects jax's events, each compilation when its last part has ended."""

    name, module = "jax.jit", MODULE

    def __init__(self) -> None:
        self.unknown: dict[str, None] = {}
        self._listeners: tuple[Callable[..., object], Callable[..., object]] | None = None
        self._parts: dict[str, int] = {}  # ns of the parts that have ended, by function
        self._cache = [0, 0]  # hits and misses since the last compilation
        self._times: dict[str, int] = {}
        self._new: list[tuple[str, int, int, int, int, int]] = []

    def attach(
        self,
        begins: Callable[[str, str], object],
        ends: Callable[[], object],
        done: Callable[[Callable[[], object]], object],
    ) -> None:
        def timed(event: str, seconds: float, **kwargs: Any) -> None:
            if event in (_TRACED, _LOWERED, _COMPILED):
                done(lambda: self._ended(event, seconds, kwargs))

        def counted(event: str, **kwargs: Any) -> None:
            if event in (_HIT, _MISS):
                self._cache[event == _MISS] += 1

        module = sys.modules.get(MODULE)
        for name, listener in (
            ("register_event_duration_secs_listener", timed),
            ("register_event_listener", counted),
        ):
            register = getattr(module, name, None)
            if register is None:
                self.unknown[f"compilations ({MODULE}.{name})"] = None
            else:
                register(listener)
        self._listeners = timed, counted

    def check(self) -> None:
        """Do nothing: jax keeps its listeners."""

    def detach(self) -> None:
        module = sys.modules.get(MODULE)
        for kind, listener in zip(("event_duration", "event"), self._listeners or (), strict=False):
            name = f"unregister_{kind}_listener"
            older = f"_{name}_by_callback"
            unregister = getattr(module, name, None) or getattr(module, older, None)
            if unregister is not None:
                unregister(listener)
        self._listeners = None

    def events(self, step: int, phase: str) -> Iterator[CompileEvent]:
        new, self._new = self._new, []
        for name, times, total, backend, hits, misses in new:
            yield CompileEvent(
                step=step, phase=phase, kind="jax", id=f"{name}/{times}", name=name, file="",
                line=0, total_ns=total, backend_ns=backend, kernel_ns=0, hits=hits, misses=misses,
                reason=NEW_SHAPES if times else "", failed="", limit="",
            )  # fmt: skip

    def breaks(self) -> Iterator[GraphBreak]:
        return iter(())

    def facts(self) -> dict[str, Any]:
        jax: Any = sys.modules.get("jax")
        cache = getattr(getattr(jax, "config", None), "jax_compilation_cache_dir", None)
        return {
            "version": str(getattr(jax, "__version__", "")),
            "limit": 0,
            "cache": cache if isinstance(cache, str) else "",
        }

    def _ended(self, event: str, seconds: float, kwargs: dict[str, Any]) -> bool:
        """Note the end of a part; return whether the compilation has ended with it."""
        name = str(kwargs.get("fun_name") or "")[:200]
        if name.startswith("jit(") and name.endswith(")"):
            name = name[4:-1]
        ns = max(0, round(1e9 * seconds))
        if event != _COMPILED:
            if len(self._parts) < _MOST:
                self._parts[name] = self._parts.get(name, 0) + ns
            return False
        times = self._times.get(name, 0)
        if name in self._times or len(self._times) < _MOST:
            self._times[name] = times + 1
        total = self._parts.pop(name, 0) + ns
        hits, misses = self._cache
        self._cache = [0, 0]
        self._new.append((name, times, total, ns, hits, misses))
        return True
