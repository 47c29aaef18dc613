"""Plays a replay file back through fastprof's collector.

    FASTPROF_CUDA_DRIVER=FAKE_DRIVER python tests/gpu/replay/player.py FILE PLAYER.so [TIER]

Prints the tables of the recording as JSON.  Callbacks and buffers come at their recorded times, all
in one section of one thread.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import replay_file
from replay_file import KERNEL, KERNEL_NAME, Call, Replay

SECTION = "replayed"


class Player:
    """The replacement of libcupti, loaded into this process."""

    def __init__(self, library: Path, replay: Replay) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.player_now.restype = ctypes.c_int64
        self.library.player_begin.argtypes = [ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64]
        self.library.player_give.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32]
        self.replay = replay
        self._names = [ctypes.create_string_buffer(name.encode()) for name in replay.names]
        self.library.player_begin(replay.cupti_version, replay.clock_ns, replay.dropped)
        for kind, size in replay.sizes.items():
            self.library.player_size(kind, size)

    def play(self) -> None:
        """Play in real time, until the clock is past the last record."""
        for at, action in self._script():
            self._wait_until(at)
            action()
        self._wait_until(self._last_ns() + 1_000_000)

    def _script(self) -> list[tuple[int, Callable[[], None]]]:
        # Keep a call's callbacks together: here all calls share one thread, and would be mixed up.
        first: dict[tuple[int, int], int] = {}
        for call in self.replay.calls:
            first.setdefault((call.thread, call.correlation), call.at)
        calls = sorted(self.replay.calls, key=lambda c: first[c.thread, c.correlation])
        script = [
            (first[c.thread, c.correlation], lambda c=c: self._call(c))  # type: ignore[misc]
            for c in calls
        ]
        script += [(b.at, lambda b=b: self._give(b)) for b in self.replay.buffers]  # type: ignore[misc]
        return sorted(script, key=lambda item: item[0])

    def _call(self, call: Call) -> None:
        self.library.player_call(
            call.domain, call.cbid, call.site, ctypes.c_uint32(call.correlation)
        )

    def _give(self, buffer: replay_file.Buffer) -> None:
        records = self._with_names(buffer.records)
        for _ in range(1000):
            if self.library.player_give(records, len(records), buffer.stream) == 0:
                return
            time.sleep(0.01)
        raise RuntimeError("fastprof's collector has no room for a buffer")

    def _with_names(self, records: bytes) -> bytes:
        out = bytearray(records)
        at = 0
        while at < len(out):
            kind = int.from_bytes(out[at : at + 4], "little")
            if kind == KERNEL:
                number = struct.unpack_from("<Q", out, at + KERNEL_NAME)[0]
                address = ctypes.addressof(self._names[number - 1]) if number else 0
                struct.pack_into("<Q", out, at + KERNEL_NAME, address)
            at += self.replay.sizes[kind]
        return bytes(out)

    def _last_ns(self) -> int:
        ends = [self.replay.clock_ns]
        for record in replay_file.records(self.replay):
            kind = int.from_bytes(record[:4], "little")
            if kind in replay_file.TIMES:
                ends.append(struct.unpack_from("<Q", record, replay_file.TIMES[kind] + 8)[0])
        return max(ends)

    def _wait_until(self, at: int) -> None:
        left = at - self.library.player_now()
        if left > 0:
            time.sleep(left / 1e9)


def play(path: Path, library: Path, driver: str, tier: str) -> dict[str, Any]:
    """Return the tables of a recording of the replay."""
    from fastprof import profile_section
    from fastprof._core import Recorder

    player = Player(library, replay_file.load(path))
    recorder = Recorder(skip_steps=0)
    recorder.start_sections()
    answer = recorder.gpu_start([str(library)], driver, initialise=True, tier=tier, period_s=0.1)
    if answer["state"] != "on":
        raise RuntimeError(str(answer))
    with profile_section(SECTION):
        player.play()
    recorder.stop_sections()
    recorder.gpu_stop()
    return recorder.export()


if __name__ == "__main__":
    file, stand_in, *tier = sys.argv[1:]
    tables = play(
        Path(file), Path(stand_in), os.environ["FASTPROF_CUDA_DRIVER"], *(tier or ["callbacks"])
    )
    print(json.dumps(tables["gpu"]))
