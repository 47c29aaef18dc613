"""The environment variable ``FASTPROF``: ``1`` starts a run at import, ``0`` forces off.

``standby`` records nothing until ``fastprof attach`` asks for it.
"""

import os
import sys

_VARIABLE = "FASTPROF"


def read() -> str:
    """Return ``"on"``, ``"off"``, ``"standby"`` or ``"unset"``.

    Only ``1``, ``0`` and ``standby`` have a meaning.  Any other value causes a warning and is
    ignored; an empty value counts as unset.  Under ``python -I`` and ``python -E`` the variable is
    ignored.
    """
    if sys.flags.ignore_environment:
        return "unset"
    value = os.environ.get(_VARIABLE, "")
    if value == "1":
        return "on"
    if value == "0":
        return "off"
    if value == "standby":
        return value
    if value:
        warn_ignored(
            f"{_VARIABLE}={ascii(value)[:40]} is ignored: use {_VARIABLE}=1 to profile, "
            f"{_VARIABLE}=standby to wait for `fastprof attach`, or {_VARIABLE}=0 to force "
            "profiling off"
        )
    return "unset"


def warn_ignored(text: str) -> None:
    """Warn, once per text, of an environment variable whose value means nothing.

    It must not make the program fail.
    """
    import warnings

    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except RuntimeWarning as warning:  # -W error
        sys.stderr.write(f"{warning}\n")


def is_worker() -> bool:
    """Return whether this is a worker process (of a DataLoader, a pool, ...).

    It inherits the environment, but the user wants to see the training process.
    """
    processes = sys.modules.get("multiprocessing.process")
    if processes is None:
        return False
    # A spawned worker imports the program before it knows its parent process; until
    # then a mark on its process object distinguishes it.
    return processes.parent_process() is not None or bool(
        getattr(processes.current_process(), "_inheriting", False)
    )


#: Read once, when fastprof is imported: a run's behaviour must not depend on when in the program it
#: started.
MODE = read()
