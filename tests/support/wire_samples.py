"""One value of every message, made from its own declaration, so that a new message or key cannot be forgotten."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from msgspec import inspect

from pisub.bodies import BodyReference
from pisub.protocol import checkpoint, delegation, rpc, runs, seams, session
from pisub.protocol.base import Message
from pisub.protocol.delivery import Fence, Header, Kind, Priority, Stamp

HEADERS = {
    "header-least": Header(kind=Kind.TELL),
    "header-whole": Header(
        kind=Kind.CALL,
        priority=Priority.TERMINAL,
        message_id=2**40,
        correlation_id=300,
        scope="session",
        topic="topic",
        to="client:a@1700000000000000000",
        fence=Fence("epoch", 7),
        ttl_ms=70_000,
        flags=13,
        trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ),
}
STAMPS = {
    "stamp-broker": Stamp(epoch="epoch"),
    "stamp-peer": Stamp(
        sender="client:a", incarnation=1_700_000_000_000_000_000, authority=31, epoch="epoch", dropped=9
    ),
}


def messages() -> dict[str, type[Message]]:
    """Every message of the wire, by its tag."""
    unions = (
        session.ControlRequest,
        session.BrokerMessage,
        checkpoint.CheckpointMessage,
        delegation.DelegationMessage,
        rpc.RpcMessage,
        seams.SeamMessage,
        runs.RunMessage,
    )
    found = [
        session.Hello,
        session.Arrived,
        BodyReference,
        *(kind for union in unions for kind in get_args(union)),
    ]
    return {str(kind.__struct_config__.tag): kind for kind in found}


def sample(kind: type[Any], *, is_whole: bool) -> Any:
    """Make a value: with every key set to something that is no default, or with the keys alone that must be there."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return msgspec.convert(_struct(info, is_whole=is_whole), kind, str_keys=True)


def _struct(info: inspect.StructType, *, is_whole: bool) -> dict[str, Any]:
    made: dict[str, Any] = {} if info.tag is None else {str(info.tag_field): info.tag}
    for field in info.fields:
        if is_whole or field.required:
            made[field.encode_name] = _value(field.type, field.encode_name, is_whole=is_whole)
    return made


def _value(info: inspect.Type, name: str, *, is_whole: bool) -> Any:  # noqa: PLR0911  # one type a line
    match info:
        case inspect.BoolType():
            return name != "isConnected"  # the one that is true by default
        case inspect.IntType():
            return len(name) * 1_000 + 7
        case inspect.StrType():
            return f"{name} ü"
        case inspect.EnumType(cls):
            return list(cls)[-1].value
        case inspect.LiteralType(values):
            return values[-1]
        case inspect.FloatType():
            return len(name) + 0.5
        case inspect.StructType():
            return _struct(info, is_whole=is_whole)
        case inspect.VarTupleType(item) | inspect.CollectionType(item):
            return [_value(item, name, is_whole=is_whole)]
        case inspect.DictType(key, item):
            return {3 if isinstance(key, inspect.IntType) else "key": _value(item, name, is_whole=is_whole)}
        case inspect.UnionType(types):
            return _value(
                next(each for each in types if not isinstance(each, inspect.NoneType)), name, is_whole=is_whole
            )
        case inspect.AnyType():
            return [1, "any"]
        case _:
            raise AssertionError(f"no sample for {info}")
