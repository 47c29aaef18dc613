"""Small loops and loggers for the tests of metrics."""

from __future__ import annotations

import time

from fastprof import profile_section


class Recording:
    """A logger that keeps its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, float], int]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.calls.append((dict(metrics), step))

    @property
    def steps(self) -> list[int]:
        return [step for _, step in self.calls]

    @property
    def keys(self) -> set[str]:
        return {key for metrics, _ in self.calls for key in metrics}


def slow(items, seconds: float):
    """Yield ``items``, each after a pause."""
    for item in items:
        time.sleep(seconds)
        yield item


def train_step(*, forward: float = 0, backward: float = 0, optimizer: float = 0) -> None:
    """Run the three sections of a step, each for at least the given seconds."""
    with profile_section("forward"):
        time.sleep(forward)
    with profile_section("backward"):
        time.sleep(backward)
    with profile_section("optimizer"):
        time.sleep(optimizer)


def train_keys(loader: str, *phases: str) -> set[str]:
    phases = phases or ("data", "forward", "backward", "optimizer")
    return {f"profile/train/dl_{loader}/time_{phase}_ms" for phase in phases}


def val_keys(loader: str) -> set[str]:
    return {f"profile/val/dl_{loader}/time_{phase}_ms" for phase in ("data", "forward")}


GLOBAL_WAIT = "profile/train/time_batch_wait_ms"
