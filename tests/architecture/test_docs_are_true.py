"""The documents say what the code does, because they are compared with it."""

import re
from pathlib import Path

import msgspec
import pytest

from pisub.config import Settings
from pisub.protocol import checkpoint, delegation, limits, rpc, runs, seams, session
from pisub.protocol.delivery import Flag, Header, Kind, Priority, Stamp
from pisub.protocol.version import WIRE_VERSIONS

ROOT = Path(__file__).parents[2]
PROTOCOL = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
CONFIGURATION = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")


def messages() -> list[type[msgspec.Struct]]:
    to_and_from_broker = (session.ControlRequest, session.BrokerMessage, session.Hello)
    unions = (
        *to_and_from_broker,
        checkpoint.CheckpointMessage,
        delegation.DelegationMessage,
        rpc.RpcMessage,
        seams.SeamMessage,
        runs.RunMessage,
    )
    found: set[type[msgspec.Struct]] = set()
    for union in unions:
        found.update(getattr(union, "__args__", (union,)))
    return sorted(found, key=lambda kind: kind.__name__)


def constants(kind: type) -> dict[str, int]:
    return {key: value for key, value in vars(kind).items() if not key.startswith("_") and isinstance(value, int)}


@pytest.mark.parametrize("message", messages(), ids=lambda kind: kind.__name__)
def test_every_message_is_documented_with_all_its_keys(message: type[msgspec.Struct]) -> None:
    tag = message.__struct_config__.tag
    section = re.search(rf"^#### `{re.escape(str(tag))}`\n(.*?)(?=^####? |^## |\Z)", PROTOCOL, re.MULTILINE | re.DOTALL)
    assert section, f"docs/protocol.md has no section '#### `{tag}`'"
    for field in msgspec.structs.fields(message):
        assert f"`{field.encode_name}`" in section[1], f"{tag}: `{field.encode_name}` is not described"


@pytest.mark.parametrize("kind", [Kind, Priority, Flag])
def test_every_number_of_the_envelope_is_documented(kind: type) -> None:
    for key, value in constants(kind).items():
        assert re.search(rf"^\| {value} \| `{key}` \|", PROTOCOL, re.MULTILINE), f"{kind.__name__}.{key} = {value}"


def test_the_fields_of_header_and_stamp_are_listed_in_order() -> None:
    for struct in (Header, Stamp):
        listed = re.search(rf"<!-- {struct.__name__} -->\n(.*?)\n\n", PROTOCOL, re.DOTALL)
        assert listed
        names = re.findall(r"^\| \d+ \| `(\w+)` \|", listed[1], re.MULTILINE)
        assert names == list(struct.__struct_fields__)


def test_the_version_is_the_code_s() -> None:
    assert f"Wire version **{WIRE_VERSIONS[0]}**" in PROTOCOL


def test_every_bound_of_the_wire_is_stated_with_its_value() -> None:
    for key in ("MAX_BODY_BYTES", "MAX_HEADER_BYTES", "MAX_BODY_DEPTH", "MAX_TOPIC_CHARS", "HIGH_WATER_MARK",
                "MAX_PEER_QUEUE_BYTES", "MAX_OPEN_CALLS", "MAX_KEPT_ANSWERS", "HELLO_TIMEOUT_S", "WELCOME_TIMEOUT_S",
                "RESUME_GRACE_S", "SETTLE_S", "KEEP_ANSWER_S", "MAX_QUESTIONS", "MAX_OPTIONS",
                "MAX_BUNDLE_PARTS", "MAX_ROUTED_IDS"):  # fmt: skip
        value = getattr(limits, key)
        assert f"| `{key}` | {value:,} |" in PROTOCOL or f"| `{key}` | {value:g} |" in PROTOCOL, key


def test_every_setting_is_documented_with_its_variable() -> None:
    for field in msgspec.structs.fields(Settings):
        assert f"| `{field.name}` | `PISUB_{field.name.upper()}` |" in CONFIGURATION, field.name
