"""The machine, the output of doctor, and replay files: `python basics.py DEVICE QUESTION...`."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "replay"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import answering
import devices
from devices import NotAsked

HERE = Path(__file__).resolve().parent


def machine(device_name: str) -> dict[str, Any]:
    """Describe this machine without fastprof."""
    found: dict[str, Any] = {
        "python": sys.version,
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "device_files": sorted(str(path) for path in Path("/dev").glob("nvidia*")),
    }
    if shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True, timeout=30)
        found["nvidia-smi"] = done.stdout + done.stderr
    if device_name == "torch":
        device = devices.Torch()
        torch = device.torch
        found["torch"] = torch.__version__
        found["cuda"] = torch.version.cuda
        found["device"] = torch.cuda.get_device_properties(0).name
        found["properties"] = str(torch.cuda.get_device_properties(0))
        found["cupti"] = device.cupti_path()
    else:
        devices.Simulated()
        found["device"] = "simulation"
    return found


def doctor(device_name: str) -> dict[str, Any]:
    """Return the output of ``fastprof doctor``."""
    command = [sys.executable, "-m", "fastprof", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    return {"status": done.returncode, "stdout": done.stdout, "stderr": done.stderr[-4000:]}


def _replay(device_name: str, program: str) -> dict[str, Any]:
    """Record with a shim between fastprof and CUPTI; keep the file in any case."""
    compiler = os.environ.get("CC", "cc").split()[0]
    if shutil.which(compiler) is None:
        raise NotAsked(f"there is no C compiler ({compiler}) to build the shim with")
    import record
    import replay_file

    cupti = devices.open_device(device_name).cupti_path()
    command = [sys.executable, str(HERE / "child.py"), device_name, program]
    if device_name == "simulated":
        # fakegpu searches the simulated device in the library itself.
        command[1:1] = [str(HERE / "behind_shim.py")]
    about = {"device": device_name, "program": program}
    env = {name: value for name, value in os.environ.items() if name != answering.FOLDER}
    replay, done = record.record(command, Path(cupti), about, env, timeout=50)
    folder = Path(os.environ.get(answering.FOLDER, "."))
    path = folder / f"{device_name}-{program}.json.gz"
    replay_file.save(replay, path)
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer["status"] != "answered":
        raise RuntimeError(answer["reason"])
    return {
        "file": path.name,
        "buffers": len(replay.buffers),
        "delivered": replay_file.totals(replay),
        "recorded": replay_file.recorded_totals(answer["answer"]["gpu"]),
    }


def replay_callbacks(device_name: str) -> dict[str, Any]:
    return _replay(device_name, "everything")


def replay_external(device_name: str) -> dict[str, Any]:
    return _replay(device_name, "everything_held")


if __name__ == "__main__":
    answering.main([machine, doctor, replay_callbacks, replay_external])
