"""Replaces torch's CUDA by the simulated device, for unchanged programs.

Python imports this file automatically if its folder is in PYTHONPATH.  The CPU computes the
numbers; the fake gets the launches of the first day's programs: fills, products, spins, graphs,
copies to the device, and the kernels of linear layers and their backward.  torch's own code that
initialises CUDA and runs its queued calls is unchanged.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

LAUNCHING = {"fill_", "mul_", "add_", "linear", "gelu", "square", "sum", "mean", "zeros"}


def replace_cuda(torch: Any) -> None:
    import fakegpu

    spun = [0]  # ns launched so far; the time of an event

    def sleep(cycles: int) -> None:
        spun[0] += cycles // 2  # at 2 GHz
        fakegpu.launch("spin_kernel", cycles // 2)

    class Event:
        def __init__(self, enable_timing: bool = False) -> None:
            self.at = 0

        def record(self) -> None:
            self.at = spun[0]

        def elapsed_time(self, other: Event) -> float:
            return (other.at - self.at) / 1e6

    class Nothing:
        """A stream and its context."""

        def __init__(self, *_: object) -> None: ...

        def wait_stream(self, stream: object) -> None: ...

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    class CUDAGraph:
        made: Any = None

        def replay(self) -> None:
            fakegpu.replay(self.made)

    class Capture:
        def __init__(self, graph: CUDAGraph) -> None:
            self.graph = graph

        def __enter__(self) -> None:
            fakegpu.capture_begin()

        def __exit__(self, *_: object) -> None:
            self.graph.made = fakegpu.instantiate(fakegpu.capture_end())

    class Properties:
        name, uuid, major, minor, total_memory = "Fake H200", "0", 9, 0, 1 << 37

    class OnTheFake(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            named = [isinstance(a, str) and a == "cuda" for a in args]
            to_device = any(named) or str(kwargs.get("device", "")).startswith("cuda")
            if to_device:
                torch.cuda._lazy_init()
                args = tuple("cpu" if is_cuda else a for a, is_cuda in zip(args, named))
                kwargs = {k: "cpu" if k == "device" else v for k, v in kwargs.items()}
            kwargs.pop("pin_memory", None)
            name = getattr(func, "__name__", "")
            if to_device and name == "rand":
                kwargs["generator"] = torch.cuda.default_generators[0]
            if name == "to" and to_device:
                fakegpu.memcpy("HtoD", args[0].nbytes or 1)
            elif name == "backward":
                engine.run_backward(["dgrad", "wgrad"], duration_ns=700)
            elif torch.cuda._initialized and name in LAUNCHING:
                fakegpu.launch(f"{name}_kernel", 1)
            return func(*args, **kwargs)

    engine = fakegpu.Engine()
    cuda = torch.cuda
    torch._C._cuda_getDeviceCount = lambda: 1
    torch._C._cuda_getArchFlags = lambda: "sm_90"
    torch._C._cuda_getDevice = torch._C._cuda_getCurrentRawStream = lambda *_: 0
    torch._C._cuda_init = fakegpu.init
    torch.version.cuda = "13.0"
    cuda._cudart = object()
    cuda.default_generators = (torch.Generator(),)
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 1
    cuda.initial_seed = lambda: cuda.default_generators[0].initial_seed()
    cuda.synchronize = lambda *_: fakegpu.synchronize()
    cuda.mem_get_info = lambda *_: (1 << 36, 1 << 37)
    cuda.get_device_properties = lambda *_: Properties()
    cuda.get_device_capability = lambda *_: (9, 0)
    cuda.current_stream = lambda *_: Nothing()
    cuda.Stream = cuda.stream = Nothing
    cuda._sleep, cuda.Event, cuda.CUDAGraph, cuda.graph = sleep, Event, CUDAGraph, Capture
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_: self
    torch.Tensor.pin_memory = lambda self, *_: self
    OnTheFake().__enter__()


class Finder:
    """Replaces CUDA as soon as torch has been imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:

        if name != "torch":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                replace_cuda(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]
