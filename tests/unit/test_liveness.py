"""Whether a session is live, line by line of the contract (integrations 7a and runs 6.8)."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pisub.client.liveness import RUNS, UNREADABLE, read_life, read_lives
from pisub.errors import InvalidArgumentError
from pisub.hosting.liveness import SessionLiveness
from pisub.ids import new_id
from pisub.liveness import REGISTRY_KEY, LivenessProvider, LivenessRegistry, announce
from pisub.process import own_identity
from pisub.protocol.runs import RunState
from pisub.record.commit import commit_end
from pisub.record.ends import end_status, initial_status
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.session_list import list_sessions
from pisub.record.sessions import Outbox
from pisub.record.submit import prepare_session
from pisub.record.subscriptions import WaitSubscription, subscribe
from pisub.runs.spec import RunSpec
from pisub.testing import FakeClock
from tests.support.record_samples import (
    NOW_MS,
    SESSION,
    dead_identity,
    hidden_identity,
    make_layout,
    make_result,
    start,
    submit,
)

FILE = "/home/me/session.jsonl"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


def is_live(layout: Layout, session_id: str = SESSION) -> bool:
    return read_life(layout, session_id, now_ms=NOW_MS).is_live


def finish(layout: Layout, spec: RunSpec, state: RunState = RunState.COMPLETE) -> None:
    lock = RunLock.acquire(layout.run(spec.run_id).lock)
    assert lock is not None
    result = make_result(spec, state=state)
    status = end_status(initial_status(spec, own_identity(), started_at=NOW_MS + 1), result)
    with lock:
        commit_end(layout, lock, status, result)


# What counts. --------------------------------------------------------------------------------------------------------


def test_a_session_without_runs_is_not_live_known_or_not(layout: Layout) -> None:
    prepare_session(layout, SESSION)
    assert not is_live(layout)
    assert not is_live(layout, "never heard of")


def test_a_queued_run_counts(layout: Layout) -> None:
    spec = submit(layout)
    life = read_life(layout, SESSION, now_ms=NOW_MS)
    assert (life.is_live, life.reasons, life.active_runs) == (True, (RUNS,), (spec.run_id,))


def test_a_running_run_counts_however_old_its_files_are(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, own_identity())
    for path in layout.run(spec.run_id).dir.rglob("*"):
        os.utime(path, (0, 0))
    assert is_live(layout)
    assert read_life(layout, SESSION, now_ms=NOW_MS + 10**10).is_live


def test_a_run_whose_process_died_does_not_count_however_fresh_its_files_are(layout: Layout) -> None:
    start(layout, submit(layout, submitter=dead_identity()), dead_identity())
    assert not is_live(layout)


def test_a_run_that_nobody_here_can_look_at_counts(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, hidden_identity())
    lock = RunLock.acquire(layout.run(spec.run_id).lock)
    assert lock is not None
    with lock:
        assert is_live(layout)


@pytest.mark.parametrize(
    "state", [RunState.COMPLETE, RunState.FAILED, RunState.PAUSED, RunState.STOPPED, RunState.REJECTED]
)
def test_what_has_ended_does_not_count_a_paused_run_neither(layout: Layout, state: RunState) -> None:
    spec = submit(layout)
    start(layout, spec, own_identity())
    finish(layout, spec, state)
    assert not is_live(layout)


def test_a_live_child_of_a_run_that_has_ended_counts(layout: Layout) -> None:
    parent = submit(layout)
    child = submit(layout, parent_run_id=parent.run_id, root_run_id=parent.run_id, depth=1)
    start(layout, parent, own_identity())
    start(layout, child, own_identity())
    finish(layout, parent, RunState.PAUSED)
    assert read_life(layout, SESSION, now_ms=NOW_MS).active_runs == (child.run_id,)


def test_a_wait_in_the_background_does_not_count(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, own_identity())
    finish(layout, spec)
    wait = WaitSubscription(
        token=new_id(), session_id=SESSION, run_id=spec.run_id, requested_id="x", created_at=1, expires_at=2**40
    )
    assert subscribe(layout, wait)
    assert not is_live(layout)


def test_another_session_s_run_does_not_count(layout: Layout) -> None:
    submit(layout, session_id="another")
    assert [each.is_live for each in read_lives(layout, [SESSION, "another"], now_ms=NOW_MS)] == [False, True]


def test_a_run_that_cannot_be_read_counts_for_its_session_and_for_no_other(layout: Layout) -> None:
    spec = submit(layout)
    prepare_session(layout, "another")
    layout.run(spec.run_id).spec.write_text("{")
    mine, other = read_lives(layout, [SESSION, "another"], now_ms=NOW_MS)
    assert (mine.reasons, len(mine.problems), other.is_live) == ((UNREADABLE,), 1, False)


def test_a_record_that_cannot_be_read_counts(layout: Layout) -> None:
    prepare_session(layout, SESSION)
    layout.active.rmdir()
    layout.active.symlink_to("/")
    life = read_life(layout, SESSION, now_ms=NOW_MS)
    assert (life.reasons, len(life.problems)) == ((UNREADABLE,), 1)


def test_a_run_whose_end_is_still_being_written_counts(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, own_identity())
    finish(layout, spec)
    (layout.active / spec.run_id).touch()
    lock = RunLock.acquire(layout.run(spec.run_id).lock)
    assert lock is not None
    with lock:
        assert is_live(layout)


def test_all_sessions_are_listed_and_a_damaged_one_hides_none(layout: Layout) -> None:
    for session_id in ("b", "a", "c"):
        prepare_session(layout, session_id)
    layout.session("c").session_file.write_text("{")
    problems: list[str] = []
    assert list_sessions(layout, on_problem=lambda _, error: problems.append(error.message)) == ["a", "b"]
    assert len(problems) == 1


# The registry of a host. ---------------------------------------------------------------------------------------------


def provider(is_active: Callable[[], Any] = lambda: True, **fields: Any) -> LivenessProvider:
    return LivenessProvider(**{"name": "p", "session_id": "id", "session_file": FILE, **fields}, is_active=is_active)


def test_its_name_is_the_contract_s() -> None:
    assert (REGISTRY_KEY, LivenessRegistry.version) == ("@agegr/pi-web/session-liveness/v1", 1)


@pytest.mark.parametrize(
    ("named", "is_found"),
    [
        ({"session_id": "id"}, True),
        ({"session_file": FILE}, True),
        ({"session_id": FILE}, True),
        ({"session_id": "id", "session_file": "/other"}, True),
        ({"session_id": "other", "session_file": FILE}, True),
        ({"session_id": "other", "session_file": "/other"}, False),
        ({"session_id": ""}, False),
        ({}, False),
    ],
    ids=str,
)
def test_either_form_of_a_session_s_id_finds_its_provider(named: dict[str, str], is_found: bool) -> None:
    registry = LivenessRegistry()
    registry.register(provider())
    assert registry.has_active_provider(**named) is is_found


def test_a_provider_without_a_file_is_not_found_by_none() -> None:
    registry = LivenessRegistry()
    registry.register(provider(session_file=None))
    assert not registry.has_active_provider(session_id="other", session_file=None)


@pytest.mark.parametrize("answer", [True, None, 0, "", 1, "no"], ids=repr)
def test_anything_but_no_is_active(answer: object) -> None:
    registry = LivenessRegistry()
    registry.register(provider(lambda: answer))
    assert registry.has_active_provider(session_id="id")


def test_no_is_not_active_and_one_of_several_is_enough() -> None:
    registry = LivenessRegistry()
    registry.register(provider(lambda: False))
    assert not registry.has_active_provider(session_id="id")
    registry.register(provider(lambda: True))
    assert registry.has_active_provider(session_id="id")


def test_an_error_is_active() -> None:
    registry = LivenessRegistry()
    registry.register(provider(lambda: 1 / 0))
    assert registry.has_active_provider(session_id="id")


@pytest.mark.parametrize("fields", [{"name": " "}, {"session_id": ""}, {"is_active": 3}], ids=str)
def test_a_provider_without_a_name_a_session_or_a_function_is_refused(fields: dict[str, Any]) -> None:
    (field,) = fields
    with pytest.raises(InvalidArgumentError) as caught:
        LivenessRegistry().register(provider(**fields))
    assert caught.value.field == field


def test_a_release_may_be_called_twice_and_takes_back_its_own_alone() -> None:
    registry = LivenessRegistry()
    first, second = registry.register(provider()), registry.register(provider())
    first()
    first()
    assert registry.has_active_provider(session_id="id")
    second()
    assert not registry.has_active_provider(session_id="id")


class Registry:
    """A host's registry of some shape."""

    def __init__(self, version: object = 1, release: object = None, error: Exception | None = None) -> None:
        self.version = version
        self.registered: list[LivenessProvider] = []
        self._release = release
        self._error = error

    def register(self, each: LivenessProvider) -> object:
        if self._error is not None:
            raise self._error
        self.registered.append(each)
        return self._release


