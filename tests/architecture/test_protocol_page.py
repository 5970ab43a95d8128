"""A client in another language has docs/protocol.md alone: what it sends and meets is compared with the code."""

import ast
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import pisub.errors
from pisub import bodies
from pisub.process import ProcessIdentity
from pisub.protocol import checkpoint, limits, runs, session

ROOT = Path(__file__).parents[2]
PROTOCOL = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
CODES: dict[str, str] = {
    name: kind.code
    for name, kind in vars(pisub.errors).items()
    if isinstance(kind, type) and issubclass(kind, pisub.errors.PisubError)
}
#: What raises or refuses what a peer hears of. The rest of the broker is its start and its end, which no peer sees.
ANSWERING = (
    *(f"broker/{name}.py" for name in ("admission", "control", "core", "roles", "routing", "shell", "state", "topics")),
    "pisub/protocol/codec.py",
    "pisub/protocol/version.py",
)
#: How the page says a default that is no text.
STATED: dict[object, str] = {None: "nil", True: "default true", msgspec.UNSET: "absent"}
#: Where the code stands among the arguments of what hands it on.
CODE_PLACE = {"fail": 2, "refuse": 2, "MessageRefused": 1}
PARTS: dict[str, type[msgspec.Struct]] = {
    "process": ProcessIdentity,
    "held role": session.HeldRole,
    "subscription": session.Subscription,
    "peer": session.PeerStatus,
    "envelope": session.Envelope,
    "question": checkpoint.Question,
    "answer": checkpoint.Answer,
}


def documented_messages() -> dict[str, type[msgspec.Struct]]:
    unions = (session.ControlRequest, session.BrokerMessage, checkpoint.CheckpointMessage, runs.RunMessage)
    others = (session.Hello, session.Arrived, bodies.BodyReference)
    found = [*others, *(kind for union in unions for kind in get_args(union))]
    return {str(kind.__struct_config__.tag): kind for kind in found}


def described() -> list[tuple[str, type[msgspec.Struct], str]]:
    sections = dict(re.findall(r"^#### `([^`]+)`\n(.*?)(?=^#{2,4} |\Z)", PROTOCOL, re.MULTILINE | re.DOTALL))
    table = re.search(r"<!-- Parts -->\n(.*?)\n\n", PROTOCOL, re.DOTALL)
    assert table
    parts = dict(re.findall(r"^\| ([a-z ]+) \| (.*) \|$", table[1], re.MULTILINE))
    return [
        *((tag, kind, sections[tag]) for tag, kind in documented_messages().items()),
        *((name, kind, parts[name]) for name, kind in PARTS.items()),
    ]


@pytest.mark.parametrize(("kind", "text"), [each[1:] for each in described()], ids=[each[0] for each in described()])
def test_a_key_is_bold_where_it_must_be_there_and_a_default_that_is_not_empty_is_stated(
    kind: type[msgspec.Struct], text: str
) -> None:
    for field in msgspec.structs.fields(kind):
        assert f"`{field.encode_name}`" in text, field.encode_name
        assert (f"**`{field.encode_name}`**" in text) == field.required, field.encode_name
        default: Any = field.default
        if field.required or field.default_factory is not msgspec.NODEFAULT or default in ("", 0, False, ()):
            continue
        stated = f"default `{default}`" if isinstance(default, str) else STATED[default]
        assert stated in text, f"{field.encode_name}: {stated}"


def called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def codes_of(path: Path) -> set[str]:
    """Find the codes that a module gives: of the errors that it raises, and those that it writes out."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = called_name(node)
        place = CODE_PLACE.get(name)
        given = [each.value for each in node.keywords if each.arg == "code"]
        if place is not None and len(node.args) > place:
            given.append(node.args[place])
        if name in CODES and not given:
            found.add(CODES[name])
        if name in CODES or name in ("Failure", *CODE_PLACE):
            found.update(str(each.value) for each in given if isinstance(each, ast.Constant))
    return found


def table_of_codes() -> list[str]:
    table = re.search(r"<!-- Errors -->\n(.*?)\n\n", PROTOCOL, re.DOTALL)
    assert table
    return re.findall(r"^\| `(\w+)` \|", table[1], re.MULTILINE)


def test_the_table_of_codes_is_what_the_broker_sends() -> None:
    sent = {code for path in ANSWERING for code in codes_of(ROOT / path)}
    assert sorted(table_of_codes()) == sorted(sent)


def test_every_module_of_the_broker_that_raises_an_error_of_ours_is_looked_at() -> None:
    programs = {"broker/app.py", "broker/liveness.py", "broker/singleton.py", "broker/detach.py", "broker/__main__.py"}
    for path in (ROOT / "broker").glob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        assert name in ANSWERING or name in programs or not codes_of(path), name


def test_every_bound_that_a_peer_can_meet_is_stated_with_its_value() -> None:
    for key in ("MAX_SUBSCRIPTIONS", "MAX_WATCHES", "MAX_ROLES", "MAX_QUESTION_CHARS", "MAX_OPTION_CHARS",
                "MAX_ANSWER_CHARS"):  # fmt: skip
        assert f"| `{key}` | {getattr(limits, key):,} |" in PROTOCOL, key
