"""The private interfaces of torch.compile that fastprof reads; no other file knows them.

torch 2.6 to 2.14 have the callbacks and the metrics; where one has changed, the reading says what
is unknown, and the rest goes on.  Nothing here changes what is compiled: callbacks are in no guard,
and reading the metrics removes none.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from fastprof.report.origin import is_users_file
from fastprof.session.compiling.interface import Compiler
from fastprof.snapshot.compilations import NOT_KNOWN, CompileEvent, GraphBreak

#: The module whose import makes the interfaces available.
MODULE = "torch._dynamo.callback"
_UTILS = "torch._dynamo.utils"

#: Longest text that is kept.
_TEXT = 600

#: torch's reasons to call back -> kinds of compilations; all others are forward.
_TRIGGERS = {
    "LAZY_BACKWARD": "backward",
    "TRITON_AUTOTUNING": "runtime",
    "CUDAGRAPH_RECORDING": "runtime",
}

_FRAME = re.compile(r"Line: (\d+), Name: .*?, Filename: (.+)$")
_LIMIT = re.compile(r"\b((?:accumulated_)?(?:recompile|cache_size)_limit)\b")


class TorchCompiler(Compiler):
    """Reads torch.compile's callbacks, metrics and graph breaks."""

    name, module = "torch.compile", MODULE

    def __init__(self) -> None:
        self.unknown: dict[str, None] = {}
        self._callbacks: tuple[Callable[..., object], Callable[..., object]] | None = None
        self._last: Any = None  # of the metrics that were read
        self._breaks = 0
        # By number of a function: name, file, line.
        self._functions: dict[str, tuple[str, str, int]] = {}
        # By a function's place: failed guards that were read.
        self._failures: dict[tuple[str, str, int], int] = {}

    def attach(
        self,
        begins: Callable[[str, str], object],
        ends: Callable[[], object],
        done: Callable[[Callable[[], object]], object],
    ) -> None:
        """Call ``begins`` and ``ends`` around each compilation from now on."""

        def started(*args: Any) -> None:  # 2.6 gives none
            trigger = getattr(args[0], "callback_trigger", None) if args else None
            kind = _TRIGGERS.get(getattr(trigger, "name", ""), "forward")
            begins(kind, str(getattr(args[0], "compile_id", "")) if args else "")

        def ended(*_: object) -> None:
            ends()

        self._callbacks = started, ended
        self.check()
        self._last = next(reversed(self._metrics()), None)
        self._breaks = len(self._reasons())
        self._failures = {place: len(texts) for place, texts in _guard_failures()}

    def check(self) -> None:
        """Register the callbacks, if ``torch._dynamo.reset()`` or another has removed them."""
        handler = getattr(sys.modules.get(MODULE), "callback_handler", None)
        starts = getattr(handler, "start_callbacks", None)
        ends = getattr(handler, "end_callbacks", None)
        if not isinstance(starts, list) or not isinstance(ends, list):
            self.unknown["the begin and end of compilations (torch._dynamo.callback)"] = None
        elif self._callbacks is not None:
            for callbacks, ours in zip((starts, ends), self._callbacks, strict=True):
                if ours not in callbacks:
                    callbacks.append(ours)

    def detach(self) -> None:
        """Take the callbacks away."""
        handler = getattr(sys.modules.get(MODULE), "callback_handler", None)
        for name, ours in zip(("start", "end"), self._callbacks or (), strict=False):
            callbacks = getattr(handler, f"{name}_callbacks", None)
            if isinstance(callbacks, list) and ours in callbacks:
                callbacks.remove(ours)
        self._callbacks = None

    def events(self, step: int, phase: str) -> Iterator[CompileEvent]:
        """Yield the compilations since the last call; all belong to this step and phase."""
        new = []
        for metrics in reversed(self._metrics()):
            if metrics is self._last:
                break
            new.append(metrics)
        if new:
            self._last = new[0]
        for metrics in reversed(new):
            yield self._event(metrics, step, phase)

    def breaks(self) -> Iterator[GraphBreak]:
        """Yield the graph breaks since the last call."""
        reasons = self._reasons()
        if len(reasons) < self._breaks:  # torch._dynamo.reset()
            self._breaks = 0
        new, self._breaks = reasons[self._breaks :], len(reasons)
        for each in new:
            stack = [frame for frame in each.user_stack if frame.lineno]
            own = [frame for frame in stack if is_users_file(frame.filename)] or stack
            if own:
                at = own[-1]
                text = _text(each.reason)
                yield GraphBreak(at.filename, at.lineno, at.name, text, 1)

    def facts(self) -> dict[str, Any]:
        """Return the version, the limit of compilations, and the folder of the cache."""
        torch: Any = sys.modules.get("torch")
        config: Any = sys.modules.get("torch._dynamo.config")
        limit = getattr(config, "recompile_limit", getattr(config, "cache_size_limit", 0))
        return {
            "version": str(getattr(torch, "__version__", "")),
            "limit": limit if type(limit) is int and limit > 0 else 0,
            "cache": os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""),  # the compiler sets it
        }

    def _metrics(self) -> list[Any]:
        get = getattr(sys.modules.get(_UTILS), "get_compilation_metrics", None)
        if get is None:
            if _UTILS in sys.modules:
                self.unknown[f"compilations ({_UTILS}.get_compilation_metrics)"] = None
            return []
        return list(get())

    def _reasons(self) -> list[Any]:
        reasons = getattr(sys.modules.get(_UTILS), "graph_break_reasons", None)
        if not isinstance(reasons, list):
            if _UTILS in sys.modules:
                self.unknown[f"graph breaks ({_UTILS}.graph_break_reasons)"] = None
            return []
        return reasons

    def _event(self, metrics: Any, step: int, phase: str) -> CompileEvent:
        def ns(name: str, older: str = "") -> int:
            us = getattr(metrics, name, None)
            if us is None and older:
                us = 1e6 * (getattr(metrics, older, None) or 0)
            return max(0, round(1000 * (us or 0)))

        def count(*kinds: str) -> int:
            names = [f"{of}_cache_{kinds[0]}_count" for of in kinds[1:]]
            return max(getattr(metrics, name, None) or 0 for name in names)

        backward = getattr(metrics, "is_forward", True) is False
        # "duration_us" has the work before and after it, too: of a busy machine, that is much.
        total = 0 if backward else ns("dynamo_cumulative_compile_time_us")
        total = total or ns("duration_us", "entire_frame_compile_time_s")
        runtime = getattr(metrics, "is_runtime", False) is True
        backend = ns("aot_autograd_cumulative_compile_time_us", "backend_compile_time_s")
        if backward or runtime:
            backend = total
        backend = min(backend, total)
        kernel = ns("inductor_code_gen_cumulative_compile_time_us", "code_gen_time_s")
        number = str(getattr(metrics, "compile_id", None) or "")
        function = number.rpartition("/")[0]
        name, file, line = self._functions.get(function, ("", "", 0))
        if getattr(metrics, "co_name", None):
            name, file = str(metrics.co_name), str(metrics.co_filename or "")
            line = int(metrics.co_firstlineno or 0)
            if function:
                self._functions[function] = name, file, line
        # What has no function is torch.export's.
        exported = not number and not name and not runtime and not backward
        failed = _text(getattr(metrics, "fail_reason", None))
        limit = _LIMIT.search(failed) if "limit" in failed[:60] else None
        reason = getattr(metrics, "recompile_reason", None)
        if not hasattr(metrics, "recompile_reason"):
            reason = self._reason((name, file, line), number)
        local = ("inductor_fx_local", "inductor_fx_remote")
        return CompileEvent(
            step=step,
            phase=phase,
            kind="export"
            if exported
            else "runtime"
            if runtime
            else "backward"
            if backward
            else "forward",
            id=number,
            name="torch.export" if exported else name,
            file=file,
            line=line,
            total_ns=total,
            backend_ns=backend,
            kernel_ns=backend if runtime else min(kernel, backend),
            hits=count("hit", *local),
            misses=count("miss", *local),
            reason=_text(reason),
            failed="" if limit else failed,
            limit=limit[1] if limit else "",
            caller="" if is_users_file(file) else _caller(getattr(metrics, "stack_trace", None)),
        )

    def _reason(self, place: tuple[str, str, int], number: str) -> str:
        """Return why a function was compiled again by torch 2.6, whose metrics do not have it.

        That has a list of failed guards, one per earlier compilation, the newest one first.
        """
        again = number.rpartition("/")[2]
        if not again.isdigit() or not int(again):
            return ""
        for where, texts in _guard_failures():
            if where == place:
                at = self._failures.get(place, 0)
                at = 0 if at > len(texts) else at  # torch._dynamo.reset()
                self._failures[place] = min(len(texts), at + int(again))
                if texts[at:]:
                    return texts[at]
        self.unknown["reasons of recompilations"] = None
        return NOT_KNOWN


def _guard_failures() -> list[tuple[tuple[str, str, int], list[str]]]:
    failures = getattr(sys.modules.get(_UTILS), "guard_failures", None)
    if not isinstance(failures, dict):
        return []
    return [
        ((code.co_name, code.co_filename, code.co_firstlineno), texts)
        for code, texts in list(failures.items())
    ]


def _caller(stack: object) -> str:
    """Return the innermost line of the program in the stack of a compilation, if torch gives it."""
    for frame in reversed(stack) if isinstance(stack, list) else ():
        found = _FRAME.match(str(frame))
        if found and is_users_file(found[2]):
            return f"{found[2]}:{found[1]}"[:_TEXT]
    return ""


def _text(value: object) -> str:
    return "" if value is None else str(value)[:_TEXT]
