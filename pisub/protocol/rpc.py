"""RPC v1: what a program that is not the host may have the host of a session do (contract, runs 1).

Requests and replies are open values: a request is checked by the host field by field, in an order that is part of the
contract, so nothing of it is decoded more strictly here.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, UnsetType

from pisub.protocol.base import Message, Part

RPC_VERSION: Final = 1
RPC_READY_TOPIC: Final = "subagents:rpc:v1:ready"
RPC_REQUEST_TOPIC: Final = "subagents:rpc:v1:request"
RPC_REPLY_PREFIX: Final = "subagents:rpc:v1:reply:"
#: Stands for a request id that cannot be part of a topic.
UNKNOWN_REQUEST: Final = "unknown"
RPC_METHODS: Final = ("ping", "status", "manage", "spawn", "steer", "interrupt", "stop", "resume")


class RpcRequest(Message, frozen=True, kw_only=True, tag=RPC_REQUEST_TOPIC):
    """Wants one ``RpcReply``: by a CALL to the role ``host``, or published on ``RPC_REQUEST_TOPIC``."""

    version: Any = UNSET
    request_id: Any = UNSET
    method: Any = UNSET
    params: Any = UNSET
    source: Any = UNSET


class RpcFault(Part, frozen=True, kw_only=True):
    """Why there is no result; ``code`` is one of the eight of the contract."""

    code: str
    message: str


class RpcReply(Message, frozen=True, kw_only=True, tag="subagents:rpc:v1:reply"):
    """The one answer to a request, also published on ``subagents:rpc:v1:reply:<requestId>``."""

    version: int
    request_id: str
    #: Of a failure: only where the request named one that there is.
    method: str | UnsetType = UNSET
    success: bool
    data: Any = UNSET
    error: RpcFault | UnsetType = UNSET


class RpcReady(Message, frozen=True, kw_only=True, tag=RPC_READY_TOPIC):
    """A host took its session's role: what ``ping`` answers, too."""

    version: int
    methods: tuple[str, ...]
    capabilities: dict[str, Any]
    events: dict[str, str]
    session: dict[str, Any]


RpcMessage = RpcRequest | RpcReply | RpcReady
