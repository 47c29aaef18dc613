"""The intervention ``queued-logging``: the program waits for no write, and nothing is lost."""

from __future__ import annotations

from helpers import run_child

BEGIN = """
import atexit, io, logging, os, sys, threading, time
from fastprof.trial import effects
from fastprof.trial.changes import Changes

class Slow(io.StringIO):  # as a slow disk: writes, and flushes, wait
    waited = []
    def slow(self):
        if not self.waited:
            self.waited.append(gate.wait(10))
    def write(self, text):
        if at == "write":
            self.slow()
        lines.append(text.rstrip())
    def flush(self):
        if at == "flush" and threading.current_thread().name == "fastprof-log":
            self.slow()

gate, lines, at, finishes = threading.Event(), [], sys.argv[1], []
register, atexit.register = atexit.register, finishes.append
changes = Changes(observe=False)
effects.queued_logging(changes, "queued-logging", {})
atexit.register = register
(finish,) = finishes
log = logging.getLogger("train")
log.setLevel(logging.INFO)
log.propagate = False
handler = logging.StreamHandler(Slow())
log.addHandler(handler)
wanted = [f"step {i}" for i in range(20)]
"""


def run(code: str, *args: str) -> None:
    run_child(BEGIN + code, *(args or ("write",))).check()


def test_the_program_waits_for_no_write() -> None:
    code = """
for i in range(20):
    log.info("step %d", i)
    time.sleep(0.01)  # the writer begins
gate.set()
finish()
assert Slow.waited == [True], Slow.waited
assert lines == wanted, lines
assert changes.applied == {"queued-logging": 20}
"""
    run(code, "write")
    run(code, "flush")


def test_closing_a_handler_writes_what_waits_also_with_its_lock() -> None:
    run("""
import tempfile
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "train.log")
    file = logging.FileHandler(path, mode="w")
    log.addHandler(file)
    for i in range(20):
        log.info("step %d", i)
    threading.Timer(0.2, gate.set).start()
    logging.shutdown()
    assert open(path).read().splitlines() == wanted
    assert file.stream is None
assert lines == wanted, lines
finish()
assert lines == wanted, lines
""")


def test_another_stream_gets_no_line_from_before() -> None:
    run("""
for i in range(20):
    log.info("step %d", i)
threading.Timer(0.2, gate.set).start()
other = io.StringIO()
handler.setStream(other)
assert lines == wanted, lines
log.info("later")
finish()
assert other.getvalue() == "later\\n"
""")


def test_lines_that_come_while_the_run_ends_are_written() -> None:
    run("""
log.info("step 0")
ends = threading.Thread(target=finish)
ends.start()
time.sleep(0.2)  # its mark is in the queue
for i in range(1, 20):
    log.info("step %d", i)
gate.set()
ends.join()
assert lines == wanted, lines
""")


def test_a_forked_process_does_not_write_lines_of_its_parent() -> None:
    run("""
import warnings
warnings.simplefilter("ignore")
log.info("step 0")
log.info("step 1")
time.sleep(0.1)
pid = os.fork()
if not pid:
    gate.set()
    lines.clear()
    log.info("in the child")
    finish()
    handler.close()
    os._exit(lines != ["in the child"])
assert os.waitpid(pid, 0)[1] == 0
gate.set()
finish()
assert lines == wanted[:2], lines
""")


def test_a_handler_with_its_own_way_to_write_is_left_alone() -> None:
    run("""
seen = []
class Own(logging.StreamHandler):
    def emit(self, record):
        seen.append(threading.current_thread())
        super().emit(record)
log.removeHandler(handler)
log.addHandler(Own(io.StringIO()))
log.info("step 0")
assert seen == [threading.main_thread()]
finish()
""")
