"""Answers questions in a program: `python PROGRAM.py DEVICE QUESTION...`.

Each answer is a JSON file in the folder $FIRST_DAY_ANSWERS, written as soon as it is known, so that
it survives a later failure of the process.  Without that variable the program prints its answers.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from devices import NotAsked

FOLDER = "FIRST_DAY_ANSWERS"


def save(path: Path, answer: dict[str, Any]) -> None:
    """Write a whole file or none, and wait until it is on the disk."""
    beside = path.with_suffix(".part")
    with beside.open("w", encoding="utf-8") as stream:
        json.dump(answer, stream, indent=1, default=str)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(path)


def ask(program: Callable[[Any], Any], open_device: Callable[[], Any]) -> dict[str, Any]:
    """Return a program's answer as in a saved file."""
    begin = time.monotonic()
    try:
        found: dict[str, Any] = {"status": "answered", "answer": program(open_device())}
    except NotAsked as why:
        found = {"status": "not asked", "reason": str(why)}
    except Exception as error:
        last = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {last[-1] if last else ''}"
        found = {"status": "failed", "reason": reason, "traceback": traceback.format_exc()}
    return found | {"seconds": round(time.monotonic() - begin, 3)}


def main(programs: Iterable[Callable[[Any], Any]], make: Callable[[str], Any] = str) -> None:
    """Answer the questions of the command line; ``make`` opens the device, once."""
    by_name = {program.__name__: program for program in programs}
    device_name, *names = sys.argv[1:]
    opened: list[Any] = []

    def open_device() -> Any:
        if not opened:
            opened.append(make(device_name))
        return opened[0]

    for name in names:
        answer = {"question": name, "device": device_name, **ask(by_name[name], open_device)}
        if FOLDER in os.environ:
            save(Path(os.environ[FOLDER]) / f"{name}.json", answer)
        else:
            print(json.dumps(answer, default=str))
