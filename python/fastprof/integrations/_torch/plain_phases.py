"""Plain steps: ordinary ones without sections, in the training thread.

Each passes through four functions of this class, and a batch of a validation through a fifth.
They call nothing that they can test themselves, because calls are most of what fastprof costs in
short steps.  Calls of modules are watched with sections, in evaluations and outside of the loop, so
``watching`` includes these.
"""

from _thread import get_ident

from fastprof.integrations._torch.boundaries import Boundaries
from fastprof.integrations._torch.owner import claims
from fastprof.integrations._torch.phase_state import DATA
from fastprof.session.own_time import SAMPLED


class PlainPhases(Boundaries):
    """The events of plain steps."""

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

    def is_plain_validation(self) -> bool:
        """Return whether the fetch of a batch in a validation needs no handling."""
        if not self.evaluating or self.sections or not self.unsure or self._returned:
            return False
        if self.in_call or self._optimizers or self._backwards or self._in_setup:
            return False
        here = self.on and not claims and get_ident() == self._thread
        return here and not DATA.phase_is_open()

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
