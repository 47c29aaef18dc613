"""Ranks meet at the service of jax.distributed: with a fake client, and with jax's own."""

from __future__ import annotations

import importlib.util
import re
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastprof.ranks.exchange.channel import MAX_VALUE, Ended
from fastprof.ranks.exchange.find import find_channel, may_find_channel
from fastprof.results.ranks import merge
from fastprof.session.environment.rank import Identity
from helpers import child_env, run_together


class Client:
    """Answers like jax 0.12; a test below uses a real one."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.error = ""

    def key_value_set_bytes(self, key: str, value: bytes, allow_overwrite: bool = False) -> None:
        self._fail()
        assert allow_overwrite or key not in self.values
        self.values[key] = value

    def key_value_try_get_bytes(self, key: str) -> bytes:
        self._fail()
        if key not in self.values:
            raise RuntimeError(f"NOT_FOUND: Config key {key} not found.\nAdditional information")
        return self.values[key]

    def _fail(self) -> None:
        if self.error:
            raise RuntimeError(self.error)


@pytest.fixture
def state(monkeypatch):
    made = SimpleNamespace(client=Client(), process_id=1, num_processes=4)
    monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=made))
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(__version__="0.9"))
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    for name in ("FASTPROF_RANKS_DIR", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_the_service_has_the_last_value_of_each_key(state):
    channel = find_channel("0123", 4)
    assert channel.get(["window-0", "window-1"]) == {}
    channel.put("window-1", b"\x00first")
    channel.put("window-1", b"\x00second\xff")
    assert channel.get(["window-0", "window-1"]) == {"window-1": b"\x00second\xff"}
    assert find_channel("4567", 4).get(["window-1"]) == {}
    channel.put("window-0", b"x" * (MAX_VALUE + 1))
    assert channel.get(["window-0"]) == {"window-0": b""}
    channel.close(last=True)


def test_rank_and_number_of_processes_are_jaxs(state):
    assert may_find_channel()
    identity = Identity()
    assert (identity.rank, identity.world_size) == (1, 4)
    state.client = None
    assert not may_find_channel()
    assert find_channel("0123", 4) is None
    assert (Identity().rank, Identity().world_size) == (0, 1)
    assert identity.world_size == 4  # known values remain


def test_a_job_that_leaves_jax_ends_the_channel(state):
    channel = find_channel("0123", 4)
    state.client = None
    with pytest.raises(Ended):
        channel.get(["window-0"])
    with pytest.raises(Ended):
        channel.put("window-0", b"")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("UNAVAILABLE: failed to connect\nmore", ConnectionError),
        ("DEADLINE_EXCEEDED: late", ConnectionError),
        ("INTERNAL: broken", RuntimeError),
    ],
)
def test_a_service_that_is_gone_may_be_tried_again_and_other_errors_are_final(state, said, kind):
    channel = find_channel("0123", 4)
    state.client.error = said
    for use in (lambda: channel.get(["window-0"]), lambda: channel.put("window-0", b"")):
        with pytest.raises(kind) as caught:
            use()
        assert type(caught.value) is kind
        assert str(caught.value) == said.partition("\n")[0]


def test_a_client_that_cannot_overwrite_keys_is_named(state):
    state.client = SimpleNamespace(key_value_set_bytes=None)
    with pytest.raises(RuntimeError, match=r"jax 0\.9 cannot overwrite keys"):
        find_channel("0123", 4)


PROGRAM = """
import sys, time
import jax
rank, folder, address = int(sys.argv[1]), sys.argv[2], sys.argv[3]
jax.distributed.initialize(address, 2, rank)
import fastprof
from fastprof import profile_section
from jax._src import distributed

def decode():
    time.sleep(0.03)

with fastprof.Profiler(output=f"{folder}/run.fprof", gpu=False):
    for i in range(700):
        with profile_section("data"):
            time.sleep(0.005)
            if rank == 1:
                decode()
        with profile_section("synchronization"):
            distributed.global_state.client.wait_at_barrier(f"step{i}", 60_000)
        fastprof.step()
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
def test_the_late_one_of_two_real_processes_is_named_while_they_run(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    env = child_env({"PYTHONPATH": ":".join(sys.path)}, guard=False)
    command = [sys.executable, str(program)]
    said = run_together([[*command, rank, str(tmp_path), address] for rank in "01"], env)
    late = [line for line in said[0].splitlines() if line.startswith("Rank 1 (host ")]
    assert late, said
    assert " since " in late[0]
    # "data, decode (" or, if its functions could be compared, "data +30.0 ms, in decode (".
    assert re.search(r" data\b.* decode \(train\.py:", late[0]), late
    found = merge([tmp_path]).straggler
    assert found is not None
    assert (found.rank, found.section) == (1, "data")
