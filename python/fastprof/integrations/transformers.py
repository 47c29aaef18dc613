"""transformers' ``Trainer``: ``attach(trainer)``, or ``callbacks=[FastprofCallback()]``.

``attach`` sees every phase and logs through the trainer.  The callback needs no trainer
but sees only the events of callbacks: see docs/integrations/transformers.md.
"""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

from transformers import TrainerCallback

from fastprof.guards import own_errors
from fastprof.integrations._session.common import ScalarLogger, check_options
from fastprof.integrations._session.patches import Attachment
from fastprof.integrations._session.session import Session

__all__ = ["FastprofCallback", "TrainerAttachment", "attach"]

_FORWARD = "forward"
_OPTIMIZER = "optimizer"


def attach(trainer: Any, *, loader_name: str = "loader0", **options: Any) -> "TrainerAttachment":
    """Record the next ``trainer.train()``.

    When training ends, in any way, this restores the methods that it replaced.

    Args:
        trainer: a ``transformers.Trainer`` or a subclass of it.
        loader_name: name of the training loader in metric keys.
        **options: keywords of :class:`fastprof.Profiler`; ``profile_training=False`` means
            ``enabled=False``.  Without ``logger``, metrics go through ``trainer.log()``;
            without ``log_every``, every ``logging_steps`` steps.

    Raises:
        TypeError, ValueError, OSError: as :class:`fastprof.Profiler`.
    """
    return TrainerAttachment(trainer, loader_name, check_options(options))


def _logging_steps(args: Any) -> int:
    """Return the trainer's interval, or 50: one given as a share of all steps is still unknown."""
    steps = args.logging_steps
    by_steps = str(getattr(args.logging_strategy, "value", args.logging_strategy)) == "steps"
    return int(steps) if by_steps and steps >= 1 else 50


