"""A Lightning run, from the actions that its trainer reports to a profiler."""

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import Any, NamedTuple

from fastprof.integrations._session.common import ScalarLogger, check_options
from fastprof.integrations._session.lightning import (
    is_overridden,
    loader_names,
    time_each,
    time_training,
)
from fastprof.integrations._session.patches import HasRun, Patches
from fastprof.integrations._session.session import Session
from fastprof.session.loaders.timing import TimedIterator

#: Last part of an action's name -> section, for actions of the strategy.
_STRATEGY = {
    "batch_to_device": "h2d",
    "training_step": "forward",
    "validation_step": "forward",
    "test_step": "forward",
    "predict_step": "forward",
    "backward": "backward",
}
#: Lightning's own actions that are not phases; its others begin with ``[Strategy]`` or the like.
_NO_PHASES = ("run_training_epoch", "run_training_batch")
_EVAL_ENDS = ("on_validation_end", "on_test_end", "on_predict_end")


def _nothing(action: str) -> None:
    pass


class _Handler(NamedTuple):
    """Functions that begin and end an action."""

    begins: Callable[[str], None]
    ends: Callable[[str], None]
    #: They do no more than open and close an automatic section.
    is_section: bool = False


class _Actions(dict[str, None]):
    """Contains the actions that need nothing: these cost one look-up; others are handled."""

    def __init__(self, handle: Callable[[str], bool]) -> None:
        super().__init__()
        self._handle = handle

    def __missing__(self, action: str) -> None:
        if not self._handle(action):
            self[action] = None


