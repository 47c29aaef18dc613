"""The signal that asks a run for a report: ``FASTPROF_SIGNAL``, ``fastprof run --signal``."""

import os
import signal
import sys

from fastprof.guards import dropped
from fastprof.session.environment.switch import warn_ignored

VARIABLE = "FASTPROF_SIGNAL"
#: By default they end a process, and the system sends none of them itself.
NAMES = ("USR1", "USR2")


def signal_from(text: str, name: str) -> str:
    """Return the name of a signal, ``USR1`` or ``USR2``.

    Raises:
        ValueError: it is another one; the message begins with ``name``.
    """
    found = text.upper().removeprefix("SIG")
    if found not in NAMES:
        raise ValueError(f"{name} is {text!r:.80}, expected USR1 or USR2")
    return found


def signal_wanted() -> str:
    """Return the name in ``FASTPROF_SIGNAL``; empty: none.

    Another value causes a warning and is ignored.
    """
    text = os.environ.get(VARIABLE, "")
    if not text or sys.flags.ignore_environment:
        return ""
    try:
        return signal_from(text, VARIABLE)
    except ValueError as error:
        warn_ignored(f"{error}; no signal asks for a report")
        return ""


def catch(name: str) -> None:
    """Let the signal ask for a report from now on; it does not end the process any more.

    A handler that the program has already set runs, too.  One that it sets later takes its place.

    Raises:
        OSError: the system refuses.
    """
    from fastprof.capture.listener import handle_signal

    handle_signal(int(getattr(signal, f"SIG{name}")))


def catch_wanted() -> None:
    """Catch the signal of the environment, when fastprof is imported: before, it ends the process.

    Without the extension nothing can be recorded, and the signal keeps its effect.
    """
    name = signal_wanted()
    if name:
        with dropped(ImportError, OSError):
            catch(name)
