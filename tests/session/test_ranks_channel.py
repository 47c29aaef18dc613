"""The place where ranks exchange values: a shared directory, and how ranks find it."""

from __future__ import annotations

import os
import stat
import sys

import pytest
from fastprof.ranks.exchange.channel import MAX_VALUE
from fastprof.ranks.exchange.directory import DirectoryChannel
from fastprof.ranks.exchange.find import find_channel, job_mark, may_find_channel
from helpers import run_child


@pytest.fixture
def directory(tmp_path):
    return DirectoryChannel(str(tmp_path / "job"))


def check(channel):
    assert channel.get(["window-0", "window-1"]) == {}
    channel.put("window-1", b"\x00first")
    channel.put("window-1", b"\x00second\xff")
    assert channel.get(["window-0", "window-1"]) == {"window-1": b"\x00second\xff"}
    channel.put("window-0", b"zero")
    assert channel.get(["window-0", "window-1"]) == {
        "window-0": b"zero",
        "window-1": b"\x00second\xff",
    }


def test_a_directory_has_the_last_value_of_each_key_and_nothing_else(directory, tmp_path):
    check(directory)
    for _ in range(50):
        directory.put("window-1", b"x" * 100)
    assert sorted(os.listdir(tmp_path / "job")) == ["window-0", "window-1"]
    directory.close(last=False)
    assert (tmp_path / "job" / "window-1").read_bytes() == b"x" * 100
    directory.close(last=True)
    assert not (tmp_path / "job").exists()


def test_what_is_no_plain_small_file_is_not_read(directory, tmp_path):
    job = tmp_path / "job"
    (tmp_path / "secret").write_bytes(b"secret")
    (job / "window-0").symlink_to(tmp_path / "secret")
    os.mkfifo(job / "window-1")
    (job / "window-2").mkdir()
    (job / "window-3").write_bytes(b"x" * (MAX_VALUE + 1))
    assert directory.get([f"window-{i}" for i in range(4)]) == {"window-3": b""}


def test_a_link_is_replaced_not_followed(directory, tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "job" / "window-0").symlink_to(tmp_path / "precious")
    directory.put("window-0", b"value")
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert directory.get(["window-0"]) == {"window-0": b"value"}


def test_p6_links_and_pipes_that_others_have_put_there_change_nothing(tmp_path):
    """A name that they can predict could be a link to a file of this user, or block the opening."""
    run_child(
        f"""
import os
from fastprof.ranks.exchange.directory import DirectoryChannel
os.umask(0)
channel = DirectoryChannel("{tmp_path}/job")
keys = ["window-0", "request", "detail-1", "verdicts", "group-1-0"]
for number, key in enumerate(keys):
    precious = f"{tmp_path}/precious-{{key}}"
    with open(precious, "wb") as stream:
        stream.write(b"precious")
    os.link(precious, f"{tmp_path}/job/{{key}}")
    beside = f"{tmp_path}/job/{{key}}.{{os.getpid()}}~"
    [os.link, os.symlink, lambda _, name: os.mkfifo(name)][number % 3](precious, beside)
assert channel.get(keys) == {{}}
for key in keys:
    channel.put(key, b"value")
    status = os.lstat(f"{tmp_path}/job/{{key}}")
    assert status.st_mode & 0o777 == 0o600 and status.st_nlink == 1, oct(status.st_mode)
    assert open(f"{tmp_path}/precious-{{key}}", "rb").read() == b"precious"
assert channel.get(keys) == dict.fromkeys(keys, b"value")
channel.close(last=True)
assert not os.path.exists("{tmp_path}/job")
""",
        timeout=30,
    ).check()


def test_p6_files_that_a_rank_cannot_have_put_there_are_not_read(directory, tmp_path, monkeypatch):
    job = tmp_path / "job"
    directory.put("window-0", b"value")
    directory.put("window-1", b"value")
    (job / "window-1").chmod(0o666)
    (tmp_path / "secret").write_bytes(b"secret")
    os.link(tmp_path / "secret", job / "window-2")
    assert directory.get([f"window-{i}" for i in range(3)]) == {"window-0": b"value"}
    real = os.fstat

    def of_another_user(handle):
        status = list(real(handle))
        if not stat.S_ISDIR(status[0]):
            status[4] += 1
        return os.stat_result(status)

    monkeypatch.setattr(os, "fstat", of_another_user)
    assert directory.get(["window-0"]) == {}


def test_p6_a_directory_to_which_everyone_can_write_is_refused(directory, tmp_path):
    (tmp_path / "job").chmod(0o777)
    with pytest.raises(PermissionError, match="every user can write to the directory"):
        directory.put("window-0", b"value")
    with pytest.raises(PermissionError, match="remove it"):
        DirectoryChannel(str(tmp_path / "job"))
    assert os.listdir(tmp_path / "job") == []


def test_only_what_ranks_have_put_there_is_removed(directory, tmp_path):
    job = tmp_path / "job"
    theirs = ["request-from-me.txt", "window-data", "verdicts.md", "detail-", "window-1.bak"]
    for name in theirs:
        (job / name).write_bytes(b"precious")
    ours = ["window-0", "detail-12", "request", "verdicts", "window-3.4711af~"]
    for name in ours:
        (job / name).write_bytes(b"value")
    directory.close(last=True)
    assert sorted(os.listdir(job)) == sorted(theirs)


def test_a_link_in_the_place_of_the_directory_is_not_followed(directory, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "window-0").write_bytes(b"precious")
    (tmp_path / "job").rmdir()
    (tmp_path / "job").symlink_to(elsewhere)
    directory.close(last=True)
    for use in (
        lambda: directory.put("window-0", b"value"),
        lambda: directory.get(["window-0"]),
        lambda: DirectoryChannel(str(tmp_path / "job")),
    ):
        with pytest.raises(OSError, match="is a link, expected a directory"):
            use()
    assert (elsewhere / "window-0").read_bytes() == b"precious"
    assert os.listdir(elsewhere) == ["window-0"]


def test_a_directory_that_is_gone_is_an_error(directory, tmp_path):
    (tmp_path / "job").rmdir()
    with pytest.raises(OSError, match="job"):
        directory.put("window-0", b"")
    with pytest.raises(OSError, match="is gone"):
        directory.get(["window-0"])


def test_the_environment_says_where_ranks_meet(monkeypatch, tmp_path):
    for name in ("FASTPROF_RANKS_DIR", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert not may_find_channel()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert not may_find_channel()
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert may_find_channel()
    monkeypatch.delenv("MASTER_PORT")
    monkeypatch.setenv("FASTPROF_RANKS_DIR", str(tmp_path))
    assert may_find_channel()
    assert isinstance(find_channel("0123", 2), DirectoryChannel)
    assert os.listdir(tmp_path) == ["fastprof-0123"]


def test_jobs_have_marks_that_their_ranks_share(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    monkeypatch.setenv("MASTER_ADDR", "n1")
    one = job_mark(4)
    assert job_mark(8) != one
    # torchrun counts the restarts of each machine; Kubeflow's first pod is at "localhost".
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    assert job_mark(4) == one
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "b")
    assert job_mark(4) != one


def test_torch_is_not_imported_for_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    monkeypatch.delenv("FASTPROF_RANKS_DIR", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    assert find_channel("0123", 2) is None
    assert "torch.distributed" not in sys.modules
