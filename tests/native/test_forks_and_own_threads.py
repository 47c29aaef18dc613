"""A fork while a thread of fastprof, which Python does not know, takes the GIL."""

from __future__ import annotations

from pathlib import Path

from helpers import run_child

CODE = """
import os, sys, time
from fastprof.capture.listener import listen

calls = 0

def called(signals):
    global calls
    calls += 1
    return 1  # ns: again at once

folder = sys.argv[1]
listen(os.fsencode(folder), called)
open(os.path.join(folder, "request"), "w").close()
while not calls:
    time.sleep(0.01)
for number in range(200):
    child = os.fork()
    if child == 0:
        os._exit(0)
    until = time.monotonic() + 20
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, 9)
            sys.exit(f"child {number} hangs in os.fork()")
        time.sleep(0)
    before = calls
    os.utime(folder)  # the thread has begun again, and looks
    until = time.monotonic() + 0.02
    while calls == before and time.monotonic() < until:
        time.sleep(0.0002)
"""


def test_a_forked_child_never_waits_for_a_lock_of_a_thread_that_it_does_not_have(
    tmp_path: Path,
) -> None:
    # The thread made its thread state, under the interpreter's lock, while the program forked.
    run_child(CODE, str(tmp_path), timeout=120).check()
