"""Programs for the case ``truth``: lists of components that are called once in turn.

Every kind of call that a profiler may misjudge has a component with almost nothing else, beside a
loop without calls, which makes the error of its share as large as possible.  The programs were
written before the calibration was tuned, and share no code with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import workloads

Component = Callable[[int], object]


def spin(n: int) -> int:
    """A loop without a call."""
    total = 0
    for i in range(n):
        total = (total * 3 + i) & 0xFFFF
    return total


def _one(x: int) -> int:
    return x


def small_calls(n: int) -> int:
    """Nothing but calls of a function that does nothing."""
    total = 0
    for i in range(n):
        total += _one(i)
    return total


def c_calls(n: int) -> int:
    """Nothing but calls of builtins and of methods written in C."""
    items = [1, 2, 3]
    total = 0
    for _ in range(n):
        total += len(items) + items.count(2)
    return total


def big_c_call(n: int) -> int:
    """Few, long calls."""
    items = list(range(2_000))
    total = 0
    for _ in range(n):
        total += sum(items)
    return total


def _squares(n: int) -> Iterator[int]:
    for i in range(n):
        yield i * i


def generator(n: int) -> int:
    """A generator that is resumed in every iteration."""
    total = 0
    for value in _squares(n):
        total += value & 7
    return total


_MODEL = workloads.module_tree(4, 2)


def modules(n: int) -> float:
    """Module-like objects that call each other three deep."""
    x = 1.0
    for _ in range(n):
        x = _MODEL(1.0)
    return x


class _Point:
    def __init__(self, x: int, y: int) -> None:
        self.x = x
        self.y = y


def objects(n: int) -> int:
    """Objects created in a loop by a constructor written in Python."""
    total = 0
    for i in range(n):
        total += _Point(i, 1).y
    return total


class _Slotted:
    __slots__ = ("left", "right", "value")

    def __init__(self, value: int, left: object = None, right: object = None) -> None:
        self.value = value
        self.left = left
        self.right = right


def slotted(n: int) -> object:
    """A chain of objects with slots."""
    node = None
    for i in range(n):
        node = _Slotted(i, node if i & 3 else None)
    return node


class _Plain:
    pass


def plain_objects(n: int) -> int:
    """Objects without a constructor, and those of builtin types."""
    total = 0
    for i in range(n):
        thing = _Plain()
        total += thing is not None
        total += len(str(i)) + int(1.5)
    return total


def generator_expression(n: int) -> int:
    """Generator expressions that a builtin consumes."""
    total = 0
    for i in range(n // 10):
        total += sum(j * i for j in range(10))
    return total


def _scaled(value: int, *, factor: int = 1, bias: int = 0) -> int:
    return value * factor + bias


def keywords(n: int) -> int:
    """Calls with keywords."""
    total = 0
    for i in range(n):
        total += _scaled(i, factor=3, bias=1)
    return total


def _adder(amount: int) -> Callable[[int], int]:
    def add(value: int) -> int:
        return value + amount

    return add


def closures(n: int) -> int:
    """Closures, most of them called more than once."""
    total = 0
    for i in range(n // 4):
        add = _adder(i)
        total = add(total) & 0xFFFF
        total = add(total) & 0xFFFF
        total = add(total) & 0xFFFF
    return total


def containers(n: int) -> int:
    """Methods of lists, dictionaries and sets."""
    seen: dict[int, int] = {}
    stack: list[int] = []
    kinds: set[int] = set()
    for i in range(n):
        key = i & 63
        seen[key] = seen.get(key, 0) + 1
        stack.append(key)
        kinds.add(key)
        if key == 63:
            stack.pop()
    return len(stack) + len(kinds)


def strings(n: int) -> int:
    """Methods of strings."""
    text = "a,bc,d"
    total = 0
    for _ in range(n):
        words = text.split(",")
        if "-".join(words).startswith("a"):
            total += len(words[1].upper())
    return total


def comprehensions(n: int) -> int:
    """Nested comprehensions."""
    total = 0
    for _ in range(n // 8):
        rows = [[i * j for i in range(2)] for j in range(4)]
        total += rows[3][1] + {j: row[0] for j, row in enumerate(rows)}[2]
    return total


class _Celsius:
    def __init__(self) -> None:
        self._degrees = 20

    @property
    def kelvin(self) -> int:
        return self._degrees + 273

    @property
    def doubled(self) -> int:
        return self.kelvin * 2


def properties(n: int) -> int:
    """Properties, one of which reads another."""
    thing = _Celsius()
    total = 0
    for _ in range(n // 2):
        total += thing.doubled
    return total


def _fib(n: int) -> int:
    return n if n < 2 else _fib(n - 1) + _fib(n - 2)


def recursion(n: int) -> int:
    """A function that calls itself."""
    total = 0
    for _ in range(n // 177):  # calls of _fib(10)
        total += _fib(10)
    return total


class _Parameter:
    def __init__(self, value: float) -> None:
        self.value = value
        self.grad = 0.0


class _Linear:
    def __init__(self, size: int) -> None:
        self.weights = [_Parameter(0.01 * i) for i in range(size)]
        self.training = True

    def __call__(self, batch: list[float]) -> list[float]:
        return self.forward(batch, scale=1.0)

    def forward(self, batch: list[float], *, scale: float) -> list[float]:
        out = []
        for x in batch:
            out.append(sum(w.value * x for w in self.weights) * scale)
        return out


class _Samples:
    def __init__(self, count: int) -> None:
        self.rows = [float(i % 7) for i in range(count)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[float, float]:
        x = self.rows[index]
        return x, max(0.0, x - 1.0)


def _batches(samples: _Samples, size: int) -> Iterator[dict[str, list[float]]]:
    for start in range(0, len(samples), size):
        rows = [samples[i] for i in range(start, min(start + size, len(samples)))]
        yield {"x": [r[0] for r in rows], "y": [r[1] for r in rows]}


class _Sgd:
    def __init__(self, parameters: list[_Parameter], *, lr: float) -> None:
        self.parameters = parameters
        self.state: dict[int, dict[str, float]] = {}
        self.lr = lr

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = 0.0

    def step(self) -> None:
        for i, p in enumerate(self.parameters):
            state = self.state.setdefault(i, {"momentum": 0.0})
            state["momentum"] = 0.9 * state["momentum"] + p.grad
            p.value -= self.lr * state["momentum"]


class _Loss:
    def __init__(self, errors: list[float]) -> None:
        self.errors = errors

    @property
    def value(self) -> float:
        return sum([e * e for e in self.errors]) / len(self.errors)

    def backward(self, layer: _Linear, batch: list[float]) -> None:
        for x, e in zip(batch, self.errors, strict=True):
            for w in layer.weights:
                w.grad += e * x


_SAMPLES = _Samples(64)


def training(n: int) -> float:
    """A training loop: samples, batches, layers, loss, optimizer, log."""
    layer = _Linear(8)
    optimizer = _Sgd(layer.weights, lr=1e-4)
    log: dict[str, list[float]] = {}
    for _ in range(n):
        for batch in _batches(_SAMPLES, 16):
            optimizer.zero_grad()
            out = layer(batch["x"])
            loss = _Loss([o - y for o, y in zip(out, batch["y"], strict=True)])
            loss.backward(layer, batch["x"])
            optimizer.step()
            log.setdefault("loss", []).append(loss.value)
    return log["loss"][-1]


#: Name of the program -> components and how often each repeats: about 0.4 ms each without a
#: profiler, short enough to fit between two interruptions on a busy machine.
PROGRAMS: dict[str, tuple[tuple[Component, int], ...]] = {
    "Python calls": ((spin, 5_000), (small_calls, 7_500)),
    "C calls": ((spin, 5_000), (c_calls, 3_750)),
    "long C calls + modules": ((big_c_call, 17), (modules, 75)),
    "generator": ((spin, 5_000), (generator, 7_500)),
    "generator expressions": ((spin, 5_000), (generator_expression, 6_000)),
    "objects": ((spin, 5_000), (objects, 3_000)),
    "objects with slots": ((spin, 5_000), (slotted, 2_500)),
    "objects without __init__": ((spin, 5_000), (plain_objects, 1_250)),
    "keywords": ((spin, 5_000), (keywords, 5_000)),
    "closures": ((spin, 5_000), (closures, 5_000)),
    "lists, dicts, sets": ((spin, 5_000), (containers, 2_500)),
    "strings": ((spin, 5_000), (strings, 1_000)),
    "comprehensions": ((spin, 5_000), (comprehensions, 2_000)),
    "properties": ((spin, 5_000), (properties, 5_000)),
    "recursion": ((spin, 5_000), (recursion, 5_000)),
    "training loop": ((spin, 5_000), (training, 3)),
    "everything": (
        (spin, 5_000),
        (small_calls, 5_000),
        (c_calls, 3_000),
        (big_c_call, 12),
        (generator, 5_000),
        (modules, 50),
        (objects, 2_500),
        (generator_expression, 5_000),
        (keywords, 4_000),
        (closures, 4_000),
        (strings, 1_000),
        (training, 3),
    ),
}
