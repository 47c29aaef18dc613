"""Records the data that CUPTI delivers to fastprof during a program, as a replay file.

    python tests/gpu/replay/record.py OUT.json.gz --cupti LIBCUPTI [--device NAME] -- PROGRAM ...

PROGRAM is any command that uses fastprof with the GPU, such as `python train.py`.  LIBCUPTI is the
real library (the program must load the same one, or fastprof sees nothing) or the fake.  Needs a C
compiler.  The file contains no data about the machine except the kernels' names.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import build_fake
import replay_file
from replay_file import KERNEL, KERNEL_NAME, Buffer, Call, Replay

HERE = Path(__file__).resolve().parent

TIME, NAME, CALL, BUFFER, STEP, DROPPED, VERSION = range(1, 8)
#: Functions that a release may lack.
OPTIONAL = (
    "cuptiActivityPushExternalCorrelationId",
    "cuptiActivityPopExternalCorrelationId",
    "cuptiActivityEnableRuntimeApi",
    "cuptiActivityEnableDriverApi",
    "cuptiGetGraphNodeId",
)


def build_shim(folder: Path, real: Path) -> Path:
    """Build the shim, without the functions that ``real`` lacks."""
    library = ctypes.CDLL(str(real))
    missing = [name for name in OPTIONAL if not hasattr(library, name)]
    # A new warning of another compiler must not prevent a rare recording.
    options = ["-Wno-error", *(f"-D{name}=hidden_{name}" for name in missing)]
    return build_fake.compile_c([HERE / "shim.c"], folder / "shim.so", options)


def _entries(log: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 8 <= len(log):
        kind, length = struct.unpack_from("<II", log, at)
        if at + 8 + length > len(log):
            return  # the process was killed while writing
        yield kind, log[at + 8 : at + 8 + length]
        at += 8 + length


def _numbered(records: bytes, sizes: dict[int, int], numbers: dict[int, int]) -> bytes:
    """Return the records with numbers of names instead of addresses; cut off any other data."""
    out = bytearray(records)
    at = 0
    while at + 4 <= len(out):
        kind = int.from_bytes(out[at : at + 4], "little")
        if kind not in sizes or at + sizes[kind] > len(out):
            break
        if kind == KERNEL:
            address = struct.unpack_from("<Q", out, at + KERNEL_NAME)[0]
            struct.pack_into("<Q", out, at + KERNEL_NAME, numbers.get(address, 0))
        at += sizes[kind]
    return bytes(out[:at])


def read_log(log: bytes, about: Mapping[str, object]) -> Replay:
    """Return a replay from the shim's log; ValueError if nothing was recorded."""
    version = clock_ns = dropped = 0
    sizes: dict[int, int] = {}
    names: list[str] = []
    numbers: dict[int, int] = {}
    threads: dict[int, int] = {}
    calls: list[Call] = []
    raw: list[tuple[int, int, bytes, dict[int, int]]] = []
    for kind, body in _entries(log):
        if kind == TIME:
            clock_ns = struct.unpack("<Q", body)[0]
        elif kind == NAME:
            names.append(body[8:].decode("utf-8", "backslashreplace"))
            numbers[struct.unpack_from("<Q", body)[0]] = len(names)
        elif kind == CALL:
            at, thread, *rest, _ = replay_file.CALL.unpack(body)
            calls.append(Call(at, threads.setdefault(thread, len(threads)), *rest))
        elif kind == BUFFER:
            at, stream = struct.unpack_from("<QQ", body)
            raw.append((at, stream, body[16:], dict(numbers)))
        elif kind == STEP:
            of, size = struct.unpack("<II", body)
            sizes[of] = size
        elif kind == DROPPED:
            dropped += struct.unpack("<Q", body)[0]
        elif kind == VERSION:
            version = struct.unpack("<I", body)[0]
    if not raw:
        raise ValueError("CUPTI gave no records: did the program use fastprof with the GPU?")
    buffers = [Buffer(at, stream, _numbered(r, sizes, known)) for at, stream, r, known in raw]
    replay = Replay(dict(about), version, clock_ns, sizes, names, calls, buffers, dropped, {})
    replay.expected.update(replay_file.totals(replay))
    return replay


def record(
    command: Sequence[str],
    cupti: Path,
    about: Mapping[str, object],
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> tuple[Replay, subprocess.CompletedProcess[str]]:
    """Run a command with the shim between fastprof and ``cupti``; ``timeout``: in seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "log"
        more = {
            "FASTPROF_CUPTI": str(build_shim(folder, cupti)),
            "FASTPROF_SHIM_REAL": str(cupti),
            "FASTPROF_SHIM_LOG": str(log),
        }
        environment = {**(os.environ if env is None else env), **more}
        done = subprocess.run(
            command,
            check=False,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=timeout,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the program ended with {done.returncode}")
        return read_log(log.read_bytes() if log.exists() else b"", about), done


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--cupti", type=Path, required=True, help="the library to record")
    parser.add_argument("--device", default="unknown", help="what the records come from")
    parser.add_argument("command", nargs="+", help="the program, after --")
    arguments = parser.parse_args(argv)
    try:
        replay, done = record(arguments.command, arguments.cupti, {"device": arguments.device})
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.write(done.stdout)
    replay_file.save(replay, arguments.out)
    print(f"{arguments.out}: {len(replay.buffers)} buffers, {arguments.out.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
