"""Messages to a working child, in files: requests in, a capability and acknowledgements out, and the inbox's end.

A request is a file of its own; the runner removes it and then hands it on, so a request that cannot be removed is
somebody else's. An acknowledgement is a file of its own too, and is never changed. What does not parse is ignored.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Final, TypeVar

from pisub.errors import InvalidArgumentError, RecordError, RefusedError, UnknownRunError
from pisub.ids import new_id
from pisub.protocol.base import Record
from pisub.protocol.limits import (
    MAX_STEER_ACK_CHARS,
    MAX_STEER_BYTES,
    MAX_STEER_ID_CHARS,
    MAX_STEER_SOURCE_CHARS,
)
from pisub.record.atomic import encode_record, exists, read_record, remove, write_new
from pisub.record.dirs import check_dir, list_names, make_dir
from pisub.record.layout import RunPaths
from pisub.runs.receipts import Ack
from pisub.runs.steering import NEVER_RELEASED, AckState, Mode
from pisub.utf8 import is_utf8

PROTOCOL_VERSION: Final = 1
MAX_TARGET_INDEX: Final = 1_000_000
MAX_TARGETS: Final = 1_000
#: Names that one acknowledgement may try; then somebody is flooding (contract, runs 4.2).
_MAX_SUFFIXES: Final = 1_000
_MAX_NAME_CHARS: Final = 200
_RANK: Final = {AckState.QUEUED: 0, AckState.DELIVERED: 1, AckState.FAILED: 2}
T = TypeVar("T", bound=Record)


class SteerRequest(Record, frozen=True, kw_only=True):
    """``steer-requests/<ts>-<id>.json``: one message. Mode ``steer`` is left out, as the default."""

    type: str = "steer"
    id: str
    #: Unix milliseconds; messages are delivered by this, then by id.
    ts: int
    message: str
    mode: Mode = Mode.STEER
    target_index: int | None = None
    target_indexes: tuple[int, ...] = ()
    source: str = ""


class SteerCapability(Record, frozen=True, kw_only=True, omit_defaults=False):
    """``steer-capabilities/<i>.json``: whether a child reads messages. Written once it is known."""

    type: str = "steer-capability"
    protocol_version: int = PROTOCOL_VERSION
    index: int = 0
    pid: int
    ready_at: int
    supported: bool


class SteerAck(Record, frozen=True, kw_only=True, omit_defaults=False):
    """``steer-acks/<i>/<ts>-<rank>-<id>.json``: one word about one request. Create-once; several for one request."""

    type: str = "steer-ack"
    protocol_version: int = PROTOCOL_VERSION
    request_id: str
    index: int = 0
    ts: int
    state: AckState
    message: str


class SteerInboxClosed(Record, frozen=True, kw_only=True, omit_defaults=False):
    """``steer-inbox-closed.json``: from here on a message cannot be sent."""

    type: str = "steer-inbox-closed"
    ts: int
    reason: str


def make_request(
    message: str, *, now_ms: int, mode: Mode = Mode.STEER, request_id: str | None = None, source: str = ""
) -> SteerRequest:
    """Make a request and check its bounds.

    Raises:
        InvalidArgumentError: One of them is broken; ``field`` says which.
    """
    request = SteerRequest(
        id=new_id(at_ms=now_ms) if request_id is None else request_id,
        ts=now_ms,
        message=message.strip(),
        mode=mode,
        source=source,
    )
    check_request(request)
    return request


def check_request(request: SteerRequest) -> None:
    """Pass for a request that is within its bounds (contract, runs 4.2).

    Raises:
        InvalidArgumentError: It is not; ``field`` says where.
    """
    text = request.message
    if not is_utf8(text):
        raise InvalidArgumentError("The message is not valid UTF-8 text.", field="message")
    if not text.strip():
        raise InvalidArgumentError("The message is empty: say what the agent should know.", field="message")
    if len(text.encode()) > MAX_STEER_BYTES:
        raise InvalidArgumentError(
            f"The message has {len(text.encode())} bytes; at most {MAX_STEER_BYTES} are allowed.", field="message"
        )
    name = request.id
    if not 1 <= len(name) <= MAX_STEER_ID_CHARS or any(map(str.isspace, name)) or not is_utf8(name):
        raise InvalidArgumentError(
            f"A request id has 1 to {MAX_STEER_ID_CHARS} characters and no white space.", field="id"
        )
    if not 0 <= request.ts < 10**13:
        raise InvalidArgumentError("The moment of a request is Unix time in milliseconds.", field="ts")
    if request.source and (not request.source.strip() or len(request.source) > MAX_STEER_SOURCE_CHARS):
        raise InvalidArgumentError(
            f"A source has at most {MAX_STEER_SOURCE_CHARS} characters, not only white space.", field="source"
        )
    _check_targets(request)


def _check_targets(request: SteerRequest) -> None:
    if request.target_index is not None and request.target_indexes:
        raise InvalidArgumentError("Give one target or a list, not both.", field="targetIndexes")
    if request.target_index is not None and not 0 <= request.target_index <= MAX_TARGET_INDEX:
        raise InvalidArgumentError(f"A target is 0 to {MAX_TARGET_INDEX}.", field="targetIndex")
    indexes = request.target_indexes
    if len(indexes) > MAX_TARGETS or len(set(indexes)) != len(indexes):
        raise InvalidArgumentError(f"A list has 1 to {MAX_TARGETS} different targets.", field="targetIndexes")
    if not all(0 <= index <= MAX_TARGET_INDEX for index in indexes):
        raise InvalidArgumentError(f"A target is 0 to {MAX_TARGET_INDEX}.", field="targetIndexes")


def request_steer(paths: RunPaths, request: SteerRequest) -> None:
    """Put a message into the inbox. The same request again changes nothing.

    Raises:
        InvalidArgumentError: A bound is broken.
        UnknownRunError: There is no such run.
        RefusedError: The inbox is closed, code ``inbox_closed``. Nothing is left there.
        OSError: The disk is full, or the like.
    """
    check_request(request)
    if not check_dir(paths.dir):
        raise UnknownRunError(f"There is no run {paths.run_id}.")
    _refuse_closed(paths)
    path = paths.steer_requests / request_name(request)
    try:
        make_dir(paths.steer_requests)
        write_new(path, encode_record(request), fsync=False)
    except FileNotFoundError:
        raise UnknownRunError(f"There is no run {paths.run_id}.") from None
    if exists(paths.steer_inbox_closed) and remove(path):  # closed meanwhile, and whoever closed it did not see ours
        _refuse_closed(paths)


def take_requests(paths: RunPaths, *, limit: int = 1_000) -> list[SteerRequest]:
    """Take what is in the inbox, by time and then id. By the runner, or who finishes its record.

    One that does not parse is removed; one that cannot be removed is left, and not returned.
    """
    taken: list[SteerRequest] = []
    for name in sorted(list_names(paths.steer_requests))[:limit]:
        path = paths.steer_requests / name
        request = _read(path, SteerRequest)
        try:
            if not remove(path):
                continue
        except OSError:
            continue
        if request is not None and request.type == "steer":
            taken.append(request)
    return sorted(taken, key=lambda each: (each.ts, each.id))


def is_waiting(paths: RunPaths, request: SteerRequest) -> bool:
    """Tell whether a request still lies in the inbox."""
    return exists(paths.steer_requests / request_name(request))


def write_capability(paths: RunPaths, capability: SteerCapability) -> None:
    """Say whether a child can be steered. The first word stands."""
    make_dir(paths.steer_capabilities)
    write_new(paths.steer_capabilities / f"{capability.index}.json", encode_record(capability), fsync=False)


def read_capability(paths: RunPaths, index: int = 0) -> SteerCapability | None:
    """Read whether a child can be steered; None while that is not known."""
    return _read(paths.steer_capabilities / f"{index}.json", SteerCapability)


def write_ack(paths: RunPaths, ack: SteerAck) -> None:
    """Write down one word about a request; the same word twice is one.

    Raises:
        RefusedError: Too many words about one request, code ``queue_full``.
        OSError: The disk is full, or the like; write it again.
    """
    ack = _cut(ack)
    directory = paths.steer_acks / str(ack.index)
    make_dir(paths.steer_acks)
    make_dir(directory)
    stem = f"{ack.ts:013d}-{_RANK[ack.state]}-{encoded_id(ack.request_id)}"
    data = encode_record(ack)
    for suffix in range(_MAX_SUFFIXES):
        path = directory / (f"{stem}.json" if not suffix else f"{stem}.{suffix}.json")
        if write_new(path, data, fsync=False) or _read(path, SteerAck) == ack:
            return
    raise RefusedError("The acknowledgement queue is full.", code="queue_full")


def read_acks(paths: RunPaths, request_id: str, index: int = 0) -> list[Ack]:
    """Read what a child said about a request: by time, then queued, delivered, failed."""
    mark = f"-{encoded_id(request_id)}."
    return [
        Ack(state=ack.state, at=ack.ts, text=ack.message)
        for ack in _acks(paths, index, mark)
        if ack.request_id == request_id
    ]


def close_inbox(paths: RunPaths, *, reason: str, now_ms: int) -> int:
    """Let no message in any more, and fail what has no last word. Idempotent. Returns how many failed.

    Raises:
        OSError: The disk is full, or the like. Call again.
    """
    if not check_dir(paths.control):
        return 0
    closed = SteerInboxClosed(ts=now_ms, reason=reason)
    is_first = write_new(paths.steer_inbox_closed, encode_record(closed), fsync=False)
    late = take_requests(paths)
    for request in late:
        write_ack(paths, _failed(request.id, f"{reason} The message came too late.", now_ms))
    if not is_first and not late:
        return 0
    words: dict[str, set[AckState]] = {}
    for ack in _acks(paths, 0, ""):
        words.setdefault(ack.request_id, set()).add(ack.state)
    left = [each for each, states in words.items() if states == {AckState.QUEUED}]
    for request_id in left:
        write_ack(paths, _failed(request_id, NEVER_RELEASED, now_ms))
    return len(late) + len(left)


def is_inbox_closed(paths: RunPaths) -> bool:
    """Tell whether the run takes no messages any more."""
    return exists(paths.steer_inbox_closed)


def request_name(request: SteerRequest) -> str:
    """Return the name of a request's file, which any id can have."""
    return f"{request.ts:013d}-{encoded_id(request.id)}.json"