class TrainerAttachment(Attachment):
    """The result of :func:`attach`."""

    def __init__(self, trainer: Any, loader_name: str, options: dict[str, Any]) -> None:
        super().__init__()
        self._trainer = trainer
        self._loader_name = loader_name
        self._options = options
        self._pending: dict[str, float] = {}
        self._log: Callable[..., Any] | None = None
        self._timed: tuple[Any, Any] | None = None
        self._evaluating = 0
        if options.get("enabled", True):
            # The only method whose end is always seen, even after an exception.
            self._patches.method(trainer, "_inner_training_loop", self._training)

    def _training(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def inner_training_loop(*args: Any, **kwargs: Any) -> Any:
            self._begin()
            try:
                return original(*args, **kwargs)
            finally:
                self.detach()

        return inner_training_loop

    def detach(self) -> None:
        """End the run and restore everything that was replaced."""
        session = self._session
        if session.alive:
            # This emits the metrics of an unfinished evaluation; the flush logs them.
            session.stop()
            self._flush()
        super().detach()
        self._timed = self._log = None

    # -- replaced methods

    def _begin(self) -> None:
        trainer = self._trainer
        self._log = trainer.log
        defaults = {
            "logger": ScalarLogger(self._pending.update),
            "log_every": _logging_steps(trainer.args),
        }
        self._session = session = Session(self._options, defaults, trainer="transformers")
        session.start()
        session.quietly("The trainer could not be observed", self._observe, session)

    def _observe(self, session: Session) -> None:
        patches, trainer = self._patches, self._trainer

        def section(target: Any, method: str, name: str) -> None:
            patches.method(target, method, partial(session.around, name))

        section(trainer.accelerator, "backward", "backward")
        section(trainer, "_clip_grad_norm", "clip_grad")
        patches.method(trainer, "_save_checkpoint", session.checkpoint)
        patches.method(trainer.callback_handler, "call_event", self._event)
        patches.method(trainer, "get_batch_samples", self._fetching)
        patches.method(trainer, "_prepare_inputs", partial(self._in_training, "h2d"))
        patches.method(trainer, "compute_loss", partial(self._in_training, "forward"))
        section(trainer, "prediction_step", "forward")
        patches.method(trainer, "evaluation_loop", self._evaluation)
        patches.method(trainer, "log", self._logging)
        patches.method(trainer, "_maybe_log_save_evaluate", self._between_steps)

    # -- phases

    def _fetching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Time each batch separately: the trainer fetches all batches of a step before it."""

        def get_batch_samples(epoch_iterator: Any, *args: Any, **kwargs: Any) -> Any:
            session = self._session
            session.begin_step()
            made = session.quietly("A loader could not be timed", self._time, epoch_iterator)
            return original(epoch_iterator if made is None else made, *args, **kwargs)

        return get_batch_samples

    def _time(self, iterator: Any) -> Any:
        if self._timed is None or self._timed[0] is not iterator:
            timed = self._session.profiler.loader(iterator, name=self._loader_name)
            self._timed = (iterator, timed)
        return self._timed[1]

    def _in_training(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``original`` in section ``name``; an evaluation step is already one section."""

        inside = self._session.around(name, original)

        def call(*args: Any, **kwargs: Any) -> Any:
            return (original if self._evaluating else inside)(*args, **kwargs)

        return call

    def _evaluation(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def evaluation_loop(dataloader: Any, *args: Any, **kwargs: Any) -> Any:
            session = self._session
            if not session.alive:
                return original(dataloader, *args, **kwargs)
            prefix = str(kwargs.get("metric_key_prefix", "eval"))
            name = prefix.removeprefix("eval_") if prefix != "eval" else "loader0"
            load = partial(session.profiler.loader, name=name, split="val")
            timed = session.quietly("A loader could not be timed", load, dataloader)
            session.leave_steps()
            session.quietly("An evaluation could not be started", session.enter_container, "eval")
            self._evaluating += 1
            try:
                return original(dataloader if timed is None else timed, *args, **kwargs)
            finally:
                self._evaluating -= 1
                session.quietly("An evaluation could not be ended", session.leave_container)

        return evaluation_loop

    # -- steps and metrics

    def _event(self, original: Callable[..., Any]) -> Callable[..., Any]:
        inside = self._session.around("callbacks", original)

        def call_event(event: str, *args: Any, **kwargs: Any) -> Any:
            session = self._session
            if event == "on_pre_optimizer_step":
                result = inside(event, *args, **kwargs)
                # The trainer calls only step() between this and on_optimizer_step.
                session.open(_OPTIMIZER, "optimizer")
                return result
            if event == "on_optimizer_step":
                session.close(_OPTIMIZER)
            result = inside(event, *args, **kwargs)
            if event == "on_step_end":
                session.step()
            elif event == "on_epoch_end":
                session.leave_steps()
            return result

        return call_event

    def _logging(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Add the metrics to the trainer's own log call: one entry of the history, one line."""

        def log(logs: dict[str, float], *args: Any, **kwargs: Any) -> Any:
            session = self._session
            if not session.alive:
                return original(logs, *args, **kwargs)
            pending, merged = self._take_pending(), dict(logs)
            merged.update(pending)
            try:
                return session.around("logging", original)(merged, *args, **kwargs)
            finally:
                # Copy the trainer's own additions to the dict of the caller.
                logs.update((k, v) for k, v in merged.items() if k not in pending)

        return log

    def _between_steps(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def maybe_log_save_evaluate(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._flush()
            return result

        return maybe_log_save_evaluate

    def _take_pending(self) -> dict[str, float]:
        pending = dict(self._pending)
        self._pending.clear()
        return pending

    def _flush(self) -> None:
        """Log the metrics that no log call of the trainer has taken along."""
        session, log = self._session, self._log
        if log is not None and self._pending:
            pending = self._take_pending()
            try:
                log(pending)
            except own_errors() as error:  # a reporter that fails must not end the training
                session.run.faults.add(
                    "logger_errors", "The trainer could not log the metrics", error
                )


class FastprofCallback(Attachment, TrainerCallback):  # type: ignore[misc]
    """Records ``Trainer(callbacks=[FastprofCallback()])`` without the trainer.

    Steps, fetching, forward (the model's, without a loss computed outside of it),
    backward and optimizer; metrics go into ``trainer.state.log_history``, not to the
    reporters, which a callback cannot reach: give it a ``logger``, or use :func:`attach`.

    Args:
        loader_name: name of the training loader in metric keys.
        **options: as for :func:`attach`.

    Raises:
        TypeError, ValueError, OSError: as :class:`fastprof.Profiler`.
    """

    _start = "Trainer.train()"

    def __init__(self, *, loader_name: str = "loader0", **options: Any) -> None:
        super().__init__()
        self._loader_name = loader_name
        self._options = check_options(options)
        self._pending: dict[str, float] = {}
        self._loader: Any = None

    # -- the trainer's events

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start a run."""
        self.detach()
        defaults = {
            "logger": ScalarLogger(self._pending.update),
            "log_every": _logging_steps(args),
        }
        self._session = session = Session(self._options, defaults, trainer="transformers")
        session.start()
        session.quietly("The training could not be observed", self._observe, session, kwargs)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the optimizer's section."""
        self._session.close(_FORWARD)
        self._session.open(_OPTIMIZER, "optimizer")

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the optimizer's section."""
        self._session.close(_OPTIMIZER)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._session.step()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the steps."""
        self._session.leave_steps()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Add the metrics to the trainer's latest entry."""
        if self._pending and state.log_history:
            state.log_history[-1].update(self._pending)
            self._pending.clear()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the run."""
        self.detach()
        self.on_log(args, state, control)

    def detach(self) -> None:
        """End the run and restore everything that was replaced."""
        try:
            super().detach()
        finally:
            self._loader = None

    # -- observed objects

    def _observe(self, session: Session, given: Mapping[str, Any]) -> None:
        from accelerate import Accelerator

        from fastprof.integrations._session.accelerate import observe_model, time_prepared_loaders

        self._loader = given.get("train_dataloader")
        if given.get("model") is not None:
            observe_model(
                self._patches, session, given["model"], self._before_forward, self._after_forward
            )
        original = Accelerator.backward
        # A callback does not get the trainer's object, so patch the class during the training.
        self._patches.attribute(
            Accelerator, "backward", wraps(original)(session.around("backward", original))
        )
        time_prepared_loaders(self._patches, session, self._kind_of, self)

    def _kind_of(self, loader: Any) -> tuple[str | None, str]:
        if loader is self._loader or getattr(loader, "dataset", None) is getattr(
            self._loader, "dataset", self
        ):
            return self._loader_name, "train"
        return None, "val"

    def before_fetch(self, split: str) -> None:
        """Handle the start of a fetch (called by the loader's iterator)."""
        if split == "train":
            self._session.begin_step()
        else:
            self._session.leave_steps()

    def after_pass(self, split: str) -> None:
        """Handle the end of a loader (called by the loader's iterator)."""

    def _before_forward(self, module: Any) -> None:
        self._session.open(id(module), "forward")

    def _after_forward(self, module: Any, output: Any) -> None:
        self._session.close(id(module))
