"""``python -m fastprof``: cProfile's command line, or that of the command ``fastprof``.

``python -m fastprof train.py`` works like ``python -m cProfile train.py``; ``python -m fastprof run
train.py`` works like ``fastprof run train.py``, unless the folder has a file named ``run``.
"""

import sys

from fastprof.cli import main_of_module

if __name__ == "__main__":
    sys.exit(main_of_module())
