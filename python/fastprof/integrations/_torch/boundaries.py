"""Where steps, evaluations and the time outside of the loop begin and end."""

from fastprof.integrations._torch.phase_state import EVAL, FORWARD, PhaseState

#: Batches to wait for an optimizer of torch that was made and has not stepped.
_PATIENCE = 64
#: Batches without backward, after which compiled code is assumed to train with them.
_HIDDEN = 8


class Boundaries(PhaseState):
    """The phases of the run, and the ends of its steps."""

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

    def hand_back(self) -> None:
        """Return to steps, because hooks end while the run continues."""
        if self.here():
            self.end_evaluation()
            if self._outside:
                self._leave_outside()
