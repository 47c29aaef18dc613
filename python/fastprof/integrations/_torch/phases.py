"""Opens and closes the automatic sections, from the events of the hooks on torch.

Phases lie side by side, never inside each other.  ``forward`` covers the calls of outermost
modules until backward begins, as one sample: each return closes it and the next call reopens
it.  A loss computed by functions follows the last call, so ``forward`` stays open after the
return of a module if, the last time that this module returned, backward was the next event.
"""

from _thread import _local, allocate_lock, get_ident
from collections.abc import Callable
from typing import Any, Protocol
from weakref import ref

from fastprof.capture.sections import profile_section
from fastprof.clock import time
from fastprof.guards import own_errors
from fastprof.integrations._torch.leaders import Leaders, shapes
from fastprof.integrations._torch.models import Models, has_loss
from fastprof.integrations._torch.owner import claims
from fastprof.session.loaders.timing import NO_LOADER
from fastprof.session.own_time import SAMPLED, OwnTime, clock
from fastprof.session.run import Run
from fastprof.session.thread_notes import ThreadNotes

DATA = profile_section("data")
FORWARD = profile_section("forward")
BACKWARD = profile_section("backward")
OPTIMIZER = profile_section("optimizer")
EVAL = profile_section("eval")

#: Most modules for which the event after their return is remembered.
_REMEMBERED = 1000
#: Batches to wait for an optimizer of torch that was made and has not stepped.
_PATIENCE = 64
#: Batches without backward, after which compiled code is assumed to train with them.
_HIDDEN = 8
#: Steps of optimizers after which those that are older than the hooks count as known.  Some step
#: seldom: that of a GAN's generator after several steps of the critic's.
_FIRST_STEPS = 64
#: Calls of backward whose CPU time is not read.
_FIRST_BACKWARDS = 4


class _PlainEnds(Protocol):
    """What these phases use of :class:`~fastprof.integrations._torch.plain_ends.PlainEnds`."""

    @property
    def stepping(self) -> bool: ...
    def begin(self, optimizer: Any, tag: int) -> None: ...
    def end(self) -> None: ...


class _Mark:
    """A reference that a thread has."""


