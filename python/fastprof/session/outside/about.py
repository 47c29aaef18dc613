"""What a process says of itself when it announces itself."""

import os
import sys

from fastprof._version import __version__
from fastprof.session.environment.signals import signal_wanted
from fastprof.session.outside.places import Process, numbering, state_of


def about(mode: str, output: str, rank: int, world_size: int) -> Process:
    """Return the description of this process."""
    pid = os.getpid()
    found = state_of(pid)
    argv = getattr(sys, "argv", None) or ["python"]
    return Process(
        pid=pid,
        began=0 if found is None else found[1],
        space=numbering(),
        mode=mode,
        program=os.path.basename(str(argv[0])) or "python",
        python="{}.{}.{}".format(*sys.version_info[:3]),
        fastprof=__version__,
        output=output,
        signal=signal_wanted(),
        rank=rank,
        world_size=world_size,
    )
