"""NVTX during a run: sections out to a listening tool, or ranges of libraries in."""

from typing import Literal

from fastprof.session.faults import Faults


class NvtxRanges:
    """One direction at a time, because a process has one listener.

    Args:
        wanted: ``"auto"``: out, if a tool listens; True: out, or else in; False: neither.
        faults: receives a note if the wanted direction is not available.
    """

    def __init__(self, wanted: bool | Literal["auto"], faults: Faults) -> None:
        self._wanted = wanted
        self._faults = faults
        #: ``"out"``, ``"in"``, or empty.
        self.direction = ""

    def start(self, tool: str = "") -> None:
        """Begin.

        Args:
            tool: a tool attached to this process, which should be listening.
        """
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
        if self._wanted is True or tool:
            self._faults.notes.append(f"There are no NVTX ranges of this run: {why}.")

    def stop(self) -> None:
        """End the started direction; do nothing the second time."""
        direction, self.direction = self.direction, ""
        if not direction:
            return
        from fastprof.capture import nvtx

        if direction == "out":
            nvtx.end_out()
        else:
            nvtx.end()
