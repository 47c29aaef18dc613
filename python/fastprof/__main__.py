"""``python -m fastprof``: cProfile's command line, or a command as ``fastprof`` has it."""

import os
import sys

from fastprof.cli import COMMANDS
from fastprof.cli import main as command
from fastprof.cli.profile_command import main

if __name__ == "__main__":
    # A script of that name is profiled, as with cProfile.
    is_command = sys.argv[1:2] and sys.argv[1] in COMMANDS and not os.path.exists(sys.argv[1])
    sys.exit(command() if is_command else main())
