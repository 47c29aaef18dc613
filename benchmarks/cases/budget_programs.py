"""Programs for the case ``budget``: ``python budget_programs.py NAME LOOK MORE``.

They are written as such programs usually are, and nothing in fastprof is tuned for them.  Each
makes LOOK steps, which the default run records in full, and MORE steps.  It then prints for both
parts together and for the second alone the CPU seconds (of all threads, and of the workers of its
loaders) and the wall seconds.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "corpus"))

#: Steps before the first reading: libraries load code, and memory is allocated.
_FIRST = 5


def _cpu_ns(process: int | str = "self") -> int:
    """Return the CPU time of all threads of a process."""
    total = 0
    for file in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with suppress(OSError):  # the thread has ended
            total += int(file.read_text().split()[0])
    return total


class Marks:
    """Readings of both clocks at chosen steps; called at the end of every step."""

    def __init__(self, *steps: int) -> None:
        self._at = frozenset(steps)
        self._count = 0
        self.readings: list[tuple[float, float]] = []

    def __call__(self, *_: Any) -> None:
        self._count += 1
        if self._count in self._at:
            workers = sum(_cpu_ns(child.pid or 0) for child in multiprocessing.active_children())
            cpu = time.process_time() + workers / 1e9
            self.readings.append((cpu, time.perf_counter()))


def endless(loader: Any) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def tiny_mlp(steps: int, mark: Callable[[], None]) -> None:
    import torch
    from torch import nn

    x, y = torch.randn(512, 16), torch.randn(512, 1)
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for i in range(steps):
        idx = i % 64 * 8
        loss = ((net(x[idx : idx + 8]) - y[idx : idx + 8]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def mlp(steps: int, mark: Callable[[], None]) -> None:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = nn.Linear(32, 128)
            self.bn = nn.BatchNorm1d(128)
            self.fc2 = nn.Linear(128, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = nn.functional.dropout(self.bn(self.fc1(x)).relu(), training=self.training)
            return nn.functional.log_softmax(self.fc2(x), dim=1)

    data = TensorDataset(torch.randn(2048, 32), torch.randint(0, 10, (2048,)))
    train_loader = DataLoader(data, batch_size=32, shuffle=True)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    for batch_idx, (x, target) in enumerate(islice(endless(train_loader), steps)):
        optimizer.zero_grad()
        loss = nn.functional.nll_loss(model(x), target)
        loss.backward()
        optimizer.step()
        if batch_idx % 200 == 0:
            print(f"step {batch_idx}: loss {loss.item():.4f}")


def lstm(steps: int, mark: Callable[[], None]) -> None:
    import torch

    from cases.windows_programs import lstm

    step = lstm(torch, length=300)
    for _ in range(steps):
        step()


def nanogpt(steps: int, mark: Callable[[], None]) -> None:
    import torch
    from gpt import Gpt
    from nanogpt import estimate_loss, get_batch

    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    t0 = time.time()
    x, y = get_batch()
    for it in range(steps):
        lr = 1e-3 * min(1.0, (it + 1) / 100)
        for group in optimizer.param_groups:
            group["lr"] = lr
        if it % 100 == 0:
            print(f"step {it}: val loss {estimate_loss(model):.4f}")
        loss = model(x, y)
        x, y = get_batch()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if it % 50 == 0:
            print(f"iter {it}: loss {loss.item():.4f}, time {(time.time() - t0) * 1000:.2f}ms")


def trainer(steps: int, mark: Callable[[], None]) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
    from transformers_trainer import Tokens

    shape = GPT2Config(vocab_size=500, n_positions=64, n_embd=64, n_layer=2, n_head=4)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=4, max_steps=steps, logging_steps=50,
            report_to="none", save_strategy="no", use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        Trainer(GPT2LMHeadModel(shape), arguments, train_dataset=Tokens()).train()


def lightning(steps: int, mark: Callable[[], None]) -> None:
    import torch
    from lightning.pytorch import Trainer
    from lightning_callbacks import Classifier, GradientNorms, Patience
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(6400, 32), torch.randint(0, 5, (6400,)))
    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
            callbacks=[GradientNorms(), Patience()],
        ).fit(Classifier(), DataLoader(data, batch_size=64, num_workers=0))  # fmt: skip


def accelerate(steps: int, mark: Callable[[], None]) -> None:
    import torch
    from accelerate import Accelerator
    from text_padding import Classifier, collate
    from torch.utils.data import DataLoader

    lengths = torch.randint(10, 30, (640,)).tolist()
    samples: Any = [(torch.randint(1, 1000, (n,)), n % 4) for n in lengths]
    train_dataloader = DataLoader(samples, batch_size=8, shuffle=True, collate_fn=collate)
    model: Any = Classifier()
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=3e-4)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model, optimizer, train_dataloader = accelerator.prepare(model, optimizer, train_dataloader)
    for tokens, labels in islice(endless(train_dataloader), 4 * steps):
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(tokens), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


def vae(steps: int, mark: Callable[[], None]) -> None:
    import torch
    from torch.utils.data import DataLoader
    from vae_pictures import VAE, loss_function

    images = torch.rand(1000, 256)
    train_loader: Any = DataLoader(images, batch_size=64, shuffle=True)  # type: ignore[arg-type]
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train_loss = 0.0
    for batch_idx, data in enumerate(islice(endless(train_loader), steps)):
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        if batch_idx % 100 == 0:
            print(f"Train [{batch_idx}]\tLoss: {loss.item() / len(data):.6f}")


def gnn(steps: int, mark: Callable[[], None]) -> None:
    import torch
    from gnn_messages import EDGES, GNN, NODES, WIDTH

    x, labels = torch.randn(NODES, WIDTH), torch.randint(0, 4, (NODES,))
    edge_index = torch.randint(0, NODES, (2, EDGES))
    model = GNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(1, steps + 1):
        model.train()
        optimizer.zero_grad()
        out = model(x, edge_index[0], edge_index[1])
        loss = torch.nn.functional.cross_entropy(out, labels)
        loss.backward()
        optimizer.step()
        if epoch % 20 == 0:
            print(f"Epoch {epoch}: {(out.argmax(1) == labels).float().mean().item():.3f}")


def ppo(steps: int, mark: Callable[[], None]) -> None:
    import torch
    from ppo import Agent, Pendulums

    agent, world = Agent(), Pendulums(8)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    obs, done = world.state.clone(), 0
    while done < steps:
        rollout = []
        for _ in range(32):
            with torch.no_grad():
                action, logprob, _, value = agent.act(obs)
            next_obs, reward = world.step(action)
            rollout.append((obs, action, logprob, value.squeeze(-1), reward))
            obs = next_obs
        b_obs, b_actions, b_logprobs, b_values, b_returns = map(torch.cat, zip(*rollout))  # noqa: B905
        for _update in range(2):
            for mb in torch.randperm(len(b_obs)).split(64):
                _, newlogprob, entropy, newvalue = agent.act(b_obs[mb], b_actions[mb])
                ratio = (newlogprob - b_logprobs[mb]).exp()
                adv = b_returns[mb] - b_values[mb]
                pg_loss = torch.max(-adv * ratio, -adv * ratio.clamp(0.8, 1.2)).mean()
                v_loss = 0.5 * ((newvalue.squeeze(-1) - b_returns[mb]) ** 2).mean()
                loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                done += 1


def recommender(steps: int, mark: Callable[[], None]) -> None:
    import pandas as pd
    import torch
    from recommender import ITEMS, USERS, Ratings, Recommender
    from torch.utils.data import DataLoader

    rows = 1600
    frame = pd.DataFrame(
        {
            "user": torch.randint(0, USERS, (rows,)).numpy(),
            "item": torch.randint(0, ITEMS, (rows,)).numpy(),
            "rating": torch.rand(rows).numpy() * 5,
        }
    )
    loader = DataLoader(
        Ratings(frame), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = Recommender()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for ids, features, rating in islice(endless(loader), steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(ids, features), rating.float())
        loss.backward()
        optimizer.step()


def diffusion(steps: int, mark: Callable[[], None]) -> None:
    import torch
    from diffusion import Denoiser

    images = torch.rand(64, 3, 16, 16)
    alphas_cumprod = torch.cumprod(1.0 - torch.linspace(1e-4, 0.02, 100), dim=0)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    for step in range(steps):
        x = images[step % 16 * 4 : step % 16 * 4 + 4]
        t = torch.randint(0, 100, (x.shape[0],))
        a = alphas_cumprod[t].view(-1, 1, 1, 1)
        noise = torch.randn_like(x)
        pred = model(a.sqrt() * x + (1 - a).sqrt() * noise, t)
        loss = torch.nn.functional.mse_loss(pred, noise)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


_TOKEN = re.compile(r"[a-z]+|\d+")


def preprocess(steps: int, mark: Callable[[], None]) -> None:
    """No model, and no step: a file of JSON lines is tokenized and counted."""

    def tokenize(text: str) -> list[str]:
        return [stem(word) for word in _TOKEN.findall(text.lower())]

    def stem(word: str) -> str:
        for suffix in ("ing", "ed", "s"):
            if word.endswith(suffix) and len(word) > len(suffix) + 2:
                return word[: -len(suffix)]
        return word

    stems, ends = ("walk", "train", "load"), ("ing", "ed", "s")
    words = [f"{a}{b}{c}" for a in stems for b in ends for c in "xyz"]
    vocabulary: Counter[str] = Counter()
    for i in range(steps):
        line = json.dumps({"id": i, "text": " ".join(words[(i * k) % 27] for k in range(400))})
        record = json.loads(line)
        vocabulary.update(tokenize(record["text"]))
        mark()
    print(len(vocabulary), "tokens")


def inference(steps: int, mark: Callable[[], None]) -> None:
    """A trained model scores batches; no optimizer."""
    import torch
    from text_padding import Classifier, collate
    from torch.utils.data import DataLoader

    model = Classifier().eval()
    samples: Any = [(torch.randint(1, 1000, (10 + n % 20,)), 0) for n in range(320)]
    loader = DataLoader(samples, batch_size=8, collate_fn=collate)
    scores = []
    with torch.inference_mode():
        for tokens, _ in islice(endless(loader), steps):
            probs = model(tokens).softmax(dim=-1)
            scores.append(probs.max(dim=-1).values.mean().item())
            mark()
    print(f"mean confidence {sum(scores) / len(scores):.3f}")


#: Name -> the program, steps of the full look and a few more, and steps after them.
PROGRAMS: dict[str, tuple[Callable[[int, Callable[[], None]], None], int, int]] = {
    "tiny mlp": (tiny_mlp, 400, 10_000),
    "mlp": (mlp, 400, 4_000),
    "lstm": (lstm, 220, 150),
    "nanogpt": (nanogpt, 220, 100),
    "trainer": (trainer, 400, 400),
    "lightning": (lightning, 400, 1_000),
    "accelerate": (accelerate, 220, 250),
    "vae": (vae, 400, 1_500),
    "gnn": (gnn, 220, 250),
    "ppo": (ppo, 400, 1_500),
    "recommender": (recommender, 400, 500),
    "diffusion": (diffusion, 400, 600),
    "preprocess": (preprocess, 20_000, 20_000),
    "inference": (inference, 400, 3_000),
}


def main() -> None:
    name, look, more = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    program = PROGRAMS[name][0]
    mark = Marks(_FIRST, look, look + more)
    if program is not preprocess:
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook

        torch.manual_seed(0)
        torch.set_num_threads(1)
        register_optimizer_step_post_hook(mark)
    program(look + more, mark)
    first, second, last = mark.readings
    print("LOOP", *(b - a for start in (first, second) for a, b in zip(start, last, strict=True)))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
