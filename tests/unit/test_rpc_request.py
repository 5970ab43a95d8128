"""Requests of RPC v1: what is checked in which order, and what is left of the parameters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pisub.hosting import rpc_request as rpc
from pisub.protocol.rpc import RPC_METHODS, RpcFault, RpcReply


def code_of(payload: object, *, has_session: bool = True) -> tuple[str, str, object]:
    """Return the code of a refused request, its reply's id, and the method that it names."""
    found = rpc.parse_request(payload, has_session=has_session)
    assert isinstance(found, RpcReply), found
    assert isinstance(found.error, RpcFault)
    return found.error.code, found.request_id, found.method if isinstance(found.method, str) else None


def call_of(method: str, params: Any = None) -> rpc.Call:
    payload = {"version": 1, "requestId": "r", "method": method, **({} if params is None else {"params": params})}
    found = rpc.parse_request(payload, has_session=True)
    assert isinstance(found, rpc.Request), found
    return found.call


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ([], ("invalid_request", "unknown", None)),
        (None, ("invalid_request", "unknown", None)),
        ({}, ("invalid_request", "unknown", None)),
        ({"requestId": "a\nb", "version": 1, "method": "ping"}, ("invalid_request", "unknown", None)),
        ({"requestId": "a\rb"}, ("invalid_request", "unknown", None)),
        ({"requestId": "  "}, ("invalid_request", "unknown", None)),
        ({"requestId": 7}, ("invalid_request", "unknown", None)),
        ({"requestId": " r ", "version": "1", "method": "ping"}, ("unsupported_version", " r ", "ping")),
        ({"requestId": "r", "version": True, "method": "ping"}, ("unsupported_version", "r", "ping")),
        ({"requestId": "r", "version": 2, "method": "nothing"}, ("unsupported_version", "r", None)),
        ({"requestId": "r", "version": 1}, ("unsupported_method", "r", None)),
        ({"requestId": "r", "version": 1.0, "method": "kill"}, ("unsupported_method", "r", None)),
        ({"requestId": "r", "version": 1, "method": ["ping"]}, ("unsupported_method", "r", None)),
        ({"requestId": "r", "version": 1, "method": "status", "params": None}, ("invalid_params", "r", "status")),
        ({"requestId": "r", "version": 1, "method": "stop", "params": []}, ("invalid_params", "r", "stop")),
    ],
)
def test_the_first_thing_that_is_wrong_is_said(payload: object, expected: tuple[str, str, object]) -> None:
    assert code_of(payload) == expected


@pytest.mark.parametrize("method", RPC_METHODS)
def test_without_a_session_only_a_ping_is_answered(method: str) -> None:
    payload = {"requestId": "r", "version": 1, "method": method, "params": None}
    if method == "ping":
        assert isinstance(rpc.parse_request(payload, has_session=False), rpc.Request)
    else:
        assert code_of(payload, has_session=False) == ("no_active_session", "r", method)


@pytest.mark.parametrize(
    ("method", "params", "call"),
    [
        ("ping", {"anything": 1}, rpc.Ping()),
        ("status", {"unknown": 1}, rpc.Status(rpc.Target(), None, None)),
        (
            "status",
            {"runId": "abc", "index": 1.0, "view": "transcript", "lines": 500},
            rpc.Status(rpc.Target(id="abc", index=1), "transcript", 500),
        ),
        ("manage", {"action": "schedule.list"}, rpc.Manage("schedule.list", None)),
        ("manage", {"action": "schedule.run", "id": " x "}, rpc.Manage("schedule.run", "x")),
        ("steer", {"id": "", "dir": "/d", "message": " m "}, rpc.Steer(rpc.Target(directory="/d"), "m", "steer")),
        ("steer", {"id": "i", "message": "m", "mode": "auto"}, rpc.Steer(rpc.Target(id="i"), "m", "auto")),
        ("interrupt", {}, rpc.Interrupt(rpc.Target())),
        ("stop", {"runId": "i"}, rpc.Stop(rpc.Target(id="i"))),
        (
            "resume",
            {"id": "i", "message": "m", "output": " o ", "outputMode": "file-only"},
            rpc.Resume(rpc.Target(id="i"), "m", "o"),
        ),
        ("resume", {"id": "i", "message": "m", "outputMode": "file-only"}, rpc.Resume(rpc.Target(id="i"), "m", None)),
    ],
)
def test_what_is_kept_of_the_parameters(method: str, params: dict[str, Any], call: rpc.Call) -> None:
    assert call_of(method, params) == call


