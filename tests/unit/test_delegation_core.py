"""The state machine of structured delegation: one test for each rule of the contract (delegation 1.6 and 7)."""

from __future__ import annotations

from typing import Any

import pytest

from pisub.hosting import delegation_core as core
from pisub.hosting.delegation_core import DelegationCore, Launch, Publish, answer
from pisub.hosting.delegation_request import Attempt
from pisub.protocol.delegation import DelegationResponse, DelegationStarted, DelegationUpdate
from pisub.protocol.limits import MAX_DELEGATION_HISTORY


def ids(request: str = "r", owner: str = "o", node: str = "n") -> dict[str, Any]:
    return {"requestId": request, "ownerRunId": owner, "nodeId": node}


def request(*identity: str, **fields: Any) -> core.RequestCame:
    rest = {"agent": "a", "task": "t", "context": "fresh", "cwd": "/", "result": {"kind": "text"}}
    return core.RequestCame({**ids(*identity), **rest, **fields})


def cancel(*identity: str, **more: Any) -> core.CancelCame:
    return core.CancelCame({**ids(*identity), **more})


def ended(*identity: str, status: str = "completed", **fields: Any) -> core.Ended:
    attempt = Attempt(*ids(*identity).values())
    return core.Ended(attempt, answer(attempt, status, **fields))


class Host:
    """Hands events in and keeps what comes out, as a transcript."""

    def __init__(self, **options: Any) -> None:
        self.core = DelegationCore(**options)
        self.launched: list[Attempt] = []
        self.aborted: list[Attempt] = []
        self.published: list[DelegationStarted | DelegationUpdate | DelegationResponse] = []

    def feed(self, *events: core.DelegationEvent) -> list[str]:
        """Return the answers' statuses that these events brought."""
        before = len(self.published)
        for event in events:
            for effect in self.core.handle(event):
                match effect:
                    case Publish(message):
                        self.published.append(message)
                    case Launch(delegation):
                        self.launched.append(delegation.attempt)
                    case core.Abort(attempt):
                        self.aborted.append(attempt)
        return [each.status for each in self.published[before:] if isinstance(each, DelegationResponse)]

    @property
    def last(self) -> DelegationResponse:
        found = self.published[-1]
        assert isinstance(found, DelegationResponse)
        return found


def test_a_request_is_started_with_its_identity_and_answered_once() -> None:
    host = Host()
    assert host.feed(request()) == []
    assert host.published == [DelegationStarted(request_id="r", owner_run_id="o", node_id="n")]
    assert host.launched == [Attempt("r", "o", "n")]
    assert host.feed(ended()) == ["completed"]
    assert host.feed(ended()) == []


def test_a_retransmission_of_an_active_or_settled_attempt_is_silent() -> None:
    host = Host()
    assert host.feed(request(), request(), ended(), request(), request()) == ["completed"]
    assert len(host.launched) == 1


def test_the_same_request_id_of_another_owner_or_node_is_another_attempt() -> None:
    host = Host()
    host.feed(request("r", "o", "n"), request("r", "o2", "n"), request("r", "o", "n2"))
    assert len(host.launched) == 3
    assert host.feed(ended("r", "o", "n"), ended("r", "o2", "n"), ended("r", "o", "n2")) == ["completed"] * 3


def test_a_second_attempt_on_an_active_node_is_a_duplicate_once_and_leaves_the_first_alone() -> None:
    host = Host()
    assert host.feed(request("1"), request("2"), request("2")) == ["duplicate_node"]
    assert host.last.error is None
    assert host.feed(ended("1")) == ["completed"]
    assert host.feed(request("2")) == []
    assert host.feed(request("3"), ended("3")) == ["completed"]


def test_a_cancellation_that_comes_first_ends_the_attempt_before_it_starts() -> None:
    host = Host()
    assert host.feed(cancel(), request()) == ["cancelled"]
    assert (host.launched, host.published) == ([], [answer(Attempt("r", "o", "n"), "cancelled")])
    assert host.feed(request()) == []


