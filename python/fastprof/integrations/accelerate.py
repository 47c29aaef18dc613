"""Accelerate: ``attach(accelerator)``, and an Accelerate user's ``ProfileKwargs``.

::

    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    profiling = attach(accelerator, loaders={"main": loader})
    ...  # the loop as it is
    print(profiling.report())
"""

import functools
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from accelerate.utils import ProfileKwargs

from fastprof.guards import own_errors
from fastprof.integrations._session.accelerate import (
    is_training,
    observe_model,
    time_prepared_loaders,
)
from fastprof.integrations._session.common import ScalarLogger, check_options, operator_options
from fastprof.integrations._session.patches import Attachment, HasRun
from fastprof.integrations._session.session import Session
from fastprof.integrations._torch.models import has_loss

__all__ = ["AcceleratorAttachment", "FastprofKwargs", "attach", "profile"]

#: Key of the open forward in training, which ends when backward begins.
_FORWARD = "forward"


def attach(
    accelerator: Any,
    *,
    loaders: Mapping[str, Any] | None = None,
    val_loaders: Mapping[str, Any] | None = None,
    align_ranks: bool = False,
    **options: Any,
) -> "AcceleratorAttachment":
    """Start a run that records ``accelerator``'s training loop, without changing the loop.

    It ends with ``accelerator.end_training()``, ``detach()``, its ``with`` block, or the
    program.  It also records objects that are prepared later.

    Args:
        accelerator: the ``Accelerator``, before or after ``prepare()``.
        loaders: names of training loaders in metric keys, as ``{"main": loader}``.
        val_loaders: names of loaders that are always for validation.  An unnamed loader
            belongs to training if the first prepared model is in training mode
            when its loop begins.
        align_ranks: call ``accelerator.wait_for_everyone()`` before the run starts.
        **options: keywords of :class:`fastprof.Profiler`; ``profile_training=False`` means
            ``enabled=False``.  Without ``logger``, metrics go to ``accelerator.log()``.

    Raises:
        TypeError, ValueError, OSError: as :class:`fastprof.Profiler`.
    """
    attachment = AcceleratorAttachment(
        accelerator, dict(loaders or {}), dict(val_loaders or {}), check_options(options)
    )
    if align_ranks:
        accelerator.wait_for_everyone()
    attachment._begin()
    return attachment


@contextmanager
def profile(
    accelerator: Any, handler: Any = None, **options: Any
) -> "Iterator[AcceleratorAttachment]":
    """``accelerator.profile()`` with fastprof and :func:`attach`.

    ``with profile(accelerator) as prof:`` around the loop, ``prof.step()`` at each step
    boundary.  With ``output_trace_dir``, each process saves ``profile_{rank}.fprof`` there.

    Args:
        accelerator: the ``Accelerator``; its ``ProfileKwargs`` apply.
        handler: ``ProfileKwargs`` to use instead.
        **options: as for :func:`attach`.
    """
    handler = handler or accelerator.profile_handler or ProfileKwargs()
    keywords = {**operator_options(handler), **getattr(handler, "options", {})}
    attachment = attach(accelerator, **{**keywords, **options})
    attachment._manual = True
    try:
        yield attachment
    finally:
        attachment.detach()
    folder = handler.output_trace_dir
    if folder is not None and attachment._recorded:
        stem = os.path.join(folder, f"profile_{accelerator.process_index}")
        _save(attachment._session, stem)
        accelerator.wait_for_everyone()


def _save(session: Session, stem: str) -> None:
    try:
        os.makedirs(os.path.dirname(stem) or ".", exist_ok=True)
        session.profiler.report().save(f"{stem}.fprof")
    except own_errors() as error:  # must not end a finished training
        session.run.faults.add("save_errors", "fastprof: save failed", error)


@dataclass
class FastprofKwargs(ProfileKwargs):  # type: ignore[misc]
    """``ProfileKwargs`` that make ``accelerator.profile()`` a fastprof run.

    The fields and defaults are those of the installed Accelerate; ``options`` are keywords
    of :class:`fastprof.Profiler`.  ``Accelerator(kwargs_handlers=[FastprofKwargs()])``, then
    ``with accelerator.profile() as prof:`` and ``prof.step()`` as usual.  After
    ``attach(accelerator)`` it records into that run.
    """

    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_options({**operator_options(self), **self.options})

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        # Accelerator looks a handler up by its exact class.
        return ProfileKwargs

    def build(self) -> "_Window":  # type: ignore[override, unused-ignore]
        """Return the context of ``accelerator.profile()`` (called by Accelerate)."""
        options = {**operator_options(self), **self.options}
        return _Window(Session(check_options(options), {}, trainer="accelerate", hooks=False))