@pytest.mark.parametrize("version", [2, "1", True, None], ids=repr)
def test_a_registry_of_another_version_is_left_alone(version: object) -> None:
    registry = Registry(version)
    reports: list[str] = []
    announce(registry, provider(), lambda what, _: reports.append(what))()
    assert (registry.registered, reports) == ([], [])


@pytest.mark.parametrize("registry", [None, {}, 3], ids=repr)
def test_what_is_no_registry_is_left_alone(registry: object) -> None:
    announce(registry, provider(), lambda *_: pytest.fail("nothing to report"))()


FAILING = [Registry(error=RuntimeError("no")), Registry(release=None), Registry(release=7)]


@pytest.mark.parametrize("registry", FAILING, ids=["raises", "none", "7"])
def test_a_registry_that_fails_is_reported_and_breaks_nothing(registry: Registry) -> None:
    reports: list[str] = []
    announce(registry, provider(), lambda what, _: reports.append(what))()
    assert len(reports) == 1


# What pisub's own host says. -----------------------------------------------------------------------------------------


def own(layout: Layout, *, has_ends: Callable[[], bool] = lambda: False) -> SessionLiveness:
    return SessionLiveness(
        layout,
        SESSION,
        clock=FakeClock(wall_ms=NOW_MS),
        report=lambda what, error: pytest.fail(f"{what} {error}"),
        has_ends=has_ends,
        is_host=lambda: True,
    )


