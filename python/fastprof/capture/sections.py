"""``profile_section`` and its use as a decorator.

The section itself is a C type.  This module registers the part written in Python: it wraps a
function and keeps its signature, its kind (plain, coroutine, generator, async generator)
and its docstring.
"""

from __future__ import annotations

from fastprof import _core
from fastprof._core import profile_section as profile_section
from fastprof.own_imports import standard

# ``import fastprof`` loads this module and must be quick: typing, functools and inspect
# are loaded at their first use.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from typing import Any, TypeVar

    from fastprof._core import Section

    _F = TypeVar("_F", bound=Callable[..., Any])

DATA_LOADING = "data_loading"
FORWARD_PASS = "forward_pass"
BACKWARD_PASS = "backward_pass"
METRICS_COMPUTATION = "metrics_computation"
OPTIMIZER_STEP = "optimizer_step"
EMA_UPDATE = "ema_update"
SAMPLING = "sampling"
CHECKPOINTING = "checkpointing"
SYNCHRONIZATION = "synchronization"

#: The canonical section names, in the order of a training step.
CANONICAL_SECTIONS = (
    DATA_LOADING, FORWARD_PASS, BACKWARD_PASS, METRICS_COMPUTATION, OPTIMIZER_STEP, EMA_UPDATE,
    SAMPLING, CHECKPOINTING, SYNCHRONIZATION,
)  # fmt: skip


def decorate(section: Section, function: Any) -> Any:
    """Wrap ``function`` so that every call of it runs inside ``section``.

    A coroutine function is timed from its first to its last instruction, including
    waiting.  A generator (async or not) counts only while it runs, one entry per resumption:
    while it is suspended, its consumer runs.

    Raises:
        TypeError: ``function`` is a class or not callable.
    """
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(decorate(section, function.__func__))
    if isinstance(function, type):
        raise TypeError(
            f"profile_section({section.name!r:.80}) cannot decorate the class "
            f"{function.__qualname__}; decorate its methods"
        )
    if not callable(function):
        raise TypeError(
            f"profile_section({section.name!r:.80}) decorates functions, "
            f"not {type(function).__name__}"
        )
    inspect = standard("inspect")
    if inspect.iscoroutinefunction(function):
        return _coroutine(section, function)
    if inspect.isasyncgenfunction(function):
        return _async_generator(section, function)
    if inspect.isgeneratorfunction(function):
        return _generator(section, function)
    return _plain(section, function)


def _like(function: Callable[..., Any]) -> Callable[[_F], _F]:
    """Return ``functools.wraps(function)``."""
    wraps: Callable[[_F], _F] = standard("functools").wraps(function)
    return wraps


def _plain(section: Section, function: Callable[..., Any]) -> Callable[..., Any]:
    @_like(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with section:
            return function(*args, **kwargs)

    return call


def _coroutine(section: Section, function: Callable[..., Any]) -> Callable[..., Any]:
    @_like(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        with section:
            return await function(*args, **kwargs)

    return call


def _generator(section: Section, function: Callable[..., Any]) -> Callable[..., Any]:
    @_like(function)
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        inner = function(*args, **kwargs)
        resume, value = inner.send, None
        while True:
            # Catch the end inside the section: it is a result, not an error.
            with section:
                try:
                    item = resume(value)
                except StopIteration as stop:
                    return stop.value
            try:
                resume, value = inner.send, (yield item)
            except GeneratorExit:
                with section:
                    inner.close()
                raise
            except BaseException as error:  # goes into the generator
                resume, value = inner.throw, error

    return call


def _async_generator(section: Section, function: Callable[..., Any]) -> Callable[..., Any]:
    @_like(function)
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        inner = function(*args, **kwargs)
        resume, value = inner.asend, None
        while True:
            with section:
                try:
                    item = await resume(value)
                except StopAsyncIteration:
                    return
            try:
                resume, value = inner.asend, (yield item)
            except GeneratorExit:
                with section:
                    await inner.aclose()
                raise
            except BaseException as error:  # goes into the generator
                resume, value = inner.athrow, error

    return call


_core.set_decorator_function(decorate)
