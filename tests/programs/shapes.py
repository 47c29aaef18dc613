"""Small training programs with the shapes of public ones.

Each naps in place of work, and returns the expected places of the naps: their number by the
sections around them ("" for none), and by phase of the run.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from programs.naps import SGD, Items, Naps, Net, loader


class Truth(NamedTuple):
    #: (sections around it joined by "/", name of the nap) -> number of naps.
    naps: dict[tuple[str, str], int]
    #: Number of entries of each section.
    sections: dict[str, int]
    steps: int
    #: (phase of the run, name of the nap) -> number, for the relevant naps.
    run: dict[tuple[str, str], int]
    #: (split, name, batches)
    loaders: set[tuple[str, str, int]] = set()


def nanogpt(nap: Naps) -> Truth:
    """Fetches the next batch between loss and backward; sometimes estimates losses."""

    class GPT(Net):
        def forward(self, x: Any, y: Any = None) -> Any:  # type: ignore[override]
            logits = super().forward(x)
            return logits, F.cross_entropy(logits, y)

    def get_batch() -> Any:
        nap("get_batch")
        return torch.ones(2, 4), torch.zeros(2, dtype=torch.long)

    @torch.no_grad()
    def estimate_loss() -> None:
        model.eval()
        for _ in range(2):
            for _ in range(3):
                x, y = get_batch()
                model(x, y)
        model.train()

    model = GPT(nap)
    optimizer = SGD(model.parameters(), nap)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    x, y = get_batch()
    for step in range(8):
        if step % 4 == 0:
            estimate_loss()
            nap("log")
            torch.save(model.state_dict(), "/dev/null")
        for _ in range(2):
            with torch.amp.autocast("cpu", enabled=False):
                _, loss = model(x, y)
                loss = loss / 2
            x, y = get_batch()
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
    return Truth(
        naps={
            ("", "get_batch"): 17,
            ("", "log"): 2,
            ("eval", "get_batch"): 12,
            ("eval/forward", "model"): 12,
            ("forward", "model"): 16,
            ("backward", "backward"): 16,
            ("optimizer", "optimizer"): 8,
        },
        sections={"forward": 28, "backward": 16, "optimizer": 8, "eval": 2, "checkpoint": 2},
        steps=8,
        run={("setup", "log"): 1, ("steps", "log"): 1, ("validation", "get_batch"): 12},
    )


def mnist(nap: Naps) -> Truth:
    """Transforms are modules; the loss is a function; a test after each epoch."""

    class Normalize(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            nap("normalize")
            return x - 0.5

    class Compose:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.Identity()(Normalize()(x))

    def train() -> None:
        model.train()
        for data, target in train_loader:
            optimizer.zero_grad()
            output = model(data)
            nap("loss")
            F.nll_loss(F.log_softmax(output, 1), target).backward()
            optimizer.step()

    def test() -> None:
        model.eval()
        with torch.no_grad():
            for data, target in test_loader:
                output = model(data)
                F.nll_loss(F.log_softmax(output, 1), target)
                nap("metric")
        nap("print")

    train_loader = loader(Items(nap, 6, Compose()))
    test_loader = loader(Items(nap, 3, Compose()))
    model = Net(nap)
    optimizer = SGD(model.parameters(), nap)
    for _ in range(2):
        train()
        test()
        nap("scheduler")
    return Truth(
        naps={
            ("data", "load"): 12,
            ("data", "normalize"): 12,
            ("eval/data", "load"): 6,
            ("eval/data", "normalize"): 6,
            ("forward", "model"): 12,
            ("forward", "loss"): 11,
            ("", "loss"): 1,  # the first time, the work after the model is unknown
            ("eval/forward", "model"): 6,
            ("eval", "metric"): 6,
            ("", "print"): 2,
            ("", "scheduler"): 2,
            ("backward", "backward"): 12,
            ("optimizer", "optimizer"): 12,
        },
        sections={
            "data_startup": 4,
            "data": 18,
            "forward": 18,
            "backward": 12,
            "optimizer": 12,
            "eval": 2,
        },
        steps=12,
        run={
            ("validation", "metric"): 6,
            ("outside", "print"): 2,
            ("outside", "scheduler"): 2,
            ("steps", "load"): 12,
            ("validation", "load"): 6,
        },
        loaders={("train", "loader0", 12), ("val", "loader0", 6)},
    )


def vae(nap: Naps) -> Truth:
    """Several outputs, the program's own loss function, samples decoded after each epoch."""

    class VAE(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = Net(nap, 4, 2), torch.nn.Linear(2, 4)

        def forward(self, x: torch.Tensor) -> Any:
            mean = self.encoder(x)
            return self.decoder(mean), mean

    def loss_function(output: torch.Tensor, x: torch.Tensor, mean: torch.Tensor) -> Any:
        nap("loss")
        return F.mse_loss(output, x, reduction="sum") + mean.square().sum()

    model = VAE()
    optimizer = SGD(model.parameters(), nap)
    train_loader, test_loader = loader(Items(nap, 5)), loader(Items(nap, 2))
    for _ in range(2):
        model.train()
        for data, _ in train_loader:
            optimizer.zero_grad()
            output, mean = model(data)
            loss = loss_function(output, data, mean)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for data, _ in test_loader:
                output, mean = model(data)
                loss_function(output, data, mean)
        nap("save_image")
    return Truth(
        naps={
            ("data", "load"): 10,
            ("eval/data", "load"): 4,
            ("forward", "model"): 10,
            ("forward", "loss"): 9,
            ("", "loss"): 1,
            ("eval/forward", "model"): 4,
            ("eval", "loss"): 4,
            ("", "save_image"): 2,
            ("backward", "backward"): 10,
            ("optimizer", "optimizer"): 10,
        },
        sections={
            "data_startup": 4,
            "data": 14,
            "forward": 14,
            "backward": 10,
            "optimizer": 10,
            "eval": 2,
        },
        steps=10,
        run={("outside", "save_image"): 2, ("validation", "loss"): 4},
        loaders={("train", "loader0", 10), ("val", "loader0", 4)},
    )


def dcgan(nap: Naps) -> Truth:
    """Two optimizers and a criterion that is a module; sometimes draws pictures."""
    painter, judge = Net(nap, 4, 4, "painter"), Net(nap, 4, 1, "judge")
    first, second = SGD(judge.parameters(), nap), SGD(painter.parameters(), nap)
    criterion = torch.nn.BCEWithLogitsLoss()
    one, zero = torch.ones(1, 1), torch.zeros(1, 1)
    batches = loader(Items(nap, 4))
    for _ in range(2):
        for i, (real, _) in enumerate(batches):
            judge.zero_grad()
            criterion(judge(real), one).backward()
            nap("noise")
            fake = painter(torch.randn(1, 4))
            nap("label")
            criterion(judge(fake.detach()), zero).backward()
            first.step()
            painter.zero_grad()
            criterion(judge(fake), one).backward()
            second.step()
            if i == 3:
                painter(torch.ones(1, 4))
                nap("save_image")
        nap("checkpoint")
        torch.save(painter.state_dict(), "/dev/null")
    return Truth(
        naps={
            ("data", "load"): 8,
            ("forward", "judge"): 24,
            ("forward", "painter"): 10,
            ("", "noise"): 8,
            ("", "label"): 8,
            ("", "save_image"): 2,
            ("", "checkpoint"): 2,
            ("backward", "backward"): 32,
            ("optimizer", "optimizer"): 16,
        },
        sections={
            "data_startup": 2,
            "data": 8,
            "forward": 26,
            "backward": 24,
            "optimizer": 16,
            "checkpoint": 2,
        },
        steps=8,
        run={("outside", "checkpoint"): 2, ("steps", "save_image"): 2},
        loaders={("train", "loader0", 8)},
    )


def _episodes(nap: Naps, losses: Any) -> None:
    policy = Net(nap)
    optimizer = SGD(policy.parameters(), nap)
    for _ in range(3):
        nap("reset")
        state, kept = torch.ones(1, 4), []
        for _ in range(4):
            scores = policy(state)
            action = torch.distributions.Categorical(logits=scores)
            choice = action.sample()
            kept.append(action.log_prob(choice))
            nap("env_step")
            state = torch.full((1, 4), float(choice))
        nap("returns")
        optimizer.zero_grad()
        losses(kept).backward()
        optimizer.step()


_EPISODES = Truth(
    naps={
        ("", "reset"): 3,
        ("", "env_step"): 12,
        ("", "returns"): 3,
        ("forward", "model"): 12,
        ("backward", "backward"): 12,
        ("optimizer", "optimizer"): 3,
    },
    sections={"forward": 3, "backward": 3, "optimizer": 3},
    steps=3,
    run={("setup", "env_step"): 4, ("steps", "env_step"): 8},
)


def reinforce(nap: Naps) -> Truth:
    """Calls the policy between steps of an environment; one backward per episode."""
    _episodes(nap, lambda kept: -torch.cat(kept).sum())
    return _EPISODES


def actor_critic(nap: Naps) -> Truth:
    """The same with a list of losses, some of them computed by functions."""

    def losses(kept: Any) -> Any:
        value = [F.smooth_l1_loss(x, torch.zeros(1)) for x in kept]
        return torch.stack([-x.sum() for x in kept]).sum() + torch.stack(value).sum()

    _episodes(nap, losses)
    return _EPISODES


def time_sequence(nap: Naps) -> Truth:
    """LBFGS with a closure that prints; a prediction without gradients after each step."""
    model = Net(nap, 4, 1)
    criterion = torch.nn.MSELoss()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    calls = Counter[str]()
    for _ in range(3):

        def closure() -> Any:
            calls["closure"] += 1
            optimizer.zero_grad()
            loss = criterion(model(torch.ones(2, 4)), torch.full((2, 1), 3.0))
            nap("print")
            loss.backward()
            return loss

        optimizer.step(closure)
        with torch.no_grad():
            criterion(model(torch.ones(2, 4)), torch.zeros(2, 1))
            nap("draw")
    n = calls["closure"]
    return Truth(
        naps={
            ("", "print"): n,
            ("", "draw"): 3,
            ("forward", "model"): n + 3,
            ("backward", "backward"): n,
        },
        sections={"forward": n + 6, "backward": n, "optimizer": n},
        steps=3,
        run={},
    )


def accumulation(nap: Naps) -> Truth:
    """Batches of several fetches, with autocast; the last one is not full."""
    model = Net(nap)
    optimizer = SGD(model.parameters(), nap)
    criterion = torch.nn.CrossEntropyLoss()
    batches = loader(Items(nap, 9))
    for _ in range(2):
        for i, (data, target) in enumerate(batches):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = criterion(model(data), target) / 4
            nap("log")
            loss.backward()
            if i % 4 == 3 or i == len(batches) - 1:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    return Truth(
        naps={
            ("data", "load"): 18,
            ("forward", "model"): 18,
            ("", "log"): 18,
            ("backward", "backward"): 18,
            ("optimizer", "optimizer"): 6,
        },
        sections={
            "data_startup": 2,
            "data": 18,
            "forward": 18,
            "backward": 18,
            "optimizer": 6,
        },
        steps=6,
        run={("steps", "load"): 18, ("outside", "load"): 0},
        loaders={("train", "loader0", 18)},
    )


def iterable(nap: Naps) -> Truth:
    """An iterable data set whose transform is a module, counted by steps and not epochs."""

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            shift = torch.nn.Linear(4, 4)
            for _ in range(5):
                nap("load")
                yield shift(torch.ones(4)).detach()

    model = torch.nn.Sequential(Net(nap))
    optimizer = SGD(model.parameters(), nap)
    batches = loader(Stream())
    steps = 0
    while steps < 8:
        for data in batches:
            loss = model(data).square().mean()
            nap("loss")
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps == 8:
                break
    nap("end")
    return Truth(
        naps={
            ("data", "load"): 8,
            ("forward", "model"): 8,
            ("forward", "loss"): 7,
            ("", "loss"): 1,
            ("", "end"): 1,
            ("backward", "backward"): 8,
            ("optimizer", "optimizer"): 8,
        },
        sections={"data_startup": 2, "data": 8, "forward": 8, "backward": 8, "optimizer": 8},
        steps=8,
        run={},
        loaders={("train", "loader0", 8)},
    )


def engine(nap: Naps) -> Truth:
    """An engine fetches the batch, and its process function sets the mode (ignite)."""
    model = Net(nap)
    optimizer = SGD(model.parameters(), nap)

    def update(batch: Any) -> None:
        model.train()
        optimizer.zero_grad()
        output = model(batch[0])
        F.cross_entropy(output, batch[1]).backward()
        optimizer.step()

    def evaluate(batch: Any) -> None:
        model.eval()
        with torch.no_grad():
            model(batch[0])
            nap("metric")

    def run(process: Any, batches: Any) -> None:
        iterator = iter(batches)
        while True:
            try:
                batch = next(iterator)
            except StopIteration:
                break
            process(batch)

    train_loader, val_loader = loader(Items(nap, 6)), loader(Items(nap, 3))
    for _ in range(3):
        run(update, train_loader)
        run(evaluate, train_loader)
        run(evaluate, val_loader)
    return Truth(
        # The first batch of each evaluation of the training data comes before any sign of its
        # purpose.
        naps={
            ("data", "load"): 18 + 3,
            ("eval/data", "load"): 5 * 3 + 9,
            ("forward", "model"): 18,
            ("eval/forward", "model"): 27,
            ("eval", "metric"): 27,
            ("backward", "backward"): 18,
            ("optimizer", "optimizer"): 18,
        },
        sections={
            "data_startup": 9,
            "data": 45,
            "forward": 45,
            "backward": 18,
            "optimizer": 18,
            "eval": 6,
        },
        steps=18,
        run={("validation", "metric"): 27, ("steps", "load"): 21},
        loaders={("train", "loader0", 18), ("val", "loader0", 18), ("val", "loader1", 9)},
    )


def estimator(nap: Naps) -> Truth:
    """Creates loaders in every epoch, and sets the mode per batch (skorch)."""
    model = Net(nap)
    optimizer = SGD(model.parameters(), nap)
    train_data, valid_data = Items(nap, 5), Items(nap, 3)

    def train_step(batch: Any) -> None:
        model.train(True)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()

    def validation_step(batch: Any) -> None:
        model.train(False)
        with torch.no_grad():
            model(batch[0])
            nap("metric")

    for _ in range(3):
        for batch in loader(train_data):
            train_step(batch)
        for batch in loader(valid_data):
            validation_step(batch)
        nap("callbacks")
    return Truth(
        naps={
            ("data", "load"): 15 + 1,  # the first batch of the first validation
            ("eval/data", "load"): 8,
            ("forward", "model"): 15,
            ("eval/forward", "model"): 9,
            ("eval", "metric"): 9,
            ("", "callbacks"): 3,
            ("backward", "backward"): 15,
            ("optimizer", "optimizer"): 15,
        },
        sections={
            "data_startup": 6,
            "data": 24,
            "forward": 24,
            "backward": 15,
            "optimizer": 15,
            "eval": 3,
        },
        steps=15,
        run={("validation", "metric"): 9, ("outside", "callbacks"): 3},
        loaders={("train", "loader0", 15), ("val", "loader0", 9)},
    )


def own_optimizer(nap: Naps) -> Truth:
    """No torch optimizer: changes parameters by hand (fastai, keras)."""
    model = Net(nap)
    batches, held_out = loader(Items(nap, 6)), loader(Items(nap, 2))
    for _ in range(2):
        model.train()
        for data, target in batches:
            loss = F.cross_entropy(model(data), target)
            loss.backward()
            nap("update")
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(parameter.grad, alpha=1e-3)
                    parameter.grad = None
        model.eval()
        with torch.no_grad():
            for data, _ in held_out:
                model(data)
    return Truth(
        naps={
            ("data", "load"): 12,
            ("eval/data", "load"): 4,
            ("forward", "model"): 12,
            ("eval/forward", "model"): 4,
            ("", "update"): 12,
            ("backward", "backward"): 12,
        },
        sections={"data_startup": 4, "data": 16, "forward": 16, "backward": 12, "eval": 2},
        steps=12,
        run={("steps", "update"): 12},
        loaders={("train", "loader0", 12), ("val", "loader0", 4)},
    )


def probe(nap: Naps) -> Truth:
    """Tries the model at set-up, in both modes; then prepares the data."""
    model = torch.nn.Sequential(Net(nap), torch.nn.Flatten())
    model(torch.zeros(1, 4))
    nap("prepare")
    model.eval()
    with torch.no_grad():
        model(torch.zeros(1, 4))
    nap("prepare")
    model.train()
    optimizer = SGD(model.parameters(), nap)
    criterion = torch.nn.CrossEntropyLoss()
    for data, target in loader(Items(nap, 5)):
        optimizer.zero_grad()
        output = model(data)
        nap("between")
        loss = criterion(output, target)
        loss.backward()
        optimizer.step()
    return Truth(
        naps={
            ("data", "load"): 5,
            ("", "prepare"): 2,
            ("", "between"): 5,
            ("forward", "model"): 7,
            ("backward", "backward"): 5,
            ("optimizer", "optimizer"): 5,
        },
        sections={
            "data_startup": 1,
            "data": 5,
            "forward": 6,
            "backward": 5,
            "optimizer": 5,
        },
        steps=5,
        run={("setup", "prepare"): 2},
        loaders={("train", "loader0", 5)},
    )


def graded_evaluation(nap: Naps) -> Truth:
    """The evaluation sets the mode and leaves gradients on."""
    model = Net(nap)
    optimizer = SGD(model.parameters(), nap)
    criterion = torch.nn.CrossEntropyLoss()
    batches, held_out = loader(Items(nap, 4)), loader(Items(nap, 2))
    for _ in range(2):
        model.train()
        for data, target in batches:
            optimizer.zero_grad()
            criterion(model(data), target).backward()
            optimizer.step()
        model.eval()
        for data, target in held_out:
            criterion(model(data), target)
            nap("metric")
    return Truth(
        naps={
            ("data", "load"): 8,
            ("eval/data", "load"): 4,
            ("forward", "model"): 8,
            ("eval/forward", "model"): 4,
            ("eval", "metric"): 4,
            ("backward", "backward"): 8,
            ("optimizer", "optimizer"): 8,
        },
        sections={
            "data_startup": 4,
            "data": 12,
            "forward": 16,
            "backward": 8,
            "optimizer": 8,
            "eval": 2,
        },
        steps=8,
        run={("validation", "metric"): 4},
        loaders={("train", "loader0", 8), ("val", "loader0", 4)},
    )


def target_network(nap: Naps) -> Truth:
    """A second network gives targets without gradients, and is never trained (DQN)."""
    policy, target = Net(nap, name="policy"), Net(nap, name="target")
    target.eval()
    optimizer = SGD(policy.parameters(), nap)
    for _ in range(6):
        with torch.no_grad():
            policy(torch.ones(1, 4))
        nap("env_step")
        values = policy(torch.ones(2, 4))
        with torch.no_grad():
            wanted = target(torch.ones(2, 4))
        nap("loss")
        F.mse_loss(values, wanted).backward()
        optimizer.step()
        optimizer.zero_grad()
    return Truth(
        naps={
            ("", "env_step"): 6,
            # Like after a call with gradients: the first time, the following work is unknown.
            ("forward", "loss"): 5,
            ("", "loss"): 1,
            ("forward", "policy"): 12,
            ("forward", "target"): 6,
            ("backward", "backward"): 6,
            ("optimizer", "optimizer"): 6,
        },
        sections={"forward": 12, "backward": 6, "optimizer": 6},
        steps=6,
        run={("validation", "target"): 0},
    )


def acting_in_evaluation_mode(nap: Naps) -> Truth:
    """Chooses each action in evaluation mode, without gradients (DDPG)."""
    actor = Net(nap)
    optimizer = SGD(actor.parameters(), nap)
    for _ in range(6):
        actor.eval()
        with torch.no_grad():
            actor(torch.ones(1, 4))
        actor.train()
        nap("env_step")
        actor(torch.ones(2, 4)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return Truth(
        # A single one could be an evaluation; one in every step is not.
        naps={
            ("", "env_step"): 6,
            ("eval/forward", "model"): 1,
            ("forward", "model"): 11,
            ("backward", "backward"): 6,
            ("optimizer", "optimizer"): 6,
        },
        sections={"forward": 12, "backward": 6, "optimizer": 6, "eval": 1},
        steps=6,
        run={("validation", "model"): 1},
    )


def distillation(nap: Naps) -> Truth:
    """Calls a teacher in evaluation mode before the training model."""
    teacher, student = Net(nap, name="teacher").eval(), Net(nap)
    optimizer = SGD(student.parameters(), nap)
    for data, _ in loader(Items(nap, 6)):
        with torch.no_grad():
            wanted = teacher(data)
        output = student(data)
        nap("loss")
        F.mse_loss(output, wanted).backward()
        optimizer.step()
        optimizer.zero_grad()
    return Truth(
        naps={
            ("data", "load"): 6,
            ("forward", "teacher"): 6,
            ("forward", "model"): 6,
            ("forward", "loss"): 5,
            ("", "loss"): 1,
            ("backward", "backward"): 6,
            ("optimizer", "optimizer"): 6,
        },
        sections={
            "data_startup": 1,
            "data": 6,
            "forward": 12,
            "backward": 6,
            "optimizer": 6,
        },
        steps=6,
        run={("validation", "teacher"): 0},
        loaders={("train", "loader0", 6)},
    )


PROGRAMS = (
    nanogpt,
    mnist,
    vae,
    dcgan,
    reinforce,
    actor_critic,
    time_sequence,
    accumulation,
    iterable,
    engine,
    estimator,
    own_optimizer,
    probe,
    graded_evaluation,
    target_network,
    acting_in_evaluation_mode,
    distillation,
)
