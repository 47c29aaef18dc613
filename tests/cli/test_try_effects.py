"""Each intervention of ``fastprof try`` is in effect in the program, and does not harm it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastprof.trial.model import Answer, Plan, Values
from fastprof.trial.runs import Runs

#: What a run answered, what the program saw, and the lines that it logged.
Plain = tuple[Answer, dict[str, Any], list[str]]

#: Trains; writes its state at the eighth step, and a copy of its model at the end.
PROGRAM = """
import copy, gc, json, logging, os, pickle, sys, torch
from torch.utils.data import DataLoader, TensorDataset
class Seen(torch.Tensor):  # of a GPU: there is none here
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ == "to":
            asked.append((kwargs or {}).get("non_blocking", False))
            return args[0].as_subclass(torch.Tensor)
        return super().__torch_function__(function, types, args, kwargs)
asked = []
log = logging.getLogger("train")
log.propagate = False
log.addHandler(logging.FileHandler("train.log"))
log.setLevel(logging.INFO)

class Samples(TensorDataset):
    def __getitem__(self, i):
        if torch.utils.data.get_worker_info() is not None:
            log.info("sample %d", i)
        return super().__getitem__(i)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def forward(self, x):
        kinds.append(str(self.layer(x).dtype))
        return self.layer(x)

kinds = []
torch.manual_seed(1)
data = Samples(torch.randn(64, 8))
loader = DataLoader(data, batch_size=4, num_workers=int(sys.argv[1]))
model = Model()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
begun = torch.get_float32_matmul_precision()
for step, (x,) in enumerate(loader):
    if os.environ.get("STAND_IN"):
        x = x.as_subclass(Seen).to("cuda")
    loss = model(x).float().square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.info("step %d", step)
    log.info("wrong: %d", "a text")
    if step == 8:
        twin = copy.deepcopy(model)
        with torch.no_grad():
            for p in twin.parameters():
                p.zero_()
        seen = {
            "frozen": gc.get_freeze_count(), "thresholds": gc.get_threshold(),
            "matmul": torch.get_float32_matmul_precision(), "forward": kinds[-1],
            "prefetch": loader.prefetch_factor, "cudnn": torch.backends.cudnn.benchmark,
            "compiled": model._compiled_call_impl is not None, "copies": asked,
            "twin": float(twin(x).abs().max()), "saved": len(pickle.dumps(model)) > 0,
            "threads": [t.name for t in __import__("threading").enumerate()],
            "keys": list(model.state_dict()),
        }
        with open("seen.json", "w") as stream:
            json.dump(seen, stream)
print("whole")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """A run without interventions."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("plain")
    (folder / "train.py").write_text(PROGRAM)
    (folder / "out").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return run(folder, {})


def run(folder: Path, apply: dict[str, Values], *, workers: int = 0) -> Plain:
    """Return the answer of a run to its end, what the program saw, and the lines it logged."""
    (folder / "train.log").unlink(missing_ok=True)
    runs = Runs(folder / "out", ["train.py", str(workers)], None)
    answer = runs.run("run", Plan("", "", 1000, apply=apply))
    assert isinstance(answer, Answer), answer
    printed = (folder / "out/run.log").read_text()
    assert printed.rstrip().endswith("whole"), printed
    # logging reports a message that cannot be made, in the program's own words.
    assert printed.count("--- Logging error ---") == 16
    seen = json.loads((folder / "seen.json").read_text())
    return answer, seen, (folder / "train.log").read_text().splitlines()


STEPS = [f"step {i}" for i in range(16)]


def test_interventions_in_the_process_are_in_effect_and_harm_nothing(
    folder: Path, plain: Plain
) -> None:
    first, before, lines = plain
    assert lines == STEPS
    assert first.applied == {}
    apply: dict[str, Values] = {
        "freeze": {"at": "first step"}, "thresholds": {"thresholds": [50_000, 20, 20]},
        "tf32": {"device": "cuda"}, "cudnn-benchmark": {"device": "cuda"},
        "queued-logging": {"handlers": "all"},
    }  # fmt: skip
    changed, after, lines = run(folder, apply)
    # Those of fastprof's modules are always, lest the program's collections visit them.
    assert after["frozen"] > before["frozen"] + 10_000
    assert before["thresholds"] != [50_000, 20, 20]
    assert after["thresholds"] == [50_000, 20, 20]
    assert (before["matmul"], after["matmul"]) == ("highest", "high")
    assert (before["cudnn"], after["cudnn"]) == (False, True)
    assert "fastprof-log" in after["threads"]
    assert "fastprof-log" not in before["threads"]
    assert lines == STEPS
    assert changed.applied == {**dict.fromkeys(apply, 1), "queued-logging": 16}
    assert changed.losses == first.losses
    assert len(changed.ends_ns) == 16


def test_bf16_is_in_the_model_and_not_in_copies_or_files_of_it(folder: Path, plain: Plain) -> None:
    first, before, _ = plain
    changed, after, _ = run(folder, {"bf16": {"device": "cpu"}})
    assert (before["forward"], after["forward"]) == ("torch.float32", "torch.bfloat16")
    # A copy computes with its own weights.
    assert (before["twin"], after["twin"]) == (0.0, 0.0)
    assert after["saved"]
    assert after["keys"] == before["keys"]
    assert changed.applied == {"bf16": 1}
    assert changed.losses != first.losses
    assert changed.losses == pytest.approx(first.losses, rel=0.05)


def test_workers_write_their_lines_with_queued_logging_and_read_further_ahead(
    folder: Path,
) -> None:
    apply: dict[str, Values] = {
        "queued-logging": {"handlers": "all"}, "prefetch": {"prefetch_factor": 4},
    }  # fmt: skip
    changed, seen, lines = run(folder, apply, workers=1)
    assert sorted(lines) == sorted([*STEPS, *(f"sample {i}" for i in range(64))])
    assert seen["prefetch"] == 4
    assert changed.applied == {"queued-logging": 16, "prefetch": 1}


def test_copies_to_a_gpu_are_not_waited_for(
    folder: Path, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN", "1")
    changed, after, _ = run(folder, {"non-blocking": {"device": "cuda"}})
    assert after["copies"] == [True] * 9
    assert changed.applied == {"non-blocking": 16}
    assert changed.losses == plain[0].losses


@pytest.mark.slow
def test_the_model_is_compiled(folder: Path, plain: Plain) -> None:
    first, before, _ = plain
    changed, after, _ = run(folder, {"compile": {"device": "cpu"}, "bf16": {"device": "cpu"}})
    assert (before["compiled"], after["compiled"]) == (False, True)
    assert after["keys"] == before["keys"]
    assert changed.applied == {"compile": 1, "bf16": 1}
    assert changed.losses == pytest.approx(first.losses, rel=0.05)
