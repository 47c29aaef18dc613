"""Which automatic section is open, from what the hooks on torch tell.

Phases lie side by side, never inside each other.  ``forward`` begins with the outermost
module call and lasts until backward begins, the next batch is fetched, an optimizer steps
or the step ends: so it contains the loss.  Without gradients it ends with the call.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastprof.capture.sections import profile_section
from fastprof.integrations.torch_owner import claims

if TYPE_CHECKING:
    from fastprof.session.own_time import OwnTime
    from fastprof.session.profiler import Profiler

FORWARD = profile_section("forward")
BACKWARD = profile_section("backward")
OPTIMIZER = profile_section("optimizer")
EVAL = profile_section("eval")


class Phases:
    """The state of the training thread; every other thread is ignored.

    Args:
        profiler: the run.
        steps: end a step after the optimizer's.
        graded: whether autograd records (``torch.is_grad_enabled``).
    """

    def __init__(self, profiler: Profiler, steps: bool, graded: Callable[[], bool]) -> None:
        self._profiler = profiler
        self._steps = steps
        self._steps_seen = profiler.steps
        #: What is done here is fastprof's time.
        self.own_time: OwnTime = profiler.own_time
        self._graded = graded
        self._thread = threading.get_ident()
        #: False: nothing is opened or closed any more.
        self.on = True
        self._in_call = False
        self._ends_with_call = False
        self._backwards = 0
        self._backward_opened = False
        self._optimizers: list[int] = []
        self._in_closure = False
        self._stepped: Any = None
        self._evaluating = False
        self._eval_opened = False
        self._leader: weakref.ref[Any] | None = None
        self._others: weakref.WeakSet[Any] = weakref.WeakSet()
        # The module trained last, whether it was in training mode, and its successor.
        self._trained: weakref.ref[Any] | None = None
        self._trained_mode = True
        self._candidate: weakref.ref[Any] | None = None
        self._only_evaluated = False

    def here(self) -> bool:
        """Whether this is the training thread, and the hooks are in charge of it."""
        return self.on and not claims and threading.get_ident() == self._thread

    @property
    def idle(self) -> bool:
        """Whether neither a module, backward nor an optimizer is running."""
        return not (self._in_call or self._backwards or self._optimizers)

    # -- forward

    def module_begins(self, module: Any) -> bool:
        """A module is called; whether :meth:`module_ends` is to be told."""
        if not self.here() or self._in_call or self._backwards:
            return False
        if self._optimizers and not self._in_closure:
            return False
        graded = self._graded()
        opened = FORWARD.enter_phase()
        if opened:
            FORWARD.leave_later()
        if graded:
            if opened and (self._candidate is None or self._candidate() is not module):
                self._remember(module)
        elif self._trained is None:
            self._only_evaluated = not module.training
        self._in_call = True
        self._ends_with_call = opened and not graded
        return True

    def _remember(self, module: Any) -> None:
        # A loss or a normalisation has no parameters, and no mode that matters.
        if next(iter(module.parameters()), None) is not None:
            self._candidate = weakref.ref(module)

    def module_ends(self) -> None:
        """That module has returned or raised."""
        self._in_call = False
        if self._ends_with_call and self.here():
            FORWARD.leave_now()

    # -- backward

    def backward_begins(self) -> None:
        """Autograd is about to run; may be inside itself, or inside a module."""
        if not self.here():
            return
        self._backwards += 1
        if self._backwards > 1 or self._in_call:
            return
        self.end_evaluation()
        if not self._in_closure:
            self._optimizers.clear()
        module = None if self._candidate is None else self._candidate()
        if module is not None:
            self._trained, self._trained_mode = self._candidate, module.training
        self._backward_opened = BACKWARD.enter_phase()

    def backward_ends(self, *exc_info: Any) -> None:
        """Autograd has returned or raised."""
        if not self.here() or not self._backwards:
            return
        self._backwards -= 1
        if not self._backwards and self._backward_opened:
            self._backward_opened = False
            BACKWARD.__exit__(*(exc_info or (None, None, None)))

    # -- optimizer

    def steps_already(self, who: object) -> bool:
        """Whether a step of ``who`` has begun and not ended, or raised."""
        return id(who) in self._optimizers

    def optimizer_begins(self, who: object, *, closure: bool = False) -> None:
        """``who`` is about to step.  With a closure the section begins when that has run."""
        if not self.here():
            return
        if self.steps_already(who):  # its last step raised
            self._optimizers.clear()
        self._optimizers.append(id(who))
        if len(self._optimizers) == 1:
            self._in_call = False
            self.end_evaluation()
            FORWARD.leave_now()
            if not closure:
                self._open_optimizer()

    def closure_begins(self) -> None:
        """The optimizer calls its closure: forward and backward, not optimizer."""
        if self.here():
            OPTIMIZER.leave_now()
            self._in_closure = True

    def closure_ends(self) -> None:
        """The closure has returned or raised."""
        self._in_closure = False
        if self.here():
            FORWARD.leave_now()
            self._open_optimizer()

    def optimizer_ends(self, who: object, *, stepped: Any = None) -> None:
        """``who`` has stepped; ``stepped`` is the optimizer, if it did not merely try."""
        if not self.here() or not self.steps_already(who):
            return
        del self._optimizers[self._optimizers.index(id(who)) :]
        if stepped is not None:
            self._stepped = stepped
        if self._optimizers:
            return
        OPTIMIZER.leave_now()
        stepped, self._stepped = self._stepped, None
        if stepped is not None and self._ends_step(stepped):
            self._step()

    @staticmethod
    def _open_optimizer() -> None:
        if OPTIMIZER.enter_phase():
            # A step that raises is over when something else begins.
            OPTIMIZER.leave_later()

    def _ends_step(self, optimizer: Any) -> bool:
        """Whether its step is the boundary: with several optimizers, one per round.

        It is that of the optimizer that came first; another one takes its place by
        stepping twice while that one does not.
        """
        leader = None if self._leader is None else self._leader()
        if leader is None or optimizer in self._others:
            self._leader = weakref.ref(optimizer)
        elif optimizer is not leader:
            self._others.add(optimizer)
            return False
        self._others.clear()
        return True

    def _step(self) -> None:
        # A program that ends steps itself has the say.
        if self._steps and self._profiler.steps == self._steps_seen:
            self._steps_seen = self._profiler.step()
            self.own_time.steps += 1

    # -- data and evaluation

    def validates(self) -> bool:
        """Whether a batch fetched now is for validation.

        It is if gradients are off, or if the model that was trained last is in evaluation
        mode, unless that is how it was trained.
        """
        if not self._graded():
            return True
        model = None if self._trained is None else self._trained()
        if model is None:
            return self._only_evaluated
        return self._trained_mode and not model.training

    def fetch_begins(self, validates: bool) -> None:
        """A batch is about to be fetched."""
        self._in_call = False
        self._optimizers.clear()
        if not validates:
            self.end_evaluation()
        elif not self._evaluating:
            FORWARD.leave_now()
            self._evaluating = True
            self._eval_opened = EVAL.enter_phase()
            self._profiler.validation_begins()

    def end_evaluation(self) -> None:
        """The validation pass is over."""
        if self._evaluating:
            self._close_evaluation()
            self._profiler.validation_ends()
            self._profiler.leave_validation()

    def _close_evaluation(self) -> None:
        FORWARD.leave_now()
        self._evaluating = False
        if self._eval_opened:
            self._eval_opened = False
            EVAL.__exit__(None, None, None)

    # -- the rest

    def aside(self) -> bool:
        """Something that is no phase begins; whether it gets a section of its own."""
        if not self.here() or not self.idle:
            return False
        FORWARD.leave_now()
        return True

    def close(self) -> None:
        """The hooks are going: close what is open."""
        if self.on and threading.get_ident() == self._thread:
            self.on = False
            FORWARD.leave_now()
            OPTIMIZER.leave_now()
            if self._backward_opened:
                BACKWARD.__exit__(None, None, None)
            self._close_evaluation()
        self.on = False