class _Window(HasRun):
    """The ``prof`` of ``with accelerator.profile() as prof:``."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._recorded = False

    def __enter__(self) -> "_Window":  # noqa: PYI034 - Self is new in 3.11
        self._session.start()
        self._recorded = self._session.alive
        self._session.begin_step()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._session.stop()

    def step(self) -> None:
        """End a step."""
        self._session.step()

    def export_chrome_trace(self, path: str) -> None:
        """Save the run next to ``path``, as ``.fprof`` (called by Accelerate)."""
        if self._recorded:
            _save(self._session, os.path.splitext(path)[0])


class AcceleratorAttachment(Attachment):
    """A run that records an ``Accelerator``'s loop; a context manager that ends it."""

    def __init__(
        self,
        accelerator: Any,
        loaders: dict[str, Any],
        val_loaders: dict[str, Any],
        options: dict[str, Any],
    ) -> None:
        super().__init__()
        self._accelerator = accelerator
        self._named = [(n, "train", x) for n, x in loaders.items()]
        self._named += [(n, "val", x) for n, x in val_loaders.items()]
        self._options = options
        self._seen: list[weakref.ref[Any]] = []
        self._stepped = False
        #: The program ends steps itself, with ``step()``.
        self._manual = False
        self._fetches = False
        self._recorded = False

    def step(self) -> None:
        """End a step.  From the first call on, only these calls end steps."""
        if self._session.alive:
            if not self._manual:
                self._manual, self._stepped = True, False
            self._session.step()

    def detach(self) -> None:
        """End the run and restore everything that was replaced."""
        self._session.quietly("The last step could not be ended", self._end_step)
        super().detach()
        self._seen.clear()

    # -- replaced methods

    def _begin(self) -> None:
        defaults = {"logger": ScalarLogger(self._log)}
        self._session = session = Session(self._options, defaults, trainer="accelerate")
        session.start()
        self._recorded = session.alive
        session.quietly("The accelerator could not be observed", self._observe, session)

    def _log(self, values: Mapping[str, float]) -> None:
        if self._accelerator.trackers:
            self._accelerator.log(dict(values), step=self._session.steps)

    def _observe(self, session: Session) -> None:
        patches, accelerator = self._patches, self._accelerator
        patches.method(accelerator, "backward", self._backward)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            patches.method(accelerator, name, functools.partial(session.around, "clip_grad"))
        for name in ("save_state", "save_model", "save"):
            patches.method(accelerator, name, session.checkpoint)
        for name in ("prepare", "prepare_model", "prepare_optimizer"):
            patches.method(accelerator, name, self._preparing)
        patches.method(accelerator, "end_training", self._ending)
        time_prepared_loaders(patches, session, self._kind_of, self)
        self._instrument()

    def _preparing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def prepare(*args: Any, **kwargs: Any) -> Any:
            prepared = original(*args, **kwargs)
            self._session.quietly("The prepared objects are not observed", self._instrument)
            return prepared

        return prepare

    def _ending(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def end_training(*args: Any, **kwargs: Any) -> Any:
            # Before the trackers are closed: they receive the last metrics.
            self.detach()
            return original(*args, **kwargs)

        return end_training

    def _instrument(self) -> None:
        """Observe the models and optimizers prepared since the last call."""
        session = self._session
        for model in self._accelerator._models:
            if self._is_new(model):
                observe_model(
                    self._patches, session, model, self._before_forward, self._after_forward
                )
        for optimizer in self._accelerator._optimizers:
            if self._is_new(optimizer):
                self._patches.method(optimizer, "step", self._optimizer_step)

    def _is_new(self, item: Any) -> bool:
        self._seen = [seen for seen in self._seen if seen() is not None]
        if any(item is seen() for seen in self._seen):
            return False
        self._seen.append(weakref.ref(item))
        return True

    # -- phases

    def _before_forward(self, module: Any) -> None:
        session = self._session
        if session.muted and self._fetches:
            return
        if not is_training(module):
            session.open(id(module), "forward")
            return
        if not self._fetches:  # no loader marks the begin of a step
            self._end_step()
            session.begin_step()
        if not session.is_under_way(_FORWARD):
            session.open(_FORWARD, "forward")

    def _after_forward(self, module: Any, output: Any) -> None:
        if self._session.muted:
            return
        self._session.close(id(module))
        if has_loss(output):  # forward is complete
            self._session.close(_FORWARD)

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        inside = self._session.around("backward", original)

        def backward(*args: Any, **kwargs: Any) -> Any:
            self._session.close(_FORWARD)
            return inside(*args, **kwargs)

        return backward

    def _optimizer_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            session = self._session
            if not session.alive or not self._accelerator.sync_gradients:
                return original(*args, **kwargs)
            session.close(_FORWARD)
            closure = args[0] if args else kwargs.get("closure")
            try:
                if session.muted:
                    return original(*args, **kwargs)
                late = closure is not None
                return session.around("optimizer", original, late=late)(*args, **kwargs)
            finally:
                self._stepped = True

        return step

    # -- steps and loaders

    def _end_step(self) -> None:
        if self._stepped:
            self._stepped = False
            if not self._manual:
                self._session.step()

    def _kind_of(self, loader: Any) -> tuple[str | None, str]:
        dataset = getattr(loader, "dataset", None)
        for name, split, named in self._named:
            # skip_first_batches() makes another loader over the same data.
            if named is loader or (
                dataset is not None and getattr(named, "dataset", None) is dataset
            ):
                return name, split
        models = self._accelerator._models
        return None, "train" if not models or models[0].training else "val"

    def before_fetch(self, split: str) -> None:
        """Handle the start of a fetch (called by the loader's iterator)."""
        session = self._session
        session.close(_FORWARD)
        self._end_step()
        if split == "train":
            self._fetches = True
            session.begin_step()
        else:
            session.leave_steps()

    def after_pass(self, split: str) -> None:
        """Handle the end of a loader (called by the loader's iterator)."""
        if split == "train":
            self._end_step()
            self._session.leave_steps()
