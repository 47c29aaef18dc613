"""The demo's network without libraries: an MLP that separates two half moons.

Samples, network and gradients use lists of floats; the derivatives are the textbook's, and the
tests check them numerically.
"""

import math
import random
from collections.abc import Iterator, Sequence
from operator import mul

from fastprof.cli.demo_data import IndexedLabels, Labels, SearchedLabels, make_names

Vector = list[float]
Batch = tuple[list[Vector], list[float]]

BATCH_SIZE = 32
BATCHES_PER_EPOCH = 40
_HIDDEN = 16
#: So many that searching a name takes longer than the rest of a step.
_SAMPLES = 30_000
_NOISE = 0.1
_RATE = 0.1
_MOMENTUM = 0.9


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    total: float = sum(map(mul, a, b))
    return total


class HalfMoons:
    """Batches of noisy points of two half moons, with new points in every epoch."""

    def __init__(self, seed: int = 0, *, fixed: bool = True) -> None:
        self._random = random.Random(seed)
        self._names = make_names(_SAMPLES)
        labels = [self._random.randrange(2) for _ in self._names]
        self._labels: Labels = (IndexedLabels if fixed else SearchedLabels)(self._names, labels)

    def __len__(self) -> int:
        return BATCHES_PER_EPOCH

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(BATCHES_PER_EPOCH):
            yield self._batch()

    def _batch(self) -> Batch:
        names = self._random.choices(self._names, k=BATCH_SIZE)
        labels = [float(self._labels.label(name)) for name in names]
        return [self._point(label) for label in labels], labels

    def _point(self, label: float) -> Vector:
        angle = self._random.uniform(0.0, math.pi)
        x, y = math.cos(angle), math.sin(angle)
        if label:
            x, y = 1.0 - x, 0.5 - y
        return [self._random.gauss(x, _NOISE), self._random.gauss(y, _NOISE)]


class Linear:
    """``outputs`` weighted sums of ``inputs`` numbers, with their gradients."""

    def __init__(self, inputs: int, outputs: int, source: random.Random) -> None:
        bound = 1.0 / math.sqrt(inputs)
        self.weight = [
            [source.uniform(-bound, bound) for _ in range(inputs)] for _ in range(outputs)
        ]
        self.bias = [0.0] * outputs
        self._velocity = [[0.0] * (inputs + 1) for _ in range(outputs)]
        self._inputs: list[Vector] = []
        self.weight_gradient = [[0.0] * inputs for _ in range(outputs)]
        self.bias_gradient = [0.0] * outputs

    def forward(self, rows: list[Vector]) -> list[Vector]:
        self._inputs = rows
        return [
            [_dot(weights, row) + b for weights, b in zip(self.weight, self.bias, strict=True)]
            for row in rows
        ]

    def backward(self, gradients: list[Vector]) -> list[Vector]:
        """Set the weights' gradients; return the gradient of the inputs."""
        input_columns = list(zip(*self._inputs, strict=True))
        for i, column in enumerate(zip(*gradients, strict=True)):
            self.weight_gradient[i] = [_dot(column, inputs) for inputs in input_columns]
            self.bias_gradient[i] = sum(column)
        weight_columns = list(zip(*self.weight, strict=True))
        return [[_dot(row, column) for column in weight_columns] for row in gradients]

    def update(self) -> None:
        """Take one step of gradient descent with momentum."""
        for i, velocity in enumerate(self._velocity):
            gradient = [*self.weight_gradient[i], self.bias_gradient[i]]
            values = [*self.weight[i], self.bias[i]]
            for j, slope in enumerate(gradient):
                velocity[j] = _MOMENTUM * velocity[j] - _RATE * slope
                values[j] += velocity[j]
            self.bias[i] = values.pop()
            self.weight[i] = values


class Tanh:
    """Hyperbolic tangent of every number."""

    def __init__(self) -> None:
        self._outputs: list[Vector] = []

    def forward(self, rows: list[Vector]) -> list[Vector]:
        self._outputs = [[math.tanh(x) for x in row] for row in rows]
        return self._outputs

    def backward(self, gradients: list[Vector]) -> list[Vector]:
        return [
            [slope * (1.0 - y * y) for slope, y in zip(row, outputs, strict=True)]
            for row, outputs in zip(gradients, self._outputs, strict=True)
        ]


class Loss:
    """A loss as a number that can propagate its gradients."""

    def __init__(self, network: "Network", probabilities: Vector, labels: list[float]) -> None:
        self._network = network
        self._errors = [p - label for p, label in zip(probabilities, labels, strict=True)]
        likely = [p if label else 1.0 - p for p, label in zip(probabilities, labels, strict=True)]
        self._value = -sum(math.log(max(p, 1e-12)) for p in likely) / len(labels)

    def backward(self) -> None:
        scale = 1.0 / len(self._errors)
        self._network.backward([[error * scale] for error in self._errors])

    def item(self) -> float:
        return self._value


def _sigmoid(x: float) -> float:
    return 0.5 * (1.0 + math.tanh(0.5 * x))


class Network:
    """A multilayer perceptron with two hidden layers for a yes-or-no question."""

    def __init__(self, seed: int = 0) -> None:
        source = random.Random(seed)
        self.layers: list[Linear | Tanh] = [
            Linear(2, _HIDDEN, source),
            Tanh(),
            Linear(_HIDDEN, _HIDDEN, source),
            Tanh(),
            Linear(_HIDDEN, 1, source),
        ]

    def loss(self, batch: Batch) -> Loss:
        """Return the mean binary cross-entropy over the batch."""
        rows, labels = batch
        for layer in self.layers:
            rows = layer.forward(rows)
        return Loss(self, [_sigmoid(row[0]) for row in rows], labels)

    def backward(self, gradients: list[Vector]) -> None:
        for layer in reversed(self.layers):
            gradients = layer.backward(gradients)

    def update(self) -> None:
        for layer in self.layers:
            if isinstance(layer, Linear):
                layer.update()


class PureTask:
    """The demo's network without PyTorch."""

    description = "a multilayer perceptron on two half moons, in pure Python"

    def __init__(self, *, fixed: bool = True) -> None:
        self.batches = HalfMoons(fixed=fixed)
        self._network = Network()

    def loss(self, batch: Batch) -> Loss:
        return self._network.loss(batch)

    def update(self) -> None:
        self._network.update()
