"""The run so far of a process, for ``fastprof report PID|DIR``."""

import os
import re

from fastprof.cli.exit_hooks import complain
from fastprof.report.figures import plural
from fastprof.session.outside.ask import named, of_folder, recorded, request
from fastprof.session.outside.places import NOW, REPORT, Place, Process

#: How long to wait for a report; a step may be long, and a machine busy.
_LIMIT_S = 30.0
_PID = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)


def now_of(text: str) -> str | None:
    """Ask the process that ``text`` names; return the path of its report.

    Args:
        text: its number, unless a file has that name, or the folder of its files.

    Returns:
        None: ``text`` names no process.

    Raises:
        ValueError, OSError: there is no answer; the message says why.
    """
    if _PID.fullmatch(text) and not os.path.exists(text):
        return _asked(*named(text))
    found = of_folder(text) if os.path.isdir(text) else []
    if not found:
        return None
    if len(found) > 1:
        others = ", ".join(str(process.pid) for process, _ in found[1:4])
        more = "" if len(found) <= 4 else ", ..."
        complain(
            f"{plural(len(found), 'process')} write to {text!r} now; this is rank "
            f"{found[0][0].rank}, process {found[0][0].pid}; the others: {others}{more}"
        )
    return _asked(*found[0])


def _asked(process: Process, place: Place) -> str:
    recorded(process)
    request(process, place, REPORT, _LIMIT_S)
    return place.path(NOW)
