"""The environment variable ``FASTPROF``: ``1`` starts a run at import, ``0`` forces off."""

from __future__ import annotations

import os
import sys

_VARIABLE = "FASTPROF"


def read() -> str:
    """Return ``"on"``, ``"off"`` or ``"unset"``.

    Only ``1`` and ``0`` mean something.  Anything else is warned about and ignored; an
    empty value counts as unset.  Under ``python -I`` and ``python -E`` the variable is
    not looked at.
    """
    if sys.flags.ignore_environment:
        return "unset"
    value = os.environ.get(_VARIABLE, "")
    if value == "1":
        return "on"
    if value == "0":
        return "off"
    if value:
        import warnings

        try:
            warnings.warn(
                f"{_VARIABLE}={ascii(value)[:40]} is ignored: use {_VARIABLE}=1 to profile "
                f"or {_VARIABLE}=0 to force profiling off",
                RuntimeWarning,
                stacklevel=2,
            )
        except RuntimeWarning as warning:  # -W error: an import is no place to end for this
            sys.stderr.write(f"{warning}\n")
    return "unset"


#: Read once, when fastprof is imported: what a run does must not depend on when in the
#: program it was started.
MODE = read()