class LightningRun(HasRun):
    """The run of a trainer; without the interface of Lightning's profilers but for the actions."""

    #: Set by the trainer before ``setup()``.
    _lightning_module: Any
    _start = "Trainer.fit()"
    #: The profiler of the trainer that this one replaced.
    _other: Any = None
    #: During a run: its actions, and the iterator whose batches are timed.
    _starts: _Actions
    _stops: _Actions
    _timed: weakref.ref[Any] | None = None

    def __init__(
        self,
        *,
        loader_names: Sequence[str] = (),
        val_loader_names: Sequence[str] = (),
        **options: Any,
    ) -> None:
        super().__init__()
        self._names = {"train": tuple(loader_names), "val": tuple(val_loader_names)}
        self._options = check_options(options)
        self._patches = Patches()
        self._handlers: dict[str, _Handler] = {}
        self._trainer: Any = None
        self._global_step = 0
        #: The program's own actions that have begun and not ended, with their threads.
        self._own: list[tuple[int, str]] = []

    def start(self, action_name: str) -> None:
        """Handle the begin of an action (called by the trainer)."""
        if self._other is not None:
            self._other.start(action_name)
        if self._session.alive:
            self._starts[action_name]

    def stop(self, action_name: str) -> None:
        """Handle the end of an action (called by the trainer)."""
        if self._session.alive:
            self._stops[action_name]
        if self._other is not None:
            self._other.stop(action_name)

    # -- the run

    def _begin(self, trainer: Any) -> None:
        self._end()
        self._trainer = trainer
        self._handlers = {}
        every = getattr(trainer, "log_every_n_steps", 0)
        defaults = {
            "logger": ScalarLogger(self._log),
            "log_every": every if isinstance(every, int) and every > 0 else 50,
        }
        self._starts, self._stops = _Actions(self._started), _Actions(self._stopped)
        self._session = session = Session(self._options, defaults, trainer="lightning")
        session.on_muted = self._muted
        session.start()
        if self._other is None:  # most actions need nothing: no call of a function in Python
            self._look_up("start", self._starts)
            self._look_up("stop", self._stops)
        self._global_step = session.quietly("The step is unknown", self._steps_done) or 0
        session.quietly("The trainer could not be observed", self._observe, session, trainer)

    def _end(self) -> None:
        session = self._session
        session.quietly("The last step could not be ended", self._end_step)
        for thread, action in self._own[::-1]:
            if thread == get_ident():
                session.quietly("An action could not be ended", self._end_own, action)
        self._own.clear()
        try:
            session.stop()
        finally:
            self._patches.undo()
            # So that this neither keeps the trainer alive nor prevents pickling.
            self._trainer = self._timed = None
            self._handlers = {}
            for name in ("start", "stop", "_starts", "_stops"):
                vars(self).pop(name, None)

    def _look_up(self, method: str, actions: _Actions) -> None:
        if getattr(type(self), method) is getattr(LightningRun, method):
            setattr(self, method, actions.__getitem__)

    def _muted(self) -> None:
        """Handle the begin or the end of steps without automatic sections."""
        self._starts.clear()
        self._stops.clear()

    def _log(self, values: Mapping[str, float]) -> None:
        trainer = self._trainer
        if trainer is None or trainer.sanity_checking:
            return
        for logger in trainer.loggers:
            logger.log_metrics(metrics=dict(values), step=trainer.global_step)

    def _observe(self, session: Session, trainer: Any) -> None:
        """Replace the few methods without a surrounding action."""
        patches = self._patches
        # Only this is also called if the training raises.
        patches.method(trainer, "_teardown", self._ending)
        fit = trainer.fit_loop
        for loop in (fit.epoch_loop.val_loop, trainer.validate_loop, trainer.test_loop):
            patches.method(loop, "run", self._evaluation)
        patches.method(trainer.predict_loop, "run", self._evaluation)
        # Workers start (once, or in every epoch) before the first fetch.
        patches.method(fit, "setup_data", functools.partial(self._start_up, self._will_set_up))
        patches.method(
            fit.epoch_loop, "on_run_start", functools.partial(self._start_up, self._will_restart)
        )
        if not self._lightning_module.automatic_optimization:
            patches.method(
                trainer.strategy, "backward", functools.partial(session.around, "backward")
            )

    def _ending(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def teardown(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                self._end()

        return teardown

    def _evaluation(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the run of an evaluation in section ``eval``, outside of steps."""

        def run(*args: Any, **kwargs: Any) -> Any:
            session = self._session
            if not session.alive:
                return original(*args, **kwargs)
            session.quietly("A step could not be ended", self._begin_evaluation, session)
            try:
                return original(*args, **kwargs)
            finally:
                session.quietly("An evaluation could not be ended", session.leave_container)
                run = session.run
                session.quietly("Metrics could not be emitted", run.loading.validation.ends)
                # Loaders that were not read to the end.
                session.quietly(
                    "A phase could not be left", run.loading.validation.training_goes_on
                )
                session.quietly("A loader could not be left", run.loading.leave_validation)

        return run

    def _begin_evaluation(self, session: Session) -> None:
        self._end_step()
        session.leave_steps()
        session.run.loading.validation.begins()
        session.enter_container("eval")

    def _start_up(
        self, applies: Callable[[], bool], original: Callable[..., Any]
    ) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            session = self._session
            if not session.quietly("The loop could not be read", applies):
                return original(*args, **kwargs)
            return session.around("loader_startup", original)(*args, **kwargs)

        return call

    def _will_set_up(self) -> bool:
        fit = self._trainer.fit_loop
        return fit._combined_loader is None or bool(fit._should_reload_train_dl)

    def _will_restart(self) -> bool:
        return bool(self._trainer.current_epoch > 0)

    # -- steps

    def _steps_done(self) -> int:
        return int(self._trainer.fit_loop.epoch_loop.global_step)

    def _end_step(self) -> None:
        """End the current step, if the optimizer has stepped since the last end."""
        if self._trainer is None:
            return
        done = self._steps_done()
        if done != self._global_step:
            self._global_step = done
            self._session.step()

    # -- actions

    def _started(self, action: str) -> bool:
        """Begin an action; return whether it needs that each time."""
        session = self._session
        handler = self._handlers.get(action)
        if handler is None:
            if not session.alive:
                return True
            handler = self._handlers[action] = self._handler(session, action)
        if handler.begins is _nothing or (handler.is_section and session.muted):
            return False
        if handler.is_section:  # a session's own methods do not raise
            handler.begins(action)
        else:
            session.quietly("An action could not be started", handler.begins, action)
        return True

    def _stopped(self, action: str) -> bool:
        """End an action; return whether it needs that each time."""
        session = self._session
        handler = self._handlers.get(action)
        if handler is None or handler.ends is _nothing or (handler.is_section and session.muted):
            return handler is None
        if handler.is_section:
            handler.ends(action)
        else:
            session.quietly("An action could not be ended", handler.ends, action)
        return True

    def _handler(self, session: Session, action: str) -> _Handler:
        """Return the handler of an action; called once per name."""
        head, _, hook = action.rpartition(".")
        section = ""
        if action == "run_training_epoch":
            return _Handler(_nothing, self._epoch_ended)
        if hook == "train_dataloader_next":
            return _Handler(self._before_fetch, session.close)
        if hook in ("val_next", "test_next", "predict_next"):
            return _Handler(self._before_val_fetch, session.close)
        if action == "save_checkpoint":
            return _Handler(session.open_checkpoint, session.close_checkpoint)
        if action == "optimizer_step":  # in manual optimization
            section = "optimizer"
        elif head.startswith("[Strategy]"):
            section = _STRATEGY.get(hook, "")
        elif head.startswith("[LightningModule]") and hook == "optimizer_step":
            begins = functools.partial(session.open, name="optimizer", late=True)
            return _Handler(begins, session.close, is_section=True)
        elif head.startswith("[LightningModule]") and hook == "on_before_optimizer_step":
            return _Handler(lambda action: session.open_late(), _nothing, is_section=True)
        elif head.startswith("[Callback]") and is_overridden(
            self._trainer.callbacks, head[len("[Callback]") :], hook
        ):
            section = "callbacks"
        elif not action.startswith("[") and action not in _NO_PHASES:
            return _Handler(self._begin_own, self._end_own)
        if hook in _EVAL_ENDS:
            ends = session.close if section else _nothing
            return _Handler(self._after_evaluation(section), ends)
        if not section:
            return _Handler(_nothing, _nothing)
        begins = functools.partial(session.open, name=section)
        return _Handler(begins, session.close, is_section=True)

    def _begin_own(self, action: str) -> None:
        """Begin an action of the program: a section in whatever is open."""
        self._own.append((get_ident(), action))
        self._session.section(action).__enter__()

    def _end_own(self, action: str) -> None:
        key = (get_ident(), action)
        if key in self._own:  # else its begin was before the run
            self._own.remove(key)
            self._session.section(action).__exit__(None, None, None)

    def _after_evaluation(self, section: str) -> Callable[[str], None]:
        # Callbacks that save or stop early run after the evaluation has ended.
        def begin(action: str) -> None:
            self._session.leave_container()
            if section:
                self._session.open(action, section)

        return begin

    def _epoch_ended(self, action: str) -> None:
        self._end_step()
        self._session.leave_steps()

    def _before_fetch(self, action: str) -> None:
        session = self._session
        self._end_step()
        session.begin_step()
        fit = self._trainer.fit_loop
        combined = fit._combined_loader
        made = getattr(combined, "_iterator", None)  # anew in each epoch
        if made is None or self._timed is None or self._timed() is not made:
            time_training(session, fit._data_fetcher, combined, self._names["train"])
            self._timed = None if made is None else weakref.ref(made)
        # The iterator opens its own section, ``data``.
        session.open(action)

    def _before_val_fetch(self, action: str) -> None:
        session = self._session
        loop = self._trainer._active_loop
        if loop is not None and loop._data_fetcher is not None:
            combined = loop._combined_loader
            names = loader_names(self._names["val"], combined)
            if getattr(combined, "_mode", "") == "sequential":
                time_each(self._patches, session, combined._iterator, names)
            elif not isinstance(loop._data_fetcher.iterator, TimedIterator):
                loop._data_fetcher.iterator = session.profiler.loader(
                    loop._data_fetcher.iterator, name="+".join(names), split="val"
                )
        session.open(action)