@pytest.mark.parametrize(
    "event",
    [
        cancel("other", "o", "n"),
        cancel("r", "other", "n"),
        cancel("r", "o", "other"),
        cancel(more=1),
        core.CancelCame({"requestId": "r", "ownerRunId": "o"}),
        core.CancelCame({**ids(), "nodeId": " "}),
        core.CancelCame({**ids(), "nodeId": 1}),
        core.CancelCame([]),
        core.CancelCame(None),
    ],
)
def test_only_exactly_its_identity_cancels_an_attempt(event: core.CancelCame) -> None:
    host = Host()
    assert host.feed(request(), event) == []
    assert host.aborted == []
    assert host.feed(ended()) == ["completed"]


def test_a_cancelled_attempt_keeps_its_node_until_it_has_ended_and_ends_as_cancelled_whatever_it_said() -> None:
    host = Host()
    assert host.feed(request("1"), cancel("1"), cancel("1")) == []
    assert host.aborted == [Attempt("1", "o", "n")]
    assert host.feed(request("2")) == ["duplicate_node"]
    late = {"run_id": "run", "agent": "a", "model": "m", "result": {"kind": "text", "text": "late"}}
    assert host.feed(ended("1", **late)) == ["cancelled"]
    assert (host.last.run_id, host.last.model, host.last.result, host.last.error) == ("run", "m", None, None)
    assert host.feed(request("3"), ended("3")) == ["completed"]


def test_the_error_of_a_child_that_was_cancelled_is_kept_and_the_words_of_the_stop_are_not() -> None:
    host = Host()
    host.feed(request("1"), cancel("1"), ended("1", status="failed", error="broke"))
    assert (host.last.status, host.last.error) == ("cancelled", "broke")
    host.feed(request("2"), cancel("2"), ended("2", status="interrupted", error="Stopped."))
    assert (host.last.status, host.last.error) == ("cancelled", None)


def test_invalid_requests_are_answered_with_what_identity_they_have_and_settled_with_all_of_it() -> None:
    host = Host()
    assert host.feed(request("")) == []
    assert host.feed(core.RequestCame([])) == []
    assert host.feed(request("r", "")) == ["invalid_request"]
    assert (host.last.request_id, host.last.owner_run_id, host.last.node_id) == ("r", None, None)
    assert host.feed(request("r", "")) == ["invalid_request"]
    assert host.feed(request("r", "o", "")) == ["invalid_request"]
    assert (host.last.owner_run_id, host.last.node_id) == ("o", None)
    assert host.feed(request(version=1), request(version=1), request()) == ["invalid_request"]
    assert host.launched == []


def test_an_invalid_copy_of_an_active_attempt_changes_nothing() -> None:
    host = Host()
    assert host.feed(request(), request(version=1), ended()) == ["completed"]


def test_without_an_active_host_an_attempt_is_unavailable_and_settled() -> None:
    host = Host()
    host.core.is_active = False
    assert host.feed(request(), request()) == ["unavailable_context"]
    assert "No active extension context" in (host.last.error or "")


def test_a_full_history_of_cancellations_takes_no_new_attempt_and_still_knows_its_own() -> None:
    host = Host()
    host.feed(*(cancel(f"cancelled-{n}") for n in range(MAX_DELEGATION_HISTORY)))
    assert host.feed(request("cancelled-0")) == ["cancelled"]
    assert host.feed(request("new"), request("new")) == ["unavailable_context"] * 2
    assert "identity capacity" in (host.last.error or "")
    assert host.launched == []
    assert host.feed(request("cancelled-0")) == []


def test_a_full_history_of_settled_attempts_takes_no_new_one_and_stays_silent_to_the_old() -> None:
    host = Host()
    for n in range(MAX_DELEGATION_HISTORY):
        host.feed(request(f"settled-{n}"), ended(f"settled-{n}"))
    assert len([each for each in host.published if isinstance(each, DelegationResponse)]) == MAX_DELEGATION_HISTORY
    assert host.feed(request("new")) == ["unavailable_context"]
    assert host.feed(request("settled-0")) == []
    responses = [each for each in host.published if isinstance(each, DelegationResponse)]
    assert len(responses) == MAX_DELEGATION_HISTORY + 1


