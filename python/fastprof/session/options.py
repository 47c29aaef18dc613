"""Options of a :class:`~fastprof.Profiler`, checked before anything starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastprof.capture.options import RecorderOptions, check_int
from fastprof.session.gpu.memory import MODES, MemoryMode
from fastprof.session.operators.profile import OperatorProfile
from fastprof.session.output.files import Pathish
from fastprof.session.output.trace import TraceOptions
from fastprof.session.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of one run; :class:`~fastprof.Profiler` documents them.

    Raises:
        TypeError, ValueError: a value of the wrong type or out of range.
    """

    functions: bool | Literal["auto"]
    gpu: bool | Literal["auto"]
    memory: MemoryMode
    nvtx: bool | Literal["auto"]
    sync: bool | Literal["cuda"]
    logger: Any
    log_every: int | None
    schedule: Schedule | None
    overhead: float
    operators: OperatorProfile | None
    trace: TraceOptions | None
    output: Pathish | Sequence[Pathish] | None
    ranks: bool | Literal["auto"]
    skip_first: int
    recorder: RecorderOptions

    def __post_init__(self) -> None:
        for name in ("functions", "gpu", "nvtx", "ranks"):
            _one_of(name, getattr(self, name), (True, False, "auto"))
        _one_of("memory", self.memory, MODES)
        _one_of("sync", self.sync, (True, False, "cuda"))
        if self.log_every is not None:
            check_int("log_every", self.log_every, low=0)
        check_int("skip_first", self.skip_first, low=0)
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise TypeError(
                f"schedule is {type(self.schedule).__name__}, expected fastprof.Schedule"
            )
        if self.operators is not None and not isinstance(self.operators, OperatorProfile):
            raise TypeError(
                f"operators is {type(self.operators).__name__}, expected fastprof.OperatorProfile"
            )


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    # 1 == True, but only True itself is allowed.
    if not any(value is item or (isinstance(item, str) and value == item) for item in allowed):
        raise ValueError(f"{name} is {value!r:.80}, expected one of {allowed}")
