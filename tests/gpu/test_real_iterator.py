"""Real libcupti's own iterator walks the fake's buffers: sizes, ends and refusals must agree.

The tests use child processes, because some releases of CUPTI crash without a driver.  They skip
releases that do not work without one, with the reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import real_cupti
from fake_handles import FakeGpu

LIBRARIES = real_cupti.libraries()

pytestmark = pytest.mark.skipif(
    not LIBRARIES, reason="no libcupti in CUDA_HOME, /usr/local/cuda* or nvidia wheels"
)

# Prints the version, then one line per buffer: the results of both iterators.
CHILD = """
import ctypes, json, random, sys
sys.path.insert(0, sys.argv[3])
from fake_handles import Control, Record
real = ctypes.CDLL(sys.argv[1])
fake = Control(sys.argv[2])
version = ctypes.c_uint32()
result = real.cuptiGetVersion(ctypes.byref(version))
release = fake.release_of(version.value) if result == 0 else -1
if release == 11080 and "libcupti.so.11" not in sys.argv[1]:
    release = 12010
print(json.dumps({"result": result, "version": version.value, "release": release}), flush=True)
if release < 0:
    sys.exit()
fake.set_options(release=release)
kinds = [k for k in range(64) if fake.record_size(release, k)]
at = (ctypes.c_uint64 * 4096)()
start = ctypes.addressof(at)

def fill(order):
    used = 0
    for kind in order:
        record = Record(kind=kind, start=1, end=2, correlation=7)
        used += fake.write_record(release, ctypes.byref(record), ctypes.c_void_p(start + used))
    return used

def walk(library, valid):
    steps, record = [], ctypes.c_void_p()
    while len(steps) < 500:
        result = library.cuptiActivityGetNextRecord(
            ctypes.c_void_p(start), ctypes.c_size_t(valid), ctypes.byref(record))
        if result != 0:
            return steps, result
        steps.append(record.value - start)

def compare(what, valid):
    one, other = walk(real, valid), walk(fake, valid)
    print(json.dumps([what, one, other]), flush=True)

chance = random.Random(1)
for kind in kinds:
    used = fill([kind, 10, kind])
    compare(f"kind {kind}", used)
    for cut in (1, 8, fake.record_size(release, kind) - 4):
        compare(f"kind {kind} short by {cut}", used - cut)
for turn in range(20):
    compare("mixed", fill([chance.choice(kinds) for _ in range(60)]))
compare("nothing", 0)
for unknown in (250, 4000):
    compare(f"unknown kind {unknown}", fill([10, 5, unknown, 10]))
"""


def name_of(path: Path) -> str:
    return "/".join(path.parts[-5:])


@pytest.mark.parametrize("library", LIBRARIES, ids=name_of)
def test_the_real_iterator_agrees(library: Path, fake_gpu: FakeGpu) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            CHILD,
            str(library),
            str(fake_gpu.cupti),
            str(Path(__file__).parent),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode < 0 and not lines:
        pytest.skip("cuptiGetVersion of this release crashes without a driver")
    assert done.returncode == 0, done.stderr
    about = lines.pop(0)
    if about["result"] != 0:
        pytest.skip(f"this release does nothing without a driver: {about['result']}")
    if about["release"] < 0:
        pytest.skip(f"no layouts are known for CUPTI {about['version']}")
    assert len(lines) > 60
    for what, real, fake in lines:
        assert real == fake, f"{what}, CUPTI {about['version']}"
