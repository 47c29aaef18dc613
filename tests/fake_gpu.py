"""A recorder that only lists its GPU calls, for the tests of the session."""

from __future__ import annotations

import types
from typing import Any

from fastprof.capture.options import Recorder


class FakeGpu:
    """Replaces the GPU part of the recorder: gives answers, and lists the calls.

    ``answers`` are the states that ``gpu_start`` returns one after another; the last one repeats.
    ``broken`` are names of methods that raise.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers = ["on"]
        self.reason = ""
        self.broken: set[str] = set()

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def _called(self, name: str, *args: Any) -> None:
        self.calls.append((name, *args))
        if name in self.broken:
            raise OSError(f"{name} is broken")

    def gpu_start(
        self, cupti_paths, driver_path, /, *, initialise, tier, nvml, takes_slot
    ) -> dict[str, Any]:
        self._called("start", tuple(cupti_paths), driver_path, initialise, tier, nvml)
        state = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {"state": state, "reason": self.reason, "tier": None}

    def gpu_stop(self, timeout_s: float = 2.0) -> None:
        self._called("stop", timeout_s)

    def gpu_pause(self, why: str) -> None:
        self._called("pause", why)

    def gpu_resume(self) -> None:
        self._called("resume")

    def gpu_flush(self, timeout_s: float) -> bool:
        self._called("flush", timeout_s)
        return True


def recorder_with(fake: FakeGpu) -> type[Recorder]:
    """Return a recorder class whose GPU part is ``fake``."""

    class WithFakeGpu(Recorder):
        def gpu_start(self, *args, **kwargs):
            return fake.gpu_start(*args, **kwargs)

        def gpu_stop(self, *args):
            fake.gpu_stop(*args)

        def gpu_pause(self, why):
            fake.gpu_pause(why)

        def gpu_resume(self):
            fake.gpu_resume()

        def gpu_flush(self, timeout_s):
            return fake.gpu_flush(timeout_s)

        def enable(self, *args, **kwargs):
            fake.calls.append(("enable",))
            super().enable(*args, **kwargs)

        def disable(self):
            fake.calls.append(("disable",))
            super().disable()

        def start_sections(self):
            fake.calls.append(("start_sections",))
            super().start_sections()

        def stop_sections(self):
            fake.calls.append(("stop_sections",))
            super().stop_sections()

        def export(self, **wanted):
            return {**super().export(**wanted), "gpu": None}

    return WithFakeGpu


def found(tool: str | None = None, driver: str | None = "libcuda.so.1") -> types.ModuleType:
    """Return a stand-in for ``fastprof.capture.gpu_find``."""
    module = types.ModuleType("gpu_find")
    module.attached_tool = lambda: tool
    module.driver_path = lambda: driver
    module.nvml_path = lambda: "libnvidia-ml.so.1"
    module.takes_slot = lambda: True
    module.cupti_paths = lambda driver, *, initialise: ["libcupti.so.13"]
    return module
