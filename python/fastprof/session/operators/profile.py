"""Options of torch.profiler: what to record, and in which steps."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from fastprof.capture.options import check_int
from fastprof.fileio import resolve_directory
from fastprof.session.output.files import Pathish
from fastprof.session.schedule import Schedule

SAVE_DIR = "fastprof_out"

_SCHEDULE_KEYS = ("enable_schedule", *(f.name for f in fields(Schedule)))
_FLAGS = (
    "enable_cpu_profiling", "record_shapes", "profile_memory", "with_stack", "with_flops",
    "with_modules", "align_ranks",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorProfile:
    """Windows of steps in which torch.profiler records operators.

    Nothing is recorded unless ``enable_cpu_profiling`` or ``enable_cuda_profiling`` is on, and only
    in a program that has imported torch.  Steps are counted from 0, and each cycle of the schedule
    makes separate files; see ``docs/operators.md``.

    Args:
        enable_cpu_profiling: record operators on the host; where CUDA is available, kernels and
            copies, too, since torch.profiler without them harms the program's later profiles.
        enable_cuda_profiling: record kernels and copies; ``"auto"``: if CUDA is available.  True
            without CUDA gives a warning, and the rest is recorded.
        record_shapes: distinguish calls with different input shapes.
        profile_memory: record the memory that operators allocate and free.
        with_stack: record Python's stack in the trace.  Before Python 3.12 functions
            cannot be recorded at the same time and are left out of these windows.
        with_flops: estimate floating point operations.
        with_modules: record names of modules (TorchScript only).
        max_events: the limit of a window's operator calls, nested ones included; each takes torch
            about 20 us.  A window ends before the step that would exceed it, and the report says
            so. 0: no limit.
        row_limit: rows in the files' tables; -1: all.
        save_dir: directory for the files, created if needed; None: no files.
        schedule: the windows; None: the whole run is one.  In the warm-up steps torch.profiler is
            on, and its records are dropped.
        align_ranks: call ``torch.distributed.barrier()`` at the begin of a window.  Only if all
            ranks do so.
        on_trace_ready: called with the ``torch.profiler.profile`` after each window.

    Raises:
        TypeError, ValueError: a value of the wrong type or out of range.
        NotADirectoryError: ``save_dir`` is a file.
    """

    enable_cpu_profiling: bool = False
    enable_cuda_profiling: bool | Literal["auto"] = False
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False
    max_events: int = 50_000
    row_limit: int = 50
    save_dir: Pathish | None = SAVE_DIR
    schedule: Schedule | None = None
    align_ranks: bool = False
    on_trace_ready: Callable[[Any], object] | None = None

    def __post_init__(self) -> None:
        for name in _FLAGS:
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise TypeError(f"operators: {name} is {value!r:.80}, expected True or False")
        cuda = self.enable_cuda_profiling
        if not isinstance(cuda, bool) and cuda != "auto":
            raise ValueError(
                f"operators: enable_cuda_profiling is {cuda!r:.80}, expected True, False or 'auto'"
            )
        check_int("operators: max_events", self.max_events, low=0)
        if self.row_limit != -1:
            check_int("operators: row_limit", self.row_limit, low=1)
        if self.on_trace_ready is not None and not callable(self.on_trace_ready):
            raise TypeError(
                f"operators: on_trace_ready is {self.on_trace_ready!r:.80}, expected a function"
            )
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise TypeError(
                f"operators: schedule is {self.schedule!r:.80}, expected fastprof.Schedule or None"
            )
        if self.save_dir is not None:
            if not isinstance(self.save_dir, (str, os.PathLike)):
                raise TypeError(f"operators: save_dir is {self.save_dir!r:.80}, expected a path")
            # The program may change its directory: resolve the path now.
            object.__setattr__(self, "save_dir", resolve_directory(self.save_dir))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "OperatorProfile":
        """Return a value from a configuration: keys as above, the schedule's below ``schedule``.

        ``{"with_stack": True, "schedule": {"active": 5}}`` and ``{"with_stack": "true",
        "schedule.active": "5"}``, as a command line has it, are the same.  The schedule's keys are
        those of :class:`~fastprof.Schedule` and ``enable_schedule``; unless that is true, the whole
        run is one window.

        Raises:
            TypeError, ValueError: an unknown key, or an invalid value.
        """
        values: dict[str, Any] = {}
        steps: dict[str, Any] = {}
        for key, value in config.items():
            if key == "schedule" and isinstance(value, Mapping):
                steps.update((_step_key(f"schedule.{name}"), v) for name, v in value.items())
            elif key.startswith("schedule."):
                steps[_step_key(key)] = value
            elif key in _NAMES and key != "schedule":
                values[key] = _from_text(key, value)
            else:
                raise _unknown(key)
        steps = {name: _from_text(name, value) for name, value in steps.items()}
        enabled = steps.pop("enable_schedule", False)
        if not isinstance(enabled, bool):
            raise TypeError(
                f"operators: enable_schedule is {enabled!r:.80}, expected True or False"
            )
        # Checked even if it is not used.
        schedule = Schedule(**steps)
        return cls(**values, schedule=schedule if enabled else None)

    @classmethod
    def from_profile_kwargs(cls, handler: Any) -> "OperatorProfile":
        """Return a value from Accelerate's ``ProfileKwargs``, or a mapping with its fields.

        ``activities`` None means torch.profiler's default: the CPU, and CUDA if it is available.
        Without ``output_trace_dir`` there are no files.

        Raises:
            TypeError, ValueError: a field's value is not supported.
        """

        def get(name: str) -> Any:
            if isinstance(handler, Mapping):
                return handler.get(name)
            return getattr(handler, name, None)

        activities = get("activities")
        names = ["cpu", "cuda"] if activities is None else list(activities)
        unknown = [name for name in names if name not in ("cpu", "cuda")]
        if unknown:
            raise ValueError(f"activities has {unknown[0]!r:.80}, expected 'cpu' or 'cuda'")
        steps = get("schedule_option")
        schedule = None
        if steps is not None:
            # As in torch.profiler.schedule, where a cycle repeats until the end.
            values = {"skip_first": 0, "repeat": 0, **steps}
            if values.pop("skip_first_wait", 0):
                raise ValueError("schedule_option has skip_first_wait, which is not supported")
            for name in values:
                if name not in _SCHEDULE_KEYS[1:]:
                    raise ValueError(f"schedule_option has {name!r}, expected {_SCHEDULE_KEYS[1:]}")
            schedule = Schedule(**values)
        return cls(
            enable_cpu_profiling="cpu" in names,
            enable_cuda_profiling="auto" if activities is None else "cuda" in names,
            save_dir=get("output_trace_dir"),
            on_trace_ready=get("on_trace_ready"),
            schedule=schedule,
            **{name: bool(get(name)) for name in _SHARED},
        )


#: Fields with the same name in Accelerate.
_SHARED = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_NAMES = tuple(f.name for f in fields(OperatorProfile))


def _step_key(key: str) -> str:
    name = key.removeprefix("schedule.")
    if name not in _SCHEDULE_KEYS:
        raise _unknown(key)
    return name


def _unknown(key: str) -> ValueError:
    known = ", ".join(n for n in _NAMES if n != "schedule")
    steps = ", ".join(f"schedule.{n}" for n in _SCHEDULE_KEYS)
    return ValueError(f"operators: no option {key!r:.80}; there are: {known}, {steps}")


def _from_text(name: str, value: Any) -> Any:
    """Return the value of a text from the command line."""
    if not isinstance(value, str) or name == "save_dir":
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        return int(value)
    except ValueError:
        return value
