"""``fastprof run --nproc N``: one process per rank on this machine, by torch's launcher.

It runs ``torchrun --standalone --nproc-per-node N --no-python fastprof run ...``. The launcher
replaces this process, so signals, standard streams and the exit status are torchrun's.
"""

import importlib.util
import os
import sys
from collections.abc import Sequence

from fastprof.cli.exit_hooks import complain
from fastprof.cli.parsing import USAGE_ERROR
from fastprof.cli.target import TargetError, prepare
from fastprof.session.environment.rank import Identity

_LAUNCHER = "torch.distributed.run"

#: The code for each rank's interpreter, which makes it the command; "-m fastprof run" would run a
#: file named "run".
_RANK = "import sys; sys.argv[0] = 'fastprof'; from fastprof.cli import main; sys.exit(main())"


def launch(ranks: int, options: Sequence[str], args: Sequence[str], *, as_module: bool) -> int:
    """Replace this process by torch's launcher of ``ranks`` processes.

    Args:
        options: options of each rank's ``fastprof run``, before the program.

    Returns:
        the exit status 2 if nothing could be started.
    """
    problem = _problem(ranks, args, as_module)
    if problem is None:
        python, size = sys.executable, f"--nproc-per-node={ranks}"
        launcher = [python, "-m", _LAUNCHER, "--standalone", size, "--no-python"]
        os.execv(python, [*launcher, python, "-c", _RANK, "run", *options, *args])
    complain(problem)
    return USAGE_ERROR


def _problem(ranks: int, args: Sequence[str], as_module: bool) -> str | None:
    if ranks < 1:
        return f"--nproc is {ranks}, expected 1 or more"
    size = Identity().world_size
    if size > 1:
        return f"--nproc starts a job, and this is a process of a job of {size}; leave it out"
    if importlib.util.find_spec("torch") is None:
        return (
            "--nproc needs torch, whose launcher starts the processes; with another launcher: "
            f"mpirun -n {ranks} fastprof run ..."
        )
    if args[0] == "-" and not as_module:
        return "--nproc starts several processes, which cannot all read - (standard input)"
    if not as_module:
        try:
            prepare(args, as_module=False)  # once, and not by each rank
        except TargetError as error:
            return str(error)
    return None
