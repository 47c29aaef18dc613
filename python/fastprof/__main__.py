"""``python -m fastprof``: cProfile's command line, or that of the command ``fastprof``.

``python -m fastprof train.py`` is as ``python -m cProfile train.py``; ``python -m fastprof
run train.py`` is as ``fastprof run train.py``, unless there is a file named ``run`` here.
"""

import sys

from fastprof.cli import main_of_module

if __name__ == "__main__":
    sys.exit(main_of_module())
