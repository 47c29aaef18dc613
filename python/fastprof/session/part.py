"""The interface of a run's parts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastprof.snapshot import Snapshot


class Part:
    """One kind of work in a run; a subclass overrides the methods that it needs.

    The run calls them in the order of its table (:mod:`fastprof.session.parts`), those that end
    something in the reverse order.  An exception becomes a fault of the run, named after
    :attr:`kind`, and does not reach the program.
    """

    #: The beginning of the fault's name: "gpu" makes ``gpu_errors``.
    kind = "part"
    #: An exception of :meth:`begin` reaches the program, and the run does not start.
    must_begin = False
    #: Ends before the loop does: what it does at its end belongs to the loop.
    in_loop = False
    #: Begins the next step anew after :meth:`at_step`, whose time counts for no step.  Such parts
    #: are the last of the table.
    between_steps = False

    @property
    def has_output(self) -> bool:
        """Whether the user gets the run's results from this part, when it has ended."""
        return False

    def begin(self) -> None:
        """Start, before the first step."""

    def next_step(self, count: int) -> int:
        """Return the number of steps after which :meth:`at_step` is due; ``count`` have ended.

        The run asks again whenever any part has had work: a distance from ``count`` would never
        come.  :class:`~fastprof.session.pace.Pace` and multiples of a number do.
        """
        return sys.maxsize

    def at_step(self, count: int) -> None:
        """Do the work that is due after ``count`` steps; at times it is called earlier."""

    def switch_sections(self, on: bool) -> bool:
        """Give the next steps their automatic sections, or none; return whether that was done.

        Those are ``forward``, ``backward``, ``optimizer`` and the sections of modules.  Steps,
        batches, evaluations, checkpoints and the program's sections are recorded as before.
        Called between steps, in the training thread: by :meth:`at_step`, for example.
        """
        return False

    def sections_switched(self, on: bool) -> None:
        """Note that a part has switched automatic sections of the next steps."""

    def phase_begins(self, phase: str) -> bool:
        """Prepare for work other than a step; return whether :meth:`next_step` has changed.

        Args:
            phase: the phase of the run that it belongs to, or "workers" of a loader.
        """
        return False

    def phase_changes(self, count: int) -> None:
        """Prepare for another phase of the run, in the thread whose phases count."""

    def moved(self, count: int) -> None:
        """Go on in this thread, whose steps count, before the first one has ended."""

    def end(self, count: int) -> None:
        """Record no more, after ``count`` steps; also called if another part's begin failed."""

    def finish(self, count: int) -> None:
        """Collect what is left, when all parts have ended."""

    def publish(self, count: int) -> None:
        """Log, print or save the results, when all parts have finished."""

    def forget(self) -> None:
        """Do nothing any more, in a forked child: the parent goes on with the run."""

    def arguments(self, *, whole: bool) -> dict[str, Any]:
        """Return arguments of :func:`fastprof.capture.convert.take_snapshot`, which follows.

        Args:
            whole: False: what takes time, such as the trace, is not needed.
        """
        return {}

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """Return ``snapshot`` with this part's data."""
        return snapshot
