"""The supervisor channel's rules: what may be said, whom a reply is for, what it is, where a request stands."""

from __future__ import annotations

from typing import Any

import pytest

from pisub.errors import InvalidArgumentError
from pisub.runs.supervision import (
    Lifecycle,
    Reason,
    SupervisorReply,
    SupervisorRequest,
    check_request,
    choose,
    lifecycle,
    read_reply,
)


def request(number: int = 1, agent: str = "build", **more: Any) -> SupervisorRequest:
    fields: dict[str, Any] = {"reason": Reason.NEED_DECISION, "expects_reply": True, "created_at": 1_000, **more}
    return SupervisorRequest(
        id=f"{number}" * 26, orchestrator_session_id="s", run_id=f"{number + 4}" * 26, agent=agent, **fields
    )


@pytest.mark.parametrize(
    ("reason", "message", "interview", "field"),
    [
        ("need_decision", " ", None, "message"),
        ("progress_update", "", None, "message"),
        ("interview_request", "", None, "interview"),
        ("interview_request", "", ["a"], "interview"),
        ("need_decision", "x", {}, "interview"),
        ("progress_update", "x", {}, "interview"),
        ("other", "x", None, "reason"),
        ("need_decision", 3, None, "message"),
        ("need_decision", "half \ud800", None, "message"),
        ("need_decision", "x" * 65_536, None, "message"),
        ("interview_request", "", {"a": object()}, "interview"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_its_field(reason: str, message: Any, interview: Any, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_request(reason, message, interview)
    assert caught.value.field == field


def test_what_keeps_the_rules_is_taken() -> None:
    assert check_request("need_decision", "x", None) is Reason.NEED_DECISION
    assert check_request("interview_request", "", {"q": [1]}) is Reason.INTERVIEW_REQUEST
    assert [each.expects_reply for each in Reason] == [True, True, False]


def test_a_reply_means_exactly_one_request_or_none() -> None:
    one, two, three = request(1, "build"), request(2, "Test"), request(3, "test")
    everybody = [one, two, three]
    assert choose(everybody, reply_to=one.id) is one
    assert choose(everybody, to="BUILD") is one
    assert choose(everybody, to="2222") is two
    assert choose(everybody, to="7777") is three
    assert choose([two]) is two
    for pending, target in (
        (everybody, {}),
        ([], {}),
        (everybody, {"to": "test"}),
        (everybody, {"to": "nobody"}),
        (everybody, {"to": "222"}),
        (everybody, {"reply_to": "2222"}),
        ([one], {"reply_to": two.id}),
    ):
        with pytest.raises(InvalidArgumentError):
            choose(pending, **target)


@pytest.mark.parametrize("text", ['{"a": 1}', '```json\n{"a": 1}\n```', '```\n{"a": 1}\n```', '  ```JSON\n{"a": 1}```'])
def test_the_reply_to_an_interview_is_json_bare_or_in_a_fence(text: str) -> None:
    found = read_reply(request(reason=Reason.INTERVIEW_REQUEST), text)
    assert found == SupervisorReply(message=text, structured={"a": 1})


def test_a_reply_that_is_no_json_is_a_reply_all_the_same() -> None:
    found = read_reply(request(reason=Reason.INTERVIEW_REQUEST), "yes")
    assert (found.message, found.structured, bool(found.parse_error)) == ("yes", None, True)
    assert read_reply(request(), "yes") == SupervisorReply(message="yes")


@pytest.mark.parametrize(
    ("session_id", "is_ended", "is_run_over", "now_ms", "state"),
    [
        ("s", False, False, 1_999, Lifecycle.PENDING),
        ("s", False, False, 2_000, Lifecycle.EXPIRED),
        ("s", False, True, 1_999, Lifecycle.INACTIVE),
        ("s", True, True, 2_000, Lifecycle.RESOLVED),
        ("t", True, True, 2_000, Lifecycle.WRONG_SESSION),
    ],
)
def test_where_a_request_stands(
    session_id: str, is_ended: bool, is_run_over: bool, now_ms: int, state: Lifecycle
) -> None:
    found = lifecycle(
        request(expires_at=2_000), session_id=session_id, is_ended=is_ended, is_run_over=is_run_over, now_ms=now_ms
    )
    assert found is state
