"""``FASTPROF=standby`` and ``fastprof attach``: a loop that runs already, recorded for a while."""

from typing import TYPE_CHECKING

from fastprof import own_imports
from fastprof.guards import dropped
from fastprof.session.environment.switch import is_worker

if TYPE_CHECKING:
    from fastprof.session.outside.standby import Recording


def wait() -> None:
    """Record nothing until it is asked for, unless this is fastprof's own command or a worker."""
    if own_imports.is_own_command() or is_worker():
        return
    with dropped():  # no extension, or no place to announce the process: `fastprof attach` says so
        begin()


def begin(top: str | None = None, *, temporary: bool = False) -> None:
    """Begin to wait: see :func:`fastprof.session.outside.standby.begin`."""
    from fastprof.session.outside import standby

    standby.begin(_made, top, temporary=temporary)


def _made() -> "Recording":
    from fastprof.integrations._torch.attached import Attached

    return Attached()
