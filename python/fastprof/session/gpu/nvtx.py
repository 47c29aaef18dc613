"""NVTX during a run: sections out to a listening tool, or ranges of libraries in."""

from collections.abc import Callable
from typing import Literal

from fastprof.session.faults import Faults
from fastprof.session.part import Part


class NvtxRanges(Part):
    """One direction at a time, because a process has one listener.

    Args:
        wanted: ``"auto"``: out, if a tool listens; True: out, or else in; False: neither.
        faults: receives a note if the wanted direction is not available.
        tool: returns the tool attached to this process, which should be listening.
    """

    kind = "nvtx"

    def __init__(
        self, wanted: bool | Literal["auto"], faults: Faults, tool: Callable[[], str] = str
    ) -> None:
        self._wanted = wanted
        self._faults = faults
        self._tool = tool
        #: ``"out"``, ``"in"``, or empty.
        self.direction = ""

    def begin(self) -> None:
        if self._wanted is False:
            return
        from fastprof.capture import nvtx

        why = nvtx.begin_out()
        if why is None:
            self.direction = "out"
            return
        if self._wanted is True:
            why = nvtx.begin()
            if why is None:
                self.direction = "in"
                return
        if self._wanted is True or self._tool():
            self._faults.notes.append(f"There are no NVTX ranges of this run: {why}.")

    def end(self, count: int = 0) -> None:
        """End the started direction; do nothing the second time."""
        direction, self.direction = self.direction, ""
        if not direction:
            return
        from fastprof.capture import nvtx

        if direction == "out":
            nvtx.end_out()
        else:
            nvtx.end()

    def forget(self) -> None:
        self.end()
