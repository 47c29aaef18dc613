"""Opens and closes the automatic sections, from the events of the hooks on torch.

Phases lie side by side, never inside each other.  ``forward`` covers the calls of outermost
modules until backward begins, as one sample: each return closes it and the next call reopens
it.  A loss computed by functions follows the last call, so ``forward`` stays open after the
return of a module if, the last time that this module returned, backward was the next event.
"""

from _thread import get_ident
from typing import Any
from weakref import ref

from fastprof.clock import time
from fastprof.guards import own_errors
from fastprof.integrations._torch.leaders import shapes
from fastprof.integrations._torch.models import has_loss
from fastprof.integrations._torch.owner import claims
from fastprof.integrations._torch.phase_state import (
    BACKWARD,
    DATA,
    FORWARD,
    OPTIMIZER,
    nothing,
)
from fastprof.integrations._torch.plain_phases import PlainPhases
from fastprof.session.own_time import clock
from fastprof.session.thread_notes import ThreadNotes

#: Most modules for which the event after their return is remembered.
_REMEMBERED = 1000
#: Calls of backward whose CPU time is not read.
_FIRST_BACKWARDS = 4
#: It is read in this many calls, then in one of as many as the second number: the two readings are
#: system calls, and between other code each takes some 3 us.  A prime, which the number of batches
#: per step of an optimizer does not divide.
_READ_BACKWARDS, _BETWEEN_BACKWARDS = 64, 17


class Phases(PlainPhases):
    """The events of all steps: each class below this one calls only those below it."""

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
        elif module is not self._evaluated() or module.training or not self.evaluating:
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
            self._evaluated = ref(module)

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
            self._read_backwards += 1
            if self._read_backwards <= _READ_BACKWARDS:
                # In the section, they would be functions of the program.
                self._backward_at = clock(), time.thread_time_ns()
            elif self._read_backwards == _READ_BACKWARDS + _BETWEEN_BACKWARDS - 1:
                self._read_backwards = _READ_BACKWARDS - 1
        self._backward_opened = self.sections and BACKWARD.enter_phase()

    def becomes_unsure(self) -> None:
        """Note that the purpose of the last batch is unknown."""
        self.unsure = True
        self._evaluated = nothing
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
            self._again, self._again_tag = self._known_optimizer if settled else nothing, tag

    def _open_optimizer(self) -> None:
        if self.sections and OPTIMIZER.enter_phase():
            # A step that raises ends when another phase begins.
            OPTIMIZER.leave_later()

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