class Phases:
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
        self.on_training: Callable[[], None] = _nothing
        self.on_evaluation: Callable[[], None] = _nothing
        #: False: no section is opened or closed.
        self.on = True
        #: False: steps have no ``forward``, ``backward`` and ``optimizer``, see :meth:`switch`.
        self.sections = True
        #: Whether calls of modules are reported, and what to call when that changes.
        self.watching = True
        self.on_watching: Callable[[], None] = _nothing
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
        # Wall and CPU time when backward began, where they are read; calls without readings.
        self._backward_at: tuple[int, int] | None = None
        self._backward_ns = self._backward_cpu_ns = 0
        self._seen_backwards = 0
        self._steps_to_look = 0 if self.models.knows_optimizers else _FIRST_STEPS
        self._optimizers: list[int] = []
        self._in_closure = False
        self._stepped: Any = None
        self._known_optimizer: Callable[[], Any] = _nothing
        # The optimizer whose next step is like its last one, on a batch of the same loader.
        self._again: Callable[[], Any] = _nothing
        self._again_tag = NO_LOADER
        self._plain_steps = 0
        # The step of the optimizer began as a plain one.
        self._began_plain = False
        #: Ends plain steps instead of :meth:`ends_plain_step`, if that is possible.
        self.plain_ends: _PlainEnds | None = None
        self._eval_opened = False
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

    # -- steps without sections

    def switch(self, on: bool) -> bool:
        """Give the next steps their sections, or none; return whether that was done.

        See :meth:`fastprof.session.part.Part.switch_sections`.  Without sections, calls of
        modules are reported only where they may end an evaluation or the time outside of the
        loop.  They also end steps where no optimizer of torch has stepped: there, and where a
        trainer's integration is in charge, the sections stay.
        """
        if not self.here() or not (on or self._optimized):
            return False
        if on != self.sections:
            FORWARD.leave_now()
            self.in_call = False
            self._returned = 0
            self.sections = on
            self._watch()
        return True

    def _watch(self) -> None:
        """Let calls of modules be reported if they are needed."""
        needed = self.sections or self.evaluating or self._outside or self._has_new_mode
        if needed:
            self.leave_plain()
        if needed != self.watching:
            self.watching = needed
            self.own_time.samples = 1
            self.on_watching()

    def mode_changes(self) -> None:
        """Handle a change to evaluation mode: the next call of a module may evaluate it."""
        if not self.watching and self.here():
            self._has_new_mode = True
            self._watch()

    # A plain step is an ordinary one without sections, in the training thread.  It passes through
    # the four functions below.  They call nothing that they can test themselves, because calls are
    # most of what fastprof costs in short steps.  Calls of modules are watched with sections, in
    # evaluations and outside of the loop, so `watching` includes these.

    def is_plain_fetch(self) -> bool:
        """Note the fetch of a training batch in a plain step; False: it must be handled."""
        if self.watching or self.unsure or self._optimizers or self._backwards or self._in_setup:
            return False
        if not self.on or claims or get_ident() != self._thread or DATA.phase_is_open():
            return False
        self.leaders.fetched = True
        self._outside_after_step = self._was_ahead = self._was_outside = False
        self._backward_since = False
        return True

    def is_plain_backward(self, _: object) -> bool:
        """Note a call of backward in a plain step; False: it must be handled."""
        if self.watching or self.unsure or self._in_setup:
            return False
        if not self.on or claims or get_ident() != self._thread:
            return False
        self.leaders.backward = True
        self._was_outside = False
        if self._optimizers and not self._in_closure:
            self._optimizers.clear()
        if self._trained_since is not None:
            self._trained_since += 1
        return True

    def is_plain_optimizer(self, who: object, *, closure: bool = False) -> bool:
        """Note that a step of ``who`` begins in a plain step; False: it must be handled.

        The whole of a step with a closure counts as the call of the closure.
        """
        if self.watching or self.unsure or self._optimizers or self._in_setup:
            return False
        if not self.on or claims or get_ident() != self._thread:
            return False
        self._optimizers.append(id(who))
        self._began_plain, self._in_closure = True, closure
        return True

    @property
    def plain_with_closure(self) -> int:
        """Address of the optimizer whose plain step, with a closure, has not ended; 0: none."""
        begun = self._began_plain and self._in_closure and self._optimizers
        return self._optimizers[-1] if begun else 0

    def plain_raised(self) -> None:
        """Note that this step will not end."""
        self._optimizers.clear()
        self._in_closure = False

    def ends_plain_step(self, who: object) -> bool:
        """End a plain step after that of ``who``; False: the end must be handled."""
        if self.watching or self._again() is not who:
            return False
        if self.run.loading.train_tag != self._again_tag:
            return False
        if self._optimizers != [id(who)] or claims or get_ident() != self._thread:
            return False
        self._optimizers.clear()
        self._in_closure = self.leaders.fetched = self.leaders.backward = False
        # Before the end of the step, which may give the next one sections.
        self._plain_steps += 1
        self.own_time.samples = 0 if self._plain_steps % SAMPLED else SAMPLED
        self._step()
        if self.plain_ends is not None and self._is_ordinary():
            self.plain_ends.begin(who, self._again_tag)
        return True

    def _is_ordinary(self) -> bool:
        """Return whether the next step will probably be plain, from its begin to its end."""
        if self.watching or self.unsure or self._outside_after_step or not self._began_plain:
            return False
        return self._recorder.steps == self._steps_seen and not self._is_compiled()

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

    # -- forward

    def module_begins(self, module: Any) -> bool:
        """Handle the call of a module; return whether :meth:`module_ends` must be called."""
        if self.in_call or self._backwards or self.fetching or not self.watching:
            return False
        # As here() tests; hundreds of modules may be called in a step.
        if not self.on or claims or get_ident() != self._thread:
            if get_ident() == self._fetches_elsewhere:
                self._called_elsewhere = True
            return False
        if self._optimizers and not self._in_closure:
            return False
        if DATA.phase_is_open():  # Profiler.loader is fetching a batch
            return False
        if self._returned:
            self._came_next(backward=False)
        graded = self.is_graded()
        if graded:
            if self._seen_backwards < _FIRST_BACKWARDS:
                self.models.graded(module)
            if self.evaluating or self._outside or not self._fetched:
                self._trains(module)
            models = self.models
            if not models.called_already and not self.evaluating:
                trained = models.trained
                same_mode = module.training == models.trained_mode
                if same_mode and trained is not None and trained() is module:
                    models.called_already = True
                else:
                    models.called(module)
        else:
            self._runs_without_gradients(module)
        fresh = self.sections and not FORWARD.resume() and FORWARD.enter_phase()
        if fresh:
            FORWARD.leave_later()
        self.in_call = True
        self.calls += 1
        self._call_graded = graded
        self._ends_with_call = self.evaluating or (fresh and not graded)
        return True

    def _trains(self, module: Any) -> None:
        if self.evaluating:
            if not module.training or not self.models.is_trained(module):
                return
            self.end_evaluation()
        if self._outside:
            self._interrupt_outside()
        if not self._fetched and self._backward_since:
            self._backward_since = False
            if not self._optimized:
                self._end_of_batch()

    def _runs_without_gradients(self, module: Any) -> None:
        self.models.called_without_gradients(module)
        if module.training or not self.models.would_be_evaluated(module):
            return
        if self.evaluating or self._evaluate_without_loader():
            self.on_evaluation()

    def module_ends(self, module: Any, output: Any = None) -> None:
        """Handle the end of that module's call: it returned ``output``, or raised."""
        self.in_call = False
        if not self.on or claims or get_ident() != self._thread:
            return
        if self._ends_with_call:
            FORWARD.leave_now()
            return
        if not has_loss(output):
            # The loss also follows a teacher or a target, which is called without gradients.
            self._returned = id(module) if self._call_graded else ~id(module)
            if self._keeps_forward():
                return
        FORWARD.park()

    def _came_next(self, *, backward: bool) -> None:
        """Note whether backward was the next event after the return of a module."""
        module, self._returned = self._returned, 0
        if not module:
            return
        known = self._next_is_backward
        if len(known) >= _REMEMBERED:
            known.clear()
        known[module] = min(known.get(module, 0) + 1, 1) if backward else -1

    # -- backward

    def backward_begins(self) -> None:
        """Handle the start of autograd; it may run inside itself, or inside a module."""
        if not self.here() and not self._moves_here():
            return
        self._backwards += 1
        if self._backwards > 1 or self.in_call or self.fetching:
            return
        self.leaders.backward = True
        if self.evaluating and self._optimized and self.models.is_trained_one_evaluated():
            # Of an attack or an explanation; a step of an optimizer would show that it trains.
            self._eval_graded = True
            self._backward_opened = self.sections and BACKWARD.enter_phase()
            return
        if self._next_is_backward.get(self._returned) != 1:
            self._came_next(backward=True)
        self._returned = 0
        if self.unsure:
            self._settle_training()
        if self.evaluating:
            self.end_evaluation()
        if not self._in_closure:
            self._optimizers.clear()
        if self.models.changes:
            self.models.backward()
        else:
            self.models.called_already = False
        self._backward_since = self._has_trained = True
        self._untrained = 0
        self._was_outside = False
        if self._trained_since is not None:
            self._trained_since += 1
        if self._in_setup:
            self._enter_steps()
        elif self._outside:
            self._interrupt_outside()
        if self._seen_backwards < _FIRST_BACKWARDS:  # may wait for ranks that start later
            self._seen_backwards += 1
            if self._seen_backwards == _FIRST_BACKWARDS and self.models.knows_optimizers:
                self._look_for_untrained()
        elif self.sections:
            # In the section, they would be functions of the program.
            self._backward_at = clock(), time.thread_time_ns()
        self._backward_opened = self.sections and BACKWARD.enter_phase()

    def becomes_unsure(self) -> None:
        """Note that the purpose of the last batch is unknown."""
        self.unsure = True
        self.leave_plain()

    def _settle_training(self) -> None:
        self.unsure = False
        self.on_training()

    def _look_for_untrained(self) -> None:
        """Note in the run a module that records gradients, although nothing trains it."""
        try:
            found = self.models.untrained()
        except own_errors():  # a parameter without a size, or a list that changes meanwhile
            return
        if found is not None:
            name, size, whole, share = found
            self.run.facts.update(
                torch_untrained=name,
                torch_untrained_size=size,
                torch_untrained_all=whole,
                torch_untrained_share=share,
            )
            if not self.models.knows_optimizers:
                self.run.facts["torch_untrained_of"] = "optimizers that stepped"

    def backward_ends(self, *exc_info: Any) -> None:
        """Handle the end of autograd, also by an exception."""
        if not self.here() or not self._backwards:
            return
        self._backwards -= 1
        if not self._backwards and self._backward_at is not None:
            began, cpu_began = self._backward_at
            self._backward_at = None
            self._backward_cpu_ns += time.thread_time_ns() - cpu_began
            self._backward_ns += clock() - began
            self.run.facts["backward_cpu_ns"] = self._backward_cpu_ns
            self.run.facts["backward_ns"] = self._backward_ns
        if not self._backwards and self._backward_opened:
            self._backward_opened = False
            BACKWARD.__exit__(*(exc_info or (None, None, None)))

    # -- optimizer

    def optimizer_made(self, optimizer: Any) -> None:
        """Handle a new optimizer."""
        self.run.loading.registry.part += 1
        self.models.optimizer_made(optimizer)
        self.leaders.made(optimizer)

    def steps_already(self, who: object) -> bool:
        """Return whether a step of ``who`` has begun and not ended, or raised."""
        return id(who) in self._optimizers

    def optimizer_begins(self, who: object, *, closure: bool = False) -> None:
        """Handle the start of a step of ``who``; a closure delays the section until it has run."""
        if not self.here() and not self._moves_here(steps=True):
            if self.on and not self.in_training_thread():
                self.run.facts["torch_stepped_elsewhere"] = True
                self.run.parts.of(ThreadNotes).note()
            return
        self._began_plain = False
        self.leave_plain()
        if self._optimizers and self.steps_already(who):  # its last step raised
            self._optimizers.clear()
        self._optimizers.append(id(who))
        if len(self._optimizers) == 1:
            self.in_call = False
            self._returned = 0
            if self._eval_graded:  # it was training in evaluation mode
                if self.unsure:
                    self._settle_training()
                self.models.backward()
            if self.evaluating:
                self.end_evaluation()
            FORWARD.leave_now()
            if self._outside:
                self._interrupt_outside()
            if not closure:
                self._open_optimizer()

    def closure_begins(self) -> None:
        """Handle the call of the closure: it is forward and backward, not optimizer."""
        if self.here():
            OPTIMIZER.leave_now()
            self._in_closure = True

    def closure_ends(self) -> None:
        """Handle the end of the closure, also by an exception."""
        self._in_closure = False
        if self.here():
            self._returned = 0
            FORWARD.leave_now()
            self._open_optimizer()

    def optimizer_ends(self, who: object, *, stepped: Any = None) -> None:
        """Handle the end of a step of ``who``; ``stepped``: the optimizer, if it stepped."""
        if not self.here() or not self.steps_already(who):
            return
        del self._optimizers[self._optimizers.index(id(who)) :]
        if stepped is not None:
            self._stepped = stepped
        if self._optimizers:
            return
        self._in_closure = False
        OPTIMIZER.leave_now()
        stepped, self._stepped = self._stepped, None
        if stepped is not None:
            self._optimized = True
            if self._known_optimizer() is not stepped:
                self._known_optimizer = ref(stepped)
                refused = self.models.refuses_fused(stepped)
                if refused:
                    self.run.facts["torch_refuses_fused"] = refused
            if self._steps_to_look:
                self._steps_to_look -= 1
                self.models.optimizer_stepped(stepped)
                if not self._steps_to_look:
                    self._look_for_untrained()
            tag = self.run.loading.train_tag
            self.run.stages.step_ends(stepped, type(stepped).__name__, tag, shapes)
            if self.leaders.ends_step(stepped):
                if self.run.facts.get("steps_ended_by") == "batches":
                    self.run.facts["steps_ended_by"] = "optimizers"
                self._step()
            settled = self.leaders.has_settled(stepped) and not self._steps_to_look
            self._again, self._again_tag = self._known_optimizer if settled else _nothing, tag

    def _open_optimizer(self) -> None:
        if self.sections and OPTIMIZER.enter_phase():
            # A step that raises ends when another phase begins.
            OPTIMIZER.leave_later()

    def _step(self) -> None:
        # A program that ends steps itself defines the steps.
        recorder = self._recorder
        if self._steps and recorder.steps == self._steps_seen:
            try:
                self.run.step()
            finally:  # an exception from outside may come after the step has ended
                self._steps_seen = recorder.steps
            self.own_time.steps += 1
        if self._has_new_mode:
            self._has_new_mode = False
            self._watch()
        if self._partial and self.run.steps:
            self._partial = False
            self._enter_steps()
        if self._outside_after_step:
            self._outside_after_step = False
            self._enter_outside()

    def _end_of_batch(self) -> None:
        """Handle the begin of a batch after a backward: a step, if no optimizer of torch steps."""
        self._unstepped += 1
        if self._unstepped > _PATIENCE or not self._has_optimizers():
            FORWARD.leave_now()
            self._step()

    # -- data and evaluation

    def start_begins(self, validates: bool) -> None:
        """Handle the creation of an iterator over batches."""
        FORWARD.leave_now()
        self._returned = 0
        self._optimizers.clear()
        self._call_is_over()
        if validates:
            self.begin_evaluation()
        else:
            self.end_evaluation()

    def fetch_begins(self, validates: bool) -> None:
        """Handle the start of a fetch."""
        if self._returned:
            self._came_next(backward=False)
        self._backwards = 0
        self._optimizers.clear()
        self._call_is_over()
        if validates and not self.infers:
            self.begin_evaluation()
            return
        if self.evaluating:
            self.end_evaluation()
        self._end_unmarked_batch()
        self._fetched = self.leaders.fetched = True
        self._outside_after_step = self._was_ahead = False
        if self._backward_since:
            self._backward_since = False
            if not self._optimized:
                self._end_of_batch()
        self._was_outside = self._outside
        if self._in_setup or self._outside:
            self._enter_steps()

    @property
    def infers(self) -> bool:
        """Whether the program has trained nothing so far, and has no optimizer for it."""
        return self._steps and not self._has_trained and not self._has_optimizers()

    def _end_unmarked_batch(self) -> None:
        """End a step with the last batch if nothing but its fetch shows it."""
        used, self._calls_before = self.calls > self._calls_before, self.calls
        if self._optimized or not self._fetched or self._outside:
            return
        self._untrained += 1
        if used and self.infers:
            self.run.facts["steps_ended_by"] = "batches"
        elif self._steps and self._untrained > _HIDDEN and self._is_compiled():
            self.run.facts["steps_ended_by"] = "batches, compiled"
        else:
            return
        FORWARD.leave_now()
        self.run.stages.step_ends(self, "", self.run.loading.train_tag)
        self._step()

    def model_evals(self, module: Any) -> None:
        """Handle a call of ``module.eval()``."""
        if self.evaluating or not self.here() or not self.idle:
            return
        if self.models.would_be_evaluated(module) and self._evaluate_without_loader():
            self.on_evaluation()

    def model_trains(self, module: Any) -> None:
        """Handle a call of ``module.train()``."""
        if self.evaluating and self.here() and self.idle and self.models.is_trained(module):
            self.end_evaluation()

    def _evaluate_without_loader(self) -> bool:
        """Begin an evaluation, except in a loop of an agent; return whether it began."""
        # An agent that chooses each action in evaluation mode is still training.
        if self._trained_since is not None and self._trained_since < 2:
            self._trained_since = 0
            return False
        self.begin_evaluation()
        return True

    def begin_evaluation(self) -> None:
        """Begin an evaluation, unless one is open."""
        if not self.evaluating:
            FORWARD.leave_now()
            self.evaluating = True
            if self._was_outside:  # its first batch was mistaken for one of the next epoch
                self._was_outside = False
                self._enter_outside()
            self.run.loading.validation.begins()
            self._eval_opened = EVAL.enter_phase()
            self._watch()

    def end_evaluation(self) -> None:
        if self.evaluating:
            self._close_evaluation()
            self._trained_since = 0
            self.run.loading.validation.ends()
            self.run.loading.leave_validation()

    def _close_evaluation(self) -> None:
        FORWARD.leave_now()
        self.evaluating = self._eval_graded = False
        if self._eval_opened:
            self._eval_opened = False
            EVAL.__exit__(None, None, None)
        self._watch()

    # -- phases of the run

    def epoch_ends(self) -> None:
        """Handle the end of a loader of training batches."""
        if not self.here():
            return
        self.end_evaluation()
        FORWARD.leave_now()
        self._end_unmarked_batch()
        if not self._outside:
            self._enter_outside()

    def _enter_outside(self) -> None:
        self._outside = True
        self._watch()
        self.run.enter_phase("outside")

    def _leave_outside(self) -> None:
        self._outside = False
        self._watch()
        self.run.leave_phase("outside")

    def _interrupt_outside(self) -> None:
        """Handle work on a batch that was read ahead of the end of its loader."""
        FORWARD.leave_now()
        self._leave_outside()
        # Only one batch is read ahead: more means a loop over batches that no loader delivers.
        self._outside_after_step = not self._was_ahead
        self._was_ahead = True

    def _enter_steps(self) -> None:
        FORWARD.leave_now()  # a sample belongs to one phase of the run
        if self._outside:
            self._leave_outside()
        if self._in_setup and not self._partial:
            self._in_setup = False
            self.run.leave_phase("setup")

    # -- the rest

    def aside(self) -> bool:
        """Begin work outside of phases; return whether it gets a section."""
        if not self.here() or not self.idle:
            return False
        FORWARD.park()
        return True

    def aside_ends(self) -> None:
        """End work outside of phases; the interrupted phase continues."""
        if self._keeps_forward():
            FORWARD.resume()

    def abandon(self) -> None:
        """Forget the calls that are under way, and close their sections."""
        if not self.on or not self.in_training_thread():
            return
        self.leave_plain()
        self.in_call = self.fetching = self._in_closure = False
        self._backwards = self._returned = 0
        self._backward_at = None
        self._optimizers.clear()
        FORWARD.leave_now()
        OPTIMIZER.leave_now()
        if self._backward_opened:
            self._backward_opened = False
            BACKWARD.__exit__(None, None, None)

    def hand_back(self) -> None:
        """Return to steps, because hooks end while the run continues."""
        if self.here():
            self.end_evaluation()
            if self._outside:
                self._leave_outside()

    def close(self) -> None:
        """Close the open sections, because the hooks are removed."""
        self.leave_plain()
        if self.on and get_ident() == self._thread:
            self.on = False
            FORWARD.leave_now()
            OPTIMIZER.leave_now()
            if self._backward_opened:
                BACKWARD.__exit__(None, None, None)
            self._close_evaluation()
        self.on = False


def _nothing() -> None:
    pass