def test_a_spawn_keeps_its_parameters_and_trims_the_agent() -> None:
    params = {"agent": " scout ", "task": " t ", "model": "m", "async": True}
    assert call_of("spawn", params) == rpc.Spawn("scout", " t ", params)
    script = {"workflowScript": "x"}
    assert call_of("spawn", script) == rpc.Spawn("", "", script)


@pytest.mark.parametrize(
    ("method", "params", "says"),
    [
        ("status", {"index": -1}, "index"),
        ("status", {"index": True}, "index"),
        ("status", {"view": "all"}, "view"),
        ("status", {"lines": 0}, "lines"),
        ("status", {"lines": 501}, "lines"),
        ("status", {"id": 7, "runId": 8}, "id must be a text; runId must be a text"),
        ("manage", {"action": "mission.close", "id": 7}, "action must be one of schedule.list"),
        ("manage", {"action": "schedule.show", "id": " "}, "id must be a text"),
        ("manage", {"action": "schedule.show"}, "schedule.show requires id"),
        ("spawn", {"async": False, "agent": "a", "task": "t"}, "detached async"),
        ("spawn", {"action": "stop", "agent": "a", "task": "t"}, "management"),
        ("spawn", {"isolation": "vm", "agent": "a", "task": "t"}, "isolation"),
        ("spawn", {"isolation": "none", "worktree": True}, "worktree"),
        ("spawn", {"workflowKey": "k", "clarify": True}, "workflowKey"),
        ("spawn", {"clarify": False, "agent": "a", "task": "t"}, "clarify"),
        ("spawn", {"tasks": [], "agent": "a", "task": "t"}, "tasks"),
        ("spawn", {"config": {"steps": []}, "agent": "a", "task": "t"}, "config.steps"),
        ("spawn", {"workflowScript": "x", "task": "t"}, "does not go with"),
        ("spawn", {"workflowScript": " "}, "not blank"),
        ("spawn", {"agent": " ", "task": "t"}, "requires agent"),
        ("spawn", {"agent": "a"}, "task must be a text"),
        ("spawn", {"agent": "a", "task": "t", "timeoutMs": 0}, "timeoutMs"),
        ("steer", {"message": " ", "mode": "loud"}, "message"),
        ("steer", {"message": "m", "mode": "loud"}, "One of id"),
        ("steer", {"message": "m", "id": "i", "mode": "loud"}, "mode"),
        ("resume", {"id": "i"}, "message"),
        ("resume", {"message": "m", "output": " "}, "One of id"),
        ("resume", {"message": "m", "id": "i", "output": " ", "outputMode": "x"}, "output must"),
        ("resume", {"message": "m", "id": "i", "outputMode": "inline"}, "outputMode"),
        ("stop", {"dir": 7}, "dir"),
    ],
)
def test_parameters_that_are_not_allowed_are_named_in_order(method: str, params: dict[str, Any], says: str) -> None:
    payload = {"requestId": "r", "version": 1, "method": method, "params": params}
    assert code_of(payload) == ("invalid_params", "r", method)
    reply = rpc.parse_request(payload, has_session=True)
    assert isinstance(reply, RpcReply)
    assert isinstance(reply.error, RpcFault)
    assert says in reply.error.message


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "version": st.just(1) | ANYTHING,
            "requestId": st.just("r") | ANYTHING,
            "method": st.sampled_from(RPC_METHODS) | ANYTHING,
            "params": ANYTHING
            | st.dictionaries(
                st.sampled_from(["id", "runId", "dir", "index", "message", "mode", "agent", "task", "action", "lines"]),
                ANYTHING,
                max_size=5,
            ),
        },
    )
    | ANYTHING
)
def test_any_payload_is_a_request_or_a_reply_that_says_what_is_wrong(payload: object) -> None:
    found = rpc.parse_request(payload, has_session=True)
    if isinstance(found, RpcReply):
        assert isinstance(found.error, RpcFault)
        assert "\n" not in rpc.reply_topic(found.request_id)