def test_the_history_is_full_at_exactly_its_bound_and_stays_so() -> None:
    host = Host(history=2)
    assert host.feed(cancel("1")) == []
    assert host.feed(request("a", "o", "a")) == []
    host.feed(cancel("2"))
    assert host.feed(request("b")) == ["unavailable_context"]
    assert host.feed(request("1"), request("b")) == ["cancelled", "unavailable_context"]
    host.feed(core.Reset())
    assert host.aborted == [Attempt("a", "o", "a")]
    assert host.feed(request("b"), ended("b")) == ["completed"]


def test_what_was_running_when_the_history_filled_is_answered_once_all_the_same() -> None:
    host = Host(history=2)
    host.feed(request("1", "o", "1"), request("2", "o", "2"), request("3", "o", "3"))
    assert host.feed(*(ended(n, "o", n) for n in "123")) == ["completed"] * 3
    assert host.feed(*(request(n, "o", n) for n in "123")) == []


def test_a_cancellation_of_a_settled_attempt_uses_up_a_place() -> None:
    host = Host(history=2)
    host.feed(request("1"), ended("1"), cancel("1"), cancel("other"))
    assert host.feed(request("2")) == ["unavailable_context"]


def test_after_a_reset_nothing_that_ran_is_answered() -> None:
    host = Host()
    host.feed(request(), core.Reset())
    assert host.aborted == [Attempt("r", "o", "n")]
    assert host.feed(ended()) == []


def update(**fields: Any) -> core.Progressed:
    attempt = Attempt("r", "o", "n")
    return core.Progressed(attempt, DelegationUpdate(**attempt._asdict(), **fields))


def test_updates_that_show_nothing_new_are_left_out_and_durations_are_nothing_new() -> None:
    host = Host()
    host.feed(request())
    host.published.clear()
    host.feed(
        update(run_id="x", duration_ms=1),
        update(run_id="x", duration_ms=2),
        update(run_id="x", duration_ms=3, tokens=0),
        update(run_id="x", tokens=0, tool_count=1),
        update(run_id="x", tokens=0, tool_count=1),
        update(run_id="x", tokens=0, tool_count=1, recent_output_lines=("a",)),
    )
    assert [each.duration_ms for each in host.published if isinstance(each, DelegationUpdate)] == [1, 3, None, None]
    host.feed(ended())
    assert host.feed(update(run_id="late")) == []
    assert isinstance(host.published[-1], DelegationResponse)


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ({"requestId": "r", "tasks": []}, "tasks/worktree"),
        ({"requestId": "r", "worktree": True}, "workflowScript"),
        (
            {"requestId": "r", "agent": "a", "task": "t", "model": "m", "cwd": "/", "context": "fork"},
            "Legacy prompt-template direct delegation was removed",
        ),
    ],
)
def test_payloads_of_older_forms_are_refused(payload: dict[str, Any], says: str) -> None:
    host = Host()
    host.feed(core.RequestCame(payload))
    assert (host.last.request_id, host.last.messages, host.last.is_error) == ("r", [], True)
    assert says in host.last.error_text
    assert (host.last.agent, host.last.context) == (payload.get("agent"), payload.get("context"))
    assert host.launched == []


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"tasks": []},
        {"requestId": 1, "tasks": []},
        {"requestId": "r", "agent": "a", "task": "t", "cwd": "/", "context": "fork"},
        {"requestId": "r", "agent": "a", "task": "t", "model": "m", "cwd": "/", "context": "other"},
        "text",
    ],
)
def test_anything_else_is_ignored(payload: object) -> None:
    host = Host()
    assert host.feed(core.RequestCame(payload)) == []
    assert host.published == []