def test_a_host_is_its_session_s_provider_until_it_ends(layout: Layout) -> None:
    registry = LivenessRegistry()
    session = own(layout)
    session.announce(registry, None)
    assert not registry.has_active_provider(session_id=SESSION)
    submit(layout)
    assert registry.has_active_provider(session_id=SESSION)
    session.close()
    session.close()
    assert not registry.has_active_provider(session_id=SESSION)


def test_a_host_is_registered_under_the_contract_s_name(layout: Layout) -> None:
    registry = Registry(release=lambda: None)
    own(layout).announce(registry, FILE)
    (found,) = registry.registered
    assert (found.name, found.session_id, found.session_file) == ("pi-subagents", SESSION, FILE)


def test_runs_recorded_under_the_session_s_file_count_too(layout: Layout) -> None:
    registry = LivenessRegistry()
    own(layout).announce(registry, FILE)
    submit(layout, session_id=FILE)
    assert registry.has_active_provider(session_id=SESSION)


def test_ends_that_are_still_to_be_told_count(layout: Layout) -> None:
    life = own(layout, has_ends=lambda: True).life()
    assert (life.is_live, life.reasons) == (True, ("completions",))


def test_an_outbox_that_cannot_be_read_counts(layout: Layout) -> None:
    def broken() -> bool:
        raise OSError(5, "Input/output error")

    registry = LivenessRegistry()
    own(layout, has_ends=broken).announce(registry, None)
    assert registry.has_active_provider(session_id=SESSION)
    answer = asyncio.run(own(layout, has_ends=broken).answer(Any, Any))  # type: ignore[arg-type]
    assert answer.is_live


def test_history_that_was_told_does_not_count(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, own_identity())
    finish(layout, spec)
    outbox = Outbox(layout, SESSION)
    for completion in outbox.pending():
        outbox.done(completion)
    assert not own(layout).life().is_live
