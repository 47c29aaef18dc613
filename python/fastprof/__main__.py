"""``python -m fastprof``: cProfile's command line."""

import sys

from fastprof.cli.profile_command import main

if __name__ == "__main__":
    sys.exit(main())
