"""The hooks on torch that drive :class:`~fastprof.integrations._torch.phases.Phases`.

They are installed once torch is imported, and removed exactly.  fastprof reports a failing
hook once, adds a note to the report and switches the hook off; the training continues.
"""

import functools
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

from fastprof.capture.sections import profile_section
from fastprof.guards import own_errors
from fastprof.integrations._torch.data import Loaders
from fastprof.integrations._torch.dynamo import leave_alone
from fastprof.integrations._torch.guarded import Fail, Guarded
from fastprof.integrations._torch.modules import Hook, ModuleRows, ResultHook, around_scripting
from fastprof.integrations._torch.phases import Phases
from fastprof.integrations._torch.plain_ends import PlainEnds, steps_under_way
from fastprof.session.gpu.cuda_init import CudaInit
from fastprof.session.own_time import clock
from fastprof.session.patching.compiling import compiling_test
from fastprof.session.patching.importing import TorchImport
from fastprof.session.patching.wrapping import FAILED, After, Before, wrap

CHECKPOINT = profile_section("checkpoint")
H2D = profile_section("h2d")

#: Key of the hooks on the running module; torch assigns keys from 0 up.
_AFTER_KEY = -1


class Hooks(Guarded):
    """All hooks on torch for one run.

    Args:
        fail: called with a description of the failure and the exception.
    """

    def __init__(
        self, torch: Any, phases: Phases, loaders: Loaders, rows: ModuleRows, fail: Fail
    ) -> None:
        super().__init__(phases, fail)
        self._torch = torch
        self._loaders = loaders
        self._rows = rows
        self._compiling: Callable[[], bool] = compiling_test(torch)
        # Whether the compiler traces the running code: it makes fewer calls.
        traced = getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", None)
        self._traced: Callable[[], bool] = traced or self._compiling
        # torch's dict of global hooks on modules, and the key of ours in it.
        self._before: dict[int, Any] = {}
        self._before_key = -1
        self._watches_compiled = False
        # Number of steps that run within another one of the same optimizer.
        self._inner_steps = 0
        # The dicts that contain the hooks on the running module; its calls inside of its call.
        self._after: tuple[Any, ...] | None = None
        self._inner_calls = 0
        self._cuda = CudaInit(lambda: self._part("copies", self._install_copies))

    def install(self) -> None:
        """Install the hooks; skip parts that this torch does not have."""
        self._part("compiled code", leave_alone, self._torch)
        self._part("data", self._install_data)
        self._part("forward", self._install_forward)
        self._part("backward", self._install_backward)
        self._part("optimizer", self._install_optimizer)
        self._part("evaluation", self._install_evaluation)
        self._part("checkpoint", self._install_checkpoint)
        cuda = getattr(self._torch, "cuda", None)
        if cuda is not None and cuda.is_initialized():
            self._part("copies", self._install_copies)
        else:
            self._cuda.watch()
            self._undo.append(self._cuda.forget)

    # -- data

    def _install_data(self) -> None:
        module = sys.modules["torch.utils.data.dataloader"]
        loaders, iterators = self._loaders, module._BaseDataLoaderIter
        self._put(iterators, "__next__", loaders.timed(vars(iterators)["__next__"]))
        self._replace(
            "data", module.DataLoader, "__iter__", loaders.start_begins, loaders.start_ends
        )

    # -- forward: a hook on all modules that is installed only while none is running

    def _install_forward(self) -> None:
        module = sys.modules["torch.nn.modules.module"]
        compiling, off, begins = self._compiling, self._off, self._module_begins
        own = self._own

        def before_forward(module: Any, args: Any) -> None:
            if "forward" not in off and not compiling():
                began, ns, apart_ns = clock(), own.ns, own.apart_ns
                try:
                    begins(module)
                except BaseException as error:
                    self._failed("forward", error)
                own.took(began, ns, apart_ns)

        handle = module.register_module_forward_pre_hook(before_forward)
        hooks = handle.hooks_dict_ref()
        if hooks is None or hooks.get(handle.id) is not before_forward:
            handle.remove()
            raise RuntimeError("this torch keeps the hooks of modules in an unknown place")
        self._before, self._before_key, self._before_hook = hooks, handle.id, before_forward
        self._undo += [self._disarm, self._take_after]
        self._phases.on_watching = self._watching
        self._entered, self._left = Hook(self._module_entered), ResultHook(self._module_left)
        self._replace("forward", module.Module, "compile", None, self._was_compiled)
        if hasattr(self._torch, "compile"):
            self._replace("forward", self._torch, "compile", None, self._compiles)
        self._watch_compiled()
        around_scripting(functools.partial(self._replace, "scripted modules"))
        # torch.export cannot trace a module while all modules have a hook.
        exports = sys.modules.get("torch.export")
        for name in ("export", "export_for_training", "draft_export"):
            if hasattr(exports, name):
                self._replace("forward", exports, name, self._export_begins, self._export_ends)

    def _abandon(self) -> None:
        super()._abandon()
        self._arm()

    def _arm(self) -> None:
        # Use the same key each time: torch.compile guards on it.
        if self._before_key >= 0 and self._phases.on and self._phases.watching:
            self._before[self._before_key] = self._before_hook

    def _disarm(self) -> None:
        self._before.pop(self._before_key, None)

    def _watching(self) -> None:
        if not self._phases.watching:
            self._disarm()
        elif self._phases.idle:
            self._arm()

    def _module_begins(self, module: Any) -> None:
        before = module._forward_pre_hooks
        self._inner_calls = 0
        if self._after is not None:  # of a call that raised
            # torch has already listed the hooks that it calls next.
            self._inner_calls -= _AFTER_KEY in before
            self._take_after()
        if not self._phases.module_begins(module):
            return
        try:
            self._rows.look_at(module)
            # Like register_forward_hook(always_call=True), but without a handle's weak
            # references, because each call removes the hook.
            after = module._forward_hooks, module._forward_hooks_always_called
            after[0][_AFTER_KEY] = self._left
            after[1][_AFTER_KEY] = True
            # A module may call itself.
            before[_AFTER_KEY] = self._entered
            self._after = (*after, before)
        except BaseException:
            self._phases.module_ends(module)
            raise
        self._before.pop(self._before_key, None)

    def _take_after(self) -> None:
        if self._after is not None:
            for hooks in self._after:
                hooks.pop(_AFTER_KEY, None)
            self._after = None

    def _module_entered(self, module: Any) -> None:
        if self._phases.in_training_thread():
            self._inner_calls = self._inner_calls + 1 if self._phases.in_call else 0

    def _module_left(self, module: Any, output: Any) -> None:
        # Another thread may call the same module meanwhile.
        if "forward" in self._off or not self._phases.in_training_thread():
            return
        if self._inner_calls > 0:
            self._inner_calls -= 1
            return
        own = self._own
        began, ns, apart_ns = clock(), own.ns, own.apart_ns
        try:
            # torch iterates over the hooks themselves when it calls one for an exception;
            # this hook is then removed at the next opportunity.
            if sys.exc_info()[0] is None:
                self._take_after()
            self._arm()
            self._phases.module_ends(module, output)
        except BaseException as error:
            self._failed("forward", error)
        own.took(began, ns, apart_ns)

    def _export_begins(self, *_: Any) -> None:
        self._disarm()

    def _export_ends(self, *_: Any) -> None:
        if self._phases.idle:
            self._arm()

    def _was_compiled(self, args: Any, kwargs: Any, result: Any) -> None:
        """Wrap the result of ``Module.compile()``, which would compile hooks as well."""
        self._forgo_plain_ends()
        module = args[0]
        compiled = getattr(module, "_compiled_call_impl", None)
        if result is FAILED or compiled is None:
            return
        seen = weakref.ref(module)
        module._compiled_call_impl = wrap(compiled, *self._around_call(lambda args: seen()))
        # Weak, because the compiled call has the module.
        wrapped = weakref.ref(module._compiled_call_impl)

        def undo() -> None:
            target, ours = seen(), wrapped()
            if target is None or ours is None:
                return
            if target._compiled_call_impl is ours:
                target._compiled_call_impl = ours.__wrapped__

        self._undo.append(undo)

    def _compiles(self, *_: Any) -> None:
        self._forgo_plain_ends()
        self._watch_compiled()

    def _forgo_plain_ends(self) -> None:
        # The compiler follows hooks on optimizers, unless they are written in C.
        self._phases.leave_plain()
        self._phases.plain_ends = None

    def _watch_compiled(self) -> None:
        """Wrap the class of ``torch.compile(module)``'s result, which looks for global hooks."""
        module = sys.modules.get("torch._dynamo.eval_frame")
        compiled = getattr(module, "OptimizedModule", None)
        if compiled is not None and not self._watches_compiled:
            self._watches_compiled = True
            begins, ends = self._around_call(lambda args: args[0])
            self._put(compiled, "__call__", wrap(compiled.__call__, begins, ends))

    def _around_call(self, target: Callable[[Any], Any]) -> tuple[Before, After]:
        """Return handlers for calls that hooks on modules do not see."""
        begun: list[Any] = []
        here = self._phases.here  # ignore calls in other threads

        def begins(args: Any, kwargs: Any) -> None:
            if here():
                begun.append(None)
                if not self._compiling():
                    module = target(args)
                    if self._part("forward", self._call_begins, module):
                        begun[-1] = module

        def ends(args: Any, kwargs: Any, result: Any) -> None:
            module = begun.pop() if here() and begun else None
            if module is not None:
                self._arm()
                output = None if result is FAILED else result
                self._part("forward", self._phases.module_ends, module, output)

        return begins, ends

    def _call_begins(self, module: Any) -> bool:
        begins = self._phases.module_begins(module)
        if begins:
            self._disarm()
        return begins

    # -- backward: Tensor.backward, autograd.backward and autograd.grad call one function

    def _install_backward(self) -> None:
        autograd = self._torch.autograd
        names = [name for name in ("_engine_run_backward",) if name in vars(autograd)]
        for name in names or ["backward", "grad"]:
            self._replace(
                "backward", autograd, name, self._backward_begins, self._backward_ends,
                self._phases.is_plain_backward,
            )  # fmt: skip

    def _backward_begins(self, args: Any, kwargs: Any) -> None:
        # Calls of modules in backward (checkpointing) are part of it.
        self._disarm()
        self._phases.backward_begins()

    def _backward_ends(self, args: Any, kwargs: Any, result: Any) -> None:
        self._phases.backward_ends(*(sys.exc_info() if result is FAILED else ()))
        if self._phases.idle:
            self._arm()

    # -- optimizer

    def _install_optimizer(self) -> None:
        optimizers = sys.modules["torch.optim.optimizer"]
        handles = (
            optimizers.register_optimizer_step_pre_hook(self._before_step),
            optimizers.register_optimizer_step_post_hook(self._after_step),
        )
        self._undo += [handle.remove for handle in handles]
        ends = self._phases.plain_ends = PlainEnds(
            self._phases, handles, (self._before_step, self._after_step), self._failed
        )
        self._loaders.fetch_by(ends)
        made = self._phases.optimizer_made
        self._replace(
            "optimizer",
            optimizers.Optimizer,
            "__init__",
            None,
            lambda args, kwargs, result: made(args[0]) if result is not FAILED else None,
        )
        scaler = getattr(sys.modules.get("torch.amp.grad_scaler"), "GradScaler", None)
        if scaler is not None:
            # It first looks for infinities, which waits for the GPU.
            self._replace(
                "optimizer",
                scaler,
                "step",
                lambda args, kwargs: self._phases.optimizer_begins(args[0]),
                lambda args, kwargs, result: self._phases.optimizer_ends(args[0]),
            )

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        if self._traced():
            return None
        phases = self._phases
        more = len(args) - 1 + len(kwargs)  # nothing, or a closure
        alone = not more or (more == 1 and (not kwargs or "closure" in kwargs))
        if alone and phases.is_plain_optimizer(optimizer, closure=more > 0):
            self._inner_steps = 0
            return None
        own, changed = self._own, None
        began, ns, apart_ns = clock(), own.ns, own.apart_ns
        try:
            begun = phases.plain_with_closure
            if begun and not steps_under_way(begun):
                phases.plain_raised()
            if phases.steps_already(optimizer) and steps_under_way(id(optimizer)) == 2:
                self._inner_steps += 1
            else:
                self._inner_steps = 0  # one that raised has no end
                if "optimizer" not in self._off:
                    changed = self._step_begins(optimizer, args, kwargs)
        except BaseException as error:
            self._failed("optimizer", error)
        own.took(began, ns, apart_ns)
        return changed

    def _step_begins(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        by_name = "closure" in kwargs
        closure = kwargs["closure"] if by_name else (args[1] if len(args) > 1 else None)
        self._phases.optimizer_begins(optimizer, closure=callable(closure))
        if not callable(closure):
            return None
        apart = wrap(
            closure,
            lambda args, kwargs: self._part("optimizer", self._closure_begins),
            lambda args, kwargs, result: self._part("optimizer", self._phases.closure_ends),
        )
        if by_name:
            return args, {**kwargs, "closure": apart}
        return (args[0], apart, *args[2:]), kwargs

    def _closure_begins(self) -> None:
        self._phases.closure_begins()
        self._arm()

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._traced():
            return
        if self._inner_steps:
            self._inner_steps -= 1
            return
        own = self._own
        samples, ns, apart_ns = own.samples, own.ns, own.apart_ns
        began = clock() if samples else 0
        if "optimizer" not in self._off:
            phases = self._phases
            try:
                if not phases.ends_plain_step(optimizer):
                    phases.optimizer_ends(optimizer, stepped=optimizer)
                    self._arm()
            except BaseException as error:
                self._failed("optimizer", error)
        if samples:
            own.took(began, ns, apart_ns, samples)

    # -- evaluation: modes

    def _install_evaluation(self) -> None:
        module = sys.modules["torch.nn.modules.module"].Module
        phases, part = self._phases, self._part
        self._replace(
            "evaluation",
            module,
            "eval",
            lambda args, kwargs: phases.model_evals(args[0]),
            lambda args, kwargs, result: None,
        )
        original = module.train

        # Called for each inner module, so it must be fast.
        @functools.wraps(original)
        def train(module: Any, mode: bool = True) -> Any:
            if mode:
                if phases.evaluating:
                    part("evaluation", phases.model_trains, module)
            elif not phases.watching:
                part("evaluation", phases.mode_changes)
            return original(module, mode)

        self._put(module, "train", train)

    # -- saving, and copies to the GPU

    def _install_checkpoint(self) -> None:
        begins, ends = self._aside(CHECKPOINT, phase="checkpoint")
        # Both names must keep one function: pickle stores it by the name in its module.
        wrappers: dict[Any, Any] = {}
        for owner in (self._torch, sys.modules["torch.serialization"]):
            save = owner.save
            if save not in wrappers:
                wrappers[save] = self._around("checkpoint", save, begins, ends)
            self._put(owner, "save", wrappers[save])
        tensors = TorchImport(
            lambda: self._part("checkpoint", self._install_safetensors), "safetensors.torch"
        )
        self._undo.append(tensors.forget)
        tensors.watch()

    def _install_safetensors(self) -> None:
        """Replace the functions that ``save_file`` and ``save`` call, not these two.

        Other modules may already have imported these two (``from safetensors.torch import
        save_file``).
        """
        module: Any = sys.modules["safetensors.torch"]
        begins, ends = self._aside(CHECKPOINT, phase="checkpoint")
        prepares = next((n for n in ("_flatten_as_ptr", "_flatten") if hasattr(module, n)), None)
        under_way: list[bool] = []

        def prepare(args: Any, kwargs: Any) -> None:
            if self._phases.here() and _is_saved(vars(module)):
                if under_way:  # an earlier one was interrupted before it wrote
                    ends(args, kwargs, None)
                under_way[:] = [True]
                begins(args, kwargs)

        def prepared(args: Any, kwargs: Any, result: Any) -> None:
            if result is FAILED:
                written(args, kwargs, result)

        def write(args: Any, kwargs: Any) -> None:
            if self._phases.here() and not under_way:
                under_way.append(True)
                begins(args, kwargs)

        def written(args: Any, kwargs: Any, result: Any) -> None:
            if self._phases.here() and under_way:
                under_way.clear()
                ends(args, kwargs, result)

        if prepares is not None:
            self._replace("checkpoint", module, prepares, prepare, prepared)
        for name in ("serialize_file", "serialize"):
            self._replace("checkpoint", module, name, write, written)

    def _install_copies(self) -> None:
        tensor = self._torch.Tensor
        # Clipping gradients alone calls to() for each parameter, on the GPU.
        here = self._phases.here

        def stays(args: Any) -> bool:
            return not here() or _is_on_gpu(args)

        self._replace("copies", tensor, "cuda", *self._aside(H2D), stays)
        self._replace("copies", tensor, "to", *self._aside(H2D, _goes_to_gpu), stays)

    def _aside(
        self, section: Any, wanted: Callable[[Any, Any], bool] | None = None, phase: str = ""
    ) -> tuple[Before, After]:
        """Return handlers that open and close a section outside the phases of a step.

        ``phase``: a phase of the run to enter and leave with it.
        """
        phases, run = self._phases, self._phases.run
        # For each running call: whether it is aside, and has the section.
        calls: list[tuple[bool, bool]] = []

        def begins(args: Any, kwargs: Any) -> None:
            if phases.here():
                aside = (wanted is None or wanted(args, kwargs)) and phases.aside()
                if aside and phase:
                    run.enter_phase(phase)
                calls.append((aside, aside and section.enter_phase()))

        def ends(args: Any, kwargs: Any, result: Any) -> None:
            aside, opened = calls.pop() if phases.here() and calls else (False, False)
            if opened:
                section.__exit__(*(sys.exc_info() if result is FAILED else (None, None, None)))
            if aside:
                if phase:
                    run.leave_phase(phase)
                phases.aside_ends()

        return begins, ends


def _is_saved(names: dict[str, Any]) -> bool:
    """Return whether the innermost function of the module with these globals saves."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals is not names:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name in ("save", "save_file")


def _is_on_gpu(args: Any) -> bool:
    try:
        return args[0].is_cuda is True
    except own_errors():  # a call without a tensor, or a class of tensors that refuses
        return False


def _goes_to_gpu(args: Any, kwargs: Any) -> bool:
    target = kwargs.get("device", args[1] if len(args) > 1 else kwargs.get("other"))
    target = getattr(target, "device", target)  # of to(other)
    return isinstance(target, int) or str(target).startswith("cuda")
