"""The state of the automatic sections, and the thread whose sections they are."""

from _thread import _local, allocate_lock, get_ident
from collections.abc import Callable
from typing import Any, Protocol
from weakref import ref

from fastprof.capture.sections import profile_section
from fastprof.integrations._torch.leaders import Leaders
from fastprof.integrations._torch.models import Models
from fastprof.integrations._torch.owner import claims
from fastprof.session.loaders.timing import NO_LOADER
from fastprof.session.own_time import OwnTime
from fastprof.session.run import Run

DATA = profile_section("data")
FORWARD = profile_section("forward")
BACKWARD = profile_section("backward")
OPTIMIZER = profile_section("optimizer")
EVAL = profile_section("eval")

#: Steps of optimizers after which those that are older than the hooks count as known.  Some step
#: seldom: that of a GAN's generator after several steps of the critic's.
_FIRST_STEPS = 64


class _PlainEnds(Protocol):
    """What these phases use of :class:`~fastprof.integrations._torch.plain_ends.PlainEnds`."""

    @property
    def stepping(self) -> bool: ...
    def begin(self, optimizer: Any, tag: int) -> None: ...
    def end(self) -> None: ...


class _Mark:
    """A reference that a thread has."""


class PhaseState:
    """The state of the training thread; every other thread is ignored.

    That is the thread of the run, unless another one trains first: see :meth:`_moves_here`.

    Args:
        steps: end a step after the optimizer's.
        graded: returns whether autograd records (``torch.is_grad_enabled``).
        optimizers: returns whether the program has made an optimizer of torch.
        compiled: returns whether torch has compiled functions.
    """

    def __init__(
        self,
        run: Run,
        steps: bool,
        graded: Callable[[], bool],
        optimizers: Callable[[], bool] = lambda: True,
        compiled: Callable[[], bool] = lambda: False,
    ) -> None:
        #: The run.
        self.run = run
        self._steps = steps
        self._recorder = run.recorder
        self._steps_seen = run.steps
        #: Collects the time spent here, which is fastprof's.
        self.own_time: OwnTime = run.own_time
        #: Returns whether gradients are on.
        self.is_graded = graded
        self._has_optimizers = optimizers
        self._is_compiled = compiled
        self._thread = run.thread
        # Two threads may find at once that they train.
        self._moving = allocate_lock()
        self._moved = False
        # The last thread that fetched a batch while another one was watched; 0: none.  It has
        # called a module since.
        self._fetches_elsewhere, self._called_elsewhere = 0, False
        # Dies with the thread that was found.
        self._local: Any = _local()
        self._mark: Any = None
        # The step that was under way when its thread was found has not ended.
        self._partial = False
        self.models = Models(knows_optimizers=not optimizers())
        #: Called when the last fetched batch turns out to be for training, or evaluation.
        self.on_training: Callable[[], None] = nothing
        self.on_evaluation: Callable[[], None] = nothing
        #: False: no section is opened or closed.
        self.on = True
        #: False: steps have no ``forward``, ``backward`` and ``optimizer``, see :meth:`switch`.
        self.sections = True
        #: Whether calls of modules are reported, and what to call when that changes.
        self.watching = True
        self.on_watching: Callable[[], None] = nothing
        # The mode of a module has changed in this step.
        self._has_new_mode = False
        #: A batch is being fetched: other events meanwhile are part of the fetch.
        self.fetching = False
        self.evaluating = False
        #: A batch was fetched, and its purpose is unknown.
        self.unsure = False
        #: An outermost module is running, as far as is known: Ctrl-C ends a call without an event.
        self.in_call = False
        self._ends_with_call = False
        self._call_graded = False
        # The module that returned last, by address (the complement if gradients were off),
        # and for each module whether backward came next: 1 yes, 0 unknown, -1 another event.
        self._returned = 0
        self._next_is_backward: dict[int, int] = {}
        self._backwards = 0
        self._backward_opened = False
        # Wall and CPU time when backward began, where they are read.
        self._backward_at: tuple[int, int] | None = None
        self._backward_ns = self._backward_cpu_ns = 0
        self._seen_backwards = self._read_backwards = 0
        self._steps_to_look = 0 if self.models.knows_optimizers else _FIRST_STEPS
        self._optimizers: list[int] = []
        self._in_closure = False
        self._stepped: Any = None
        self._known_optimizer: Callable[[], Any] = nothing
        # The optimizer whose next step is like its last one, on a batch of the same loader.
        self._again: Callable[[], Any] = nothing
        self._again_tag = NO_LOADER
        self._plain_steps = 0
        # The step of the optimizer began as a plain one.
        self._began_plain = False
        #: Ends plain steps instead of :meth:`ends_plain_step`, if that is possible.
        self.plain_ends: _PlainEnds | None = None
        self._eval_opened = False
        # The module that was evaluated since the last batch of unknown purpose.
        self._evaluated: Callable[[], Any] = nothing
        # Autograd ran in it.
        self._eval_graded = False
        #: The optimizers, and whose steps end those of the run.
        self.leaders = Leaders()
        # For ends of steps if no optimizer of torch steps.
        self._optimized = False
        self._unstepped = 0
        self._backward_since = False
        self._fetched = False
        # For a program that trains nothing, or only in compiled code: autograd has run; number of
        # batches since; number of calls of modules up to the last fetch.
        self._has_trained = False
        self._untrained = 0
        self._calls_before = 0
        # Number of backwards since an evaluation without a loader.
        self._trained_since: int | None = None
        self._in_setup = True
        self._outside = False
        # The last fetch ended the time outside; or work on a batch that was read ahead did.
        self._was_outside = False
        self._outside_after_step = False
        # The program has used one such batch since the last fetch.
        self._was_ahead = False
        #: Number of calls of outermost modules so far.
        self.calls = 0

    def in_training_thread(self) -> bool:
        """Return whether this is the thread whose phases are watched."""
        return get_ident() == self._thread

    def here(self) -> bool:
        """Return whether this is the training thread, and the hooks are in charge of it."""
        return self.on and not claims and get_ident() == self._thread

    def gives_sections(self) -> bool:
        """Return whether modules get their sections now, in this thread."""
        return self.sections and self.here()

    def _moves_here(self, *, steps: bool = False) -> bool:
        """Watch this thread from now on if it is the first one that trains; return whether it is.

        A thread trains that calls backward.  Once watched for that, it gives way to one whose
        optimizer steps first (``steps``): backward may also explain a prediction.
        """
        if get_ident() == self._thread or self.run.steps:
            return False
        gives_way = steps and self._moved and self.on and not claims
        if not self.may_move and not gives_way:
            return False
        # Sections that are open can only be closed in their thread.
        if self.evaluating or not self.idle or self._keeps_forward():
            return False
        if not self._moving.acquire(False):
            return False
        try:
            if not self.run.move_here():
                return False
            self._thread = get_ident()
        finally:
            self._moving.release()
        self._local.mark = mark = _Mark()
        self._mark = ref(mark, self._thread_ended)
        self._moved = self._partial = self._in_setup = True
        self._outside = self._was_outside = self._outside_after_step = self._was_ahead = False
        self._fetched = self._backward_since = self._has_trained = self.unsure = False
        self._returned = self._untrained = self._unstepped = self._seen_backwards = 0
        return True

    def fetch_moves_here(self) -> bool:
        """Watch this thread if it infers: it calls modules on batches that it fetches.

        Nothing trains, and the watched thread fetches nothing.  A thread that only fetches, for
        another one, calls no module.
        """
        if not self.may_move or self._fetched or self._has_optimizers():
            return False
        here = get_ident()
        if self._fetches_elsewhere == here and self._called_elsewhere:
            return self._moves_here()
        self._fetches_elsewhere, self._called_elsewhere = here, False
        return False

    def _thread_ended(self, mark: object) -> None:
        self._thread = 0
        self.run.thread_ended()

    def _keeps_forward(self) -> bool:
        """Return whether ``forward`` stays open after the return of the last module."""
        return self._next_is_backward.get(self._returned, 0) > 0

    @property
    def may_move(self) -> bool:
        """Whether another thread may turn out to be the one that trains."""
        return self.on and not claims and not self._has_trained and not self.run.steps

    @property
    def idle(self) -> bool:
        """Whether neither a module, backward, an optimizer nor a fetch is running."""
        if self.in_call or self._backwards or self._optimizers or self.fetching:
            return False
        return self.plain_ends is None or not self.plain_ends.stepping

    def _call_is_over(self) -> None:
        """A call that Ctrl-C ended was never reported: let the next one be reported."""
        if self.in_call:
            self.in_call = False
            self.on_watching()

    def leave_plain(self) -> None:
        """Handle the next step as one that need not be plain."""
        if self.plain_ends is not None:
            self.plain_ends.end()

    def plain_ended(self, who: object, seen: int, *, stepping: bool) -> None:
        """Go on after the last step that :attr:`plain_ends` has ended.

        Args:
            who: the optimizer.
            seen: number of steps of the run then.
            stepping: its next step is under way.
        """
        self._steps_seen = seen
        if stepping:
            self._optimizers.append(id(who))
            self._in_closure = True  # if it has one, it may be running


def nothing() -> None:
    pass
