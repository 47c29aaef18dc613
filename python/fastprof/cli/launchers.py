"""Finds launchers, which start the training processes: fastprof belongs inside these."""

import os
import shlex
from collections.abc import Sequence

#: Launchers, as modules and as commands, and their option to run a module.
_OPTIONS = {
    "torch.distributed.run": "-m",
    "torch.distributed.launch": "-m",
    "accelerate.commands.launch": "-m",
    "torchrun": "-m",
    "accelerate": "-m",
    "deepspeed": "--module",
}


def launcher_problem(args: Sequence[str], *, as_module: bool) -> str | None:
    """Return why ``args`` cannot be profiled if it is a launcher, with the command that works.

    The processes that a launcher starts are new programs without fastprof; the launcher itself only
    waits for them.
    """
    name = args[0] if as_module else os.path.basename(args[0])
    option = _OPTIONS.get(name)
    if option is None or ("." in name) is not as_module:
        return None
    program = next((i for i, arg in enumerate(args) if i and arg.endswith(".py")), None)
    if program is None:
        shown, rest = "...", ["TRAIN.py"]
    else:
        shown, rest = shlex.join(args[1:program]), list(args[program:])
    start = f"python -m {name}" if as_module else name
    return (
        f"{name} starts the processes that train and waits for them; start fastprof in them: "
        f"{' '.join(filter(None, (start, shown, option)))} fastprof run {shlex.join(rest)}"
    )
