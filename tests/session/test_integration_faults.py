"""After a fault of an integration's hooks, no section or phase of the run stays open."""

from __future__ import annotations

import logging

import fastprof
import pytest
from fastprof.integrations._session.session import Session


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, logger="fastprof")


def begun() -> Session:
    session = Session({"functions": False, "skip_first": 0}, {}, trainer="test")
    session.start()
    session.begin_step()
    session.step()
    return session


def phases_of_what_follows(session: Session) -> list[str]:
    """Return the names of the phases of a section opened after the fault."""
    session.fail("A hook failed", RuntimeError("planted"))
    with fastprof.profile_section("later"):
        pass
    snapshot = session.profiler.snapshot()
    session.stop()
    names = ("steps", "setup", "warmup", "validation", "checkpoint", "outside")
    return [names[row.phase] for row in snapshot.sections if snapshot.keys[row.key].name == "later"]


def test_in_a_checkpoint() -> None:
    session = begun()
    session.open_checkpoint("saving")
    assert phases_of_what_follows(session) == ["steps"]


def test_in_an_evaluation_that_saves() -> None:
    session = begun()
    session.enter_container("eval")
    session.open_checkpoint("saving")
    assert phases_of_what_follows(session) == ["steps"]


def test_between_epochs() -> None:
    session = begun()
    session.leave_steps()
    assert phases_of_what_follows(session) == ["steps"]


def test_a_checkpoint_between_epochs() -> None:
    session = begun()
    session.leave_steps()
    session.open_checkpoint("saving")
    assert phases_of_what_follows(session) == ["steps"]


def too_deep(*_: object) -> None:
    raise RecursionError("maximum recursion depth exceeded")


@pytest.mark.parametrize("action", ["open", "close"])
def test_p9_hooks_go_on_where_the_program_is_at_its_recursion_limit(
    action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = begun()
    if action == "close":
        session.open("a", "forward")
    with monkeypatch.context() as patch:
        patch.setattr(session, "_switch", too_deep)
        getattr(session, action)("a", *["forward"][: action == "open"])
    assert session.alive
    session.open("b", "backward")
    session.close("b")
    session.stop()
    assert "backward" in [section.name for section in session.profiler.report().sections]
