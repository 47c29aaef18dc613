"""Automatic sections for a training loop in plain PyTorch, without changing it.

::

    import fastprof.integrations.torch_loop

    with fastprof.integrations.torch_loop.attach():
        train()  # forward, backward, optimizer, data, eval, checkpoint, and the steps

``fastprof run train.py`` and ``FASTPROF=1`` do the same.  See docs/integrations/pytorch.md.
"""

import sys
from collections.abc import Sequence
from typing import Any

from fastprof.errors import StateError
from fastprof.guards import own_errors
from fastprof.integrations._torch.data import Loaders
from fastprof.integrations._torch.hooks import Hooks
from fastprof.integrations._torch.models import has_compiled, has_optimizers
from fastprof.integrations._torch.modules import ModuleRows
from fastprof.integrations._torch.phases import Phases
from fastprof.results.report import Report
from fastprof.session import current
from fastprof.session.part import Part
from fastprof.session.patching.compiling import compiling_test
from fastprof.session.patching.importing import TorchImport
from fastprof.session.profiler import Profiler, run_of
from fastprof.session.run import Run

__all__ = ["TorchLoop", "attach"]


class TorchLoop(Part):
    """The automatic sections of one run; made by :func:`attach`.

    A context manager that detaches.
    """

    kind = "integration"
    in_loop = True

    def __init__(
        self, profiler: Profiler, *, owner: bool, modules: Sequence[str], steps: bool
    ) -> None:
        #: The program's handle on the run.
        self.profiler = profiler
        self._run = run_of(profiler)
        self._owner = owner
        self._patterns = modules
        self._steps = steps
        self._hooks: Hooks | None = None
        self._phases: Phases | None = None
        self._import = TorchImport(self._install)

    def watch(self) -> None:
        """Install the hooks, now or when torch is imported."""
        self._run.parts.append(self)
        self._import.watch()

    def detach(self) -> None:
        """Remove every hook; end the run if ``attach()`` started it."""
        if self._phases is not None and not self._owner:
            self._phases.hand_back()
        self.end()
        if self in self._run.parts:
            self._run.parts.remove(self)
        if self._owner:
            self.profiler.stop()

    def report(self) -> Report:
        """Return the report of the run, like ``profiler.report()``."""
        return self.profiler.report()

    def __enter__(self) -> "TorchLoop":  # noqa: PYI034 - Self is new in 3.11
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.detach()

    # -- called by the run

    def switch_sections(self, on: bool) -> bool:
        return self._phases is not None and self._phases.switch(on)

    def end(self, count: int = 0) -> None:
        """Close the open sections and remove the hooks, at the end of the run."""
        self._import.forget()
        if self._phases is not None:
            self._phases.close()
        if self._hooks is not None:
            self._hooks.uninstall()

    def forget(self) -> None:
        """Let the hooks do nothing, in a forked child."""
        self._import.forget()
        if self._phases is not None:
            self._phases.leave_plain()
            self._phases.on = False

    # -- torch is imported

    def _install(self) -> None:
        try:
            torch: Any = sys.modules["torch"]
            phases = Phases(
                self._run, self._steps, torch.is_grad_enabled, has_optimizers, has_compiled
            )
            rows = ModuleRows(self._patterns, phases.gives_sections, compiling_test(torch))
            loaders = Loaders(self._run, phases, self._fail)
            self._phases = phases
            self._hooks = Hooks(torch, phases, loaders, rows, self._fail)
            self._hooks.remove_later(rows.remove)
            self._hooks.install()
        except own_errors() as error:  # the training continues without sections
            self._fail("the automatic sections could not be installed", error)

    def _fail(self, what: str, error: BaseException) -> None:
        self._run.faults.add("integration_errors", f"fastprof: {what}", error)


def attach(
    profiler: Profiler | None = None,
    *,
    modules: str | Sequence[str] = (),
    steps: bool = True,
    **options: Any,
) -> TorchLoop:
    """Open and close the sections of a PyTorch loop by hooks on torch.

    Call it in the training thread.  torch need not be imported yet; this function does not
    import it.

    Args:
        profiler: the started run; None: the current one, else a new one, which
            ``detach()`` ends.
        modules: path patterns of modules that get separate sections inside
            ``forward``, such as ``"layers.*"``.
        steps: end a step after the optimizer's; False: the program calls ``step()``.
        options: options of the new :class:`~fastprof.Profiler`.

    Raises:
        StateError: the profiler is not running, or already has automatic sections.
        TypeError, ValueError: an argument of the wrong type or out of range.
    """
    patterns: tuple[Any, ...] = (modules,) if isinstance(modules, str) else tuple(modules)
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern:
            raise TypeError(f"modules has {pattern!r:.80}, expected patterns such as 'layers.*'")
    running = current.running()
    owner = False
    if profiler is None and isinstance(running, Run) and not running.gives_way:
        # A notebook's cell that failed before detach(): the new run ends the old one.
        left_over = current.is_interactive() and _is_attached(running)
        profiler = None if left_over else running.profiler
    if profiler is None:
        profiler, owner = Profiler(**options).start(), True
        profiler.enter_phase("setup")
    elif options:
        raise TypeError(f"{sorted(options)[0]!r} is for a new Profiler, but one is already running")
    loop = TorchLoop(profiler, owner=owner, modules=patterns, steps=steps)
    if owner and not profiler.running:  # enabled=False, or FASTPROF=0
        return loop
    if not profiler.running:
        raise StateError("the profiler is not running; start() it before attaching to it")
    if _is_attached(run_of(profiler)):
        raise StateError("the profiler already has automatic sections")
    run_of(profiler).move_here()
    loop.watch()
    run_of(profiler).facts["steps_ended_by"] = "optimizers" if steps else "program"
    return loop


def _is_attached(run: Run) -> bool:
    return any(isinstance(part, TorchLoop) for part in run.parts)
