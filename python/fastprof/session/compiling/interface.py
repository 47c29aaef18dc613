"""What the run asks of a compiler's adapter."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from fastprof.snapshot.compilations import CompileEvent, GraphBreak


class Compiler(Protocol):
    """A compiler whose module may be imported later than the run begins."""

    #: Its name for readers.
    name: str
    #: The module whose import makes it known.
    module: str
    #: What this version does not report.
    unknown: dict[str, None]

    def attach(
        self,
        begins: Callable[[str, str], object],
        ends: Callable[[], object],
        done: Callable[[Callable[[], object]], object],
    ) -> None:
        """Begin to observe; the module is imported.

        Args:
            begins: to be called before each compilation, with its kind and, if it is known, its id.
            ends: to be called after it.
            done: instead, where only its end is known: calls the function that it gets, which
                returns whether a compilation has ended.
        """

    def check(self) -> None:
        """Observe again, if the program has removed the callbacks."""

    def detach(self) -> None:
        """Observe no more."""

    def events(self, step: int, phase: str) -> Iterable[CompileEvent]:
        """Return the compilations since the last call, with this step and phase."""

    def breaks(self) -> Iterable[GraphBreak]:
        """Return the graph breaks since the last call."""

    def facts(self) -> dict[str, Any]:
        """Return ``version``, ``limit`` and ``cache`` of the snapshot."""