def _refuse_closed(paths: RunPaths) -> None:
    if exists(paths.steer_inbox_closed):
        raise RefusedError(
            f"Run {paths.run_id} is over: it takes no messages (`pisub resume` goes on with it).", code="inbox_closed"
        )


def _acks(paths: RunPaths, index: int, mark: str) -> list[SteerAck]:
    directory = paths.steer_acks / str(index)
    found = [_read(directory / name, SteerAck) for name in list_names(directory) if mark in name]
    acks = [ack for ack in found if ack is not None and ack.type == "steer-ack" and ack.index == index]
    return sorted(acks, key=lambda ack: (ack.ts, _RANK[ack.state]))


def _failed(request_id: str, text: str, now_ms: int) -> SteerAck:
    return SteerAck(request_id=request_id, ts=now_ms, state=AckState.FAILED, message=text)


def _cut(ack: SteerAck) -> SteerAck:
    text = ack.message.strip()[:MAX_STEER_ACK_CHARS] or ack.state.value
    return SteerAck(request_id=ack.request_id, index=ack.index, ts=ack.ts, state=ack.state, message=text)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return read_record(path, kind)
    except (RecordError, OSError):
        return None


def encoded_id(request_id: str) -> str:
    """Return an id as a part of a file name: base64url, or a digest where that is too long for a name."""
    data = request_id.encode()
    text = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    return text if len(text) <= _MAX_NAME_CHARS else f"~sha256-{hashlib.sha256(data).hexdigest()}"
