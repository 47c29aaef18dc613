"""Records the committed files again: `python tests/gpu/replay/make_fixtures.py`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import build_fake
import replay_file
import test_replay
from fake_handles import FakeGpu

HERE = Path(__file__).resolve().parent


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build_fake.build_module(folder)
        build = (build_fake.build_cupti, build_fake.build_cuda, build_fake.build_nvml)
        fake = FakeGpu(folder, *(one(folder) for one in build))
        for release in test_replay.RELEASES:
            for tier in ("callbacks", "external"):
                replay, _ = test_replay.recorded(fake, tier, release)
                path = HERE / "fixtures" / f"simulated-{release}-{tier}.json.gz"
                replay_file.save(replay, path)
                print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
