"""Scripts without any use of fastprof: `fastprof run`, FASTPROF=1, several processes."""

from __future__ import annotations

import json
import sys

import fastprof
import pytest
from helpers import run_child, run_command

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

SCRIPT = """
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = torch.utils.data.DataLoader(torch.ones(24, 4), batch_size=2)
for _ in range(2):
    for batch in batches:
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
with torch.no_grad():
    for batch in torch.utils.data.DataLoader(torch.ones(4, 4), batch_size=2):
        model(batch)
print("trained")
"""

COUNTS = {"forward": 26, "backward": 24, "optimizer": 24, "data": 26, "eval": 1}


def counts(path) -> dict[str, int]:
    report = fastprof.load(path).in_phase("all")
    assert report.steps.count == COUNTS["optimizer"]
    return {row.name: row.count for row in report.sections if row.name != "data_startup"}


def test_s3_02_fastprof_run_of_an_unmodified_script(tmp_path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    start = "import sys; from fastprof.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "run", "-o", "out", str(script)]
    result = run_command(command, cwd=tmp_path, timeout=120).check()
    assert "trained" in result.stdout
    assert "where a step goes" in result.stdout
    assert counts(tmp_path / "out" / "train_profile.fprof") == COUNTS


def test_training_in_a_thread(tmp_path) -> None:
    inner = SCRIPT.replace("import torch\n", "").replace("\n", "\n    ")
    threaded = (
        f"import threading, torch\ndef train():{inner}\n"
        "thread = threading.Thread(target=train)\nthread.start()\nthread.join()\n"
    )
    (tmp_path / "train.py").write_text(threaded)
    start = "import sys; from fastprof.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "run", "-o", "out", "train.py"]
    result = run_command(command, cwd=tmp_path, timeout=120).check()
    assert "trained" in result.stdout
    # The first backward shows which thread trains.
    before = {"forward": COUNTS["forward"] - 1, "data": COUNTS["data"] - 1}
    assert counts(tmp_path / "out" / "train_profile.fprof") == {**COUNTS, **before}
    # Attached in the thread, it has them all.
    attached = threaded.replace("target=train", "target=watched").replace(
        "thread =",
        "from fastprof.integrations import torch_loop\n"
        "def watched():\n    with torch_loop.attach(output='a.fprof'): train()\nthread =",
    )
    (tmp_path / "train.py").write_text(attached)
    run_command([sys.executable, "train.py"], cwd=tmp_path, timeout=120).check()
    assert counts(tmp_path / "a.fprof") == COUNTS


def test_s3_02_fastprof_1_reports_automatic_sections_at_exit() -> None:
    result = run_child("import fastprof\n" + SCRIPT, env={"FASTPROF": "1"}, timeout=120).check()
    for name in set(COUNTS) - {"eval"}:
        assert f"\n{name} " in result.stderr
    assert "24 steps" in result.stderr


def test_s3_02_fastprof_0_installs_nothing() -> None:
    code = """
import sys
import fastprof
from fastprof.integrations import torch_loop
import torch
before = torch.utils.data.DataLoader.__iter__, torch.save, list(sys.meta_path)
with torch_loop.attach() as loop:
    assert (torch.utils.data.DataLoader.__iter__, torch.save, list(sys.meta_path)) == before
    assert not torch.nn.modules.module._global_forward_pre_hooks
"""
    run_child(code, env={"FASTPROF": "0"}, timeout=120).check()


def test_the_hooks_wait_for_torch_without_importing_it() -> None:
    code = """
import sys
import fastprof
from fastprof.integrations import torch_loop
assert "fastprof.integrations.torch_loop" in sys.modules and "torch" not in sys.modules
finders = list(sys.meta_path)
with torch_loop.attach(functions=False, skip_first=0) as loop:
    assert "torch" not in sys.modules
    import torch
    model = torch.nn.Linear(4, 1)
    model(torch.ones(2, 4)).sum().backward()
assert [row.name for row in loop.report().in_phase("all").sections] == ["forward", "backward"]
assert list(sys.meta_path) == finders
assert "exec_module" not in vars(torch.__spec__.loader)
"""
    run_child(code, timeout=120).check()


def test_import_fastprof_imports_no_integration() -> None:
    code = """
import sys
import fastprof
assert not [name for name in sys.modules if name.startswith("fastprof.integrations")]
"""
    run_child(code).check()


DISTRIBUTED = """
import json, sys, torch
import torch.multiprocessing as mp

class Log:
    def __init__(self):
        self.keys = set()
    def log_metrics(self, metrics, step):
        self.keys |= set(metrics)

def train(rank, folder):
    from fastprof.integrations import torch_loop
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    log = Log()
    with torch_loop.attach(functions=False, logger=log, log_every=1) as loop:
        for batch in torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2):
            model(batch).sum().backward()
            optimizer.step()
    counts = {row.name: row.count for row in loop.report().in_phase("all").sections}
    result = [counts, sorted(log.keys), loop.profiler.snapshot().counters, loop.profiler.steps]
    with open(f"{folder}/rank{rank}.json", "w") as file:
        json.dump(result, file)
    torch.distributed.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(train, args=(sys.argv[1],), nprocs=2)
"""


def test_s4_08_two_processes_with_ddp_and_one_logs(tmp_path) -> None:
    run_child(DISTRIBUTED, str(tmp_path), timeout=150, guard=False).check()
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    for found, _, counters, steps in ranks:
        assert {name: found[name] for name in ("data", "forward", "backward", "optimizer")} == {
            "data": 4, "forward": 4, "backward": 4, "optimizer": 4,
        }  # fmt: skip
        assert counters == {}
        assert steps == 4
    assert "profile/train/dl_loader0/time_forward_ms" in ranks[0][1]
    assert ranks[1][1] == []
