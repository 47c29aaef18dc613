"""Optional rows for modules inside the model: sections named by their path.

Hooks stay on the chosen modules for the run.  A program may copy or save the model meanwhile,
so copying or saving a hook yields a function of the standard library that does nothing.  It may
also compile the model with ``torch.jit.script``, which would compile hooks.
"""

import re
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from fnmatch import fnmatchcase
from typing import Any

from fastprof.capture.sections import profile_section
from fastprof.integrations._torch.models import WRAPPED
from fastprof.session.patching.wrapping import After, Before

#: The beginning of a path that names wrappers.
_PREFIX = re.compile(rf"^(?:(?:{'|'.join(WRAPPED)})(?:\.|$))+")


class Hook:
    """A hook on a module, which copies of the module do not share."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, module: Any, args: Any, result: Any = None) -> None:
        self._call(module)

    def __reduce__(self) -> Any:
        return getattr, (nullcontext(), "__exit__")


class ResultHook(Hook):
    """A hook that also receives the module's result."""

    def __call__(self, module: Any, args: Any, result: Any = None) -> None:
        self._call(module, result)


def around_scripting(replace: Callable[[Any, str, Before, After], object]) -> None:
    """Take our hooks off while ``torch.jit.script`` compiles a module, if torch has it.

    Args:
        replace: called with an object, the name of its function to wrap, and what to call before
            and after it.
    """
    scripts = sys.modules.get("torch.jit._recursive")
    if hasattr(scripts, "create_script_module"):  # torch.jit.script calls it
        replace(scripts, "create_script_module", *_without_hooks())


def _without_hooks() -> tuple[Before, After]:
    """Return handlers for a function during which its module, or a module in it, has no hooks."""
    calls: list[list[tuple[dict[int, Any], dict[int, Any]]]] = []

    def begins(args: Any, kwargs: Any) -> None:
        taken: list[tuple[dict[int, Any], dict[int, Any]]] = []
        calls.append(taken)
        for module in args[0].modules():
            for hooks in (module._forward_pre_hooks, module._forward_hooks):
                own = {key: hook for key, hook in hooks.items() if isinstance(hook, Hook)}
                taken.append((hooks, own))
                for key in own:
                    del hooks[key]

    def ends(args: Any, kwargs: Any, result: Any) -> None:
        for hooks, own in calls.pop() if calls else ():
            hooks.update(own)

    return begins, ends


class ModuleRows:
    """Sections for the modules whose path matches one of ``patterns``.

    Args:
        patterns: as in a shell: ``"layers.*"``; ``*`` matches dots, too.  Paths are those
            of ``model.named_modules()`` without the prefixes of wrappers.
        wanted: returns whether to open sections now, in this thread.
        compiling: returns whether ``torch.compile`` traces the call.
    """

    def __init__(
        self, patterns: Sequence[str], wanted: Callable[[], bool], compiling: Callable[[], bool]
    ) -> None:
        self._patterns = tuple(patterns)
        self._wanted = wanted
        self._compiling = compiling
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._handles: list[Any] = []

    def look_at(self, model: Any) -> None:
        """Add hooks to ``model``; does nothing the second time."""
        if not self._patterns or model in self._seen:
            return
        self._seen.add(model)
        compiled: tuple[str, ...] = ()
        for path, module in model.named_modules():
            # The modules inside a compiled module run as one.
            if path.startswith(compiled):
                continue
            if hasattr(type(module), "dynamo_ctx") or "_orig_mod" in module._modules:
                compiled = (*compiled, f"{path}." if path else "_orig_mod")
            name = _PREFIX.sub("", path)
            if name and any(fnmatchcase(name, pattern) for pattern in self._patterns):
                self._add(module, name)

    def remove(self) -> None:
        """Remove every hook."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def _add(self, module: Any, name: str) -> None:
        if module in self._seen:
            return
        self._seen.add(module)
        section = profile_section(name)
        open_now = 0

        def begins(_: Any) -> None:
            nonlocal open_now
            if not self._compiling() and self._wanted():
                open_now += 1
                section.__enter__()

        def ends(_: Any) -> None:
            nonlocal open_now
            # Test again: another thread may leave the module meanwhile.
            if open_now and not self._compiling() and self._wanted():
                open_now -= 1
                section.__exit__(None, None, None)

        self._handles.append(module.register_forward_pre_hook(Hook(begins)))
        self._handles.append(module.register_forward_hook(Hook(ends), always_call=True))
