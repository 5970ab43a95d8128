"""Whether a child is told of its supervisor, and how: the bridge. Pure; whoever calls reads the instruction's file.

It is for children whose tools pisub gives them. An agent with a runner of its own has no tool that the instruction
could name, and is told nothing.
"""

from __future__ import annotations

from typing import Final, cast

import msgspec

from pisub.protocol.base import Part
from pisub.protocol.limits import MAX_INSTRUCTION_NAME_BYTES

MODES: Final = ("off", "fork-only", "always")
TOOL: Final = "contact_supervisor"
#: Where an instruction wants to name the session that started the child.
TARGET: Final = "{orchestratorTarget}"
#: The target of a preflight that was given none.
PLACEHOLDER: Final = "preflight"
#: The first line of every instruction: a prompt that has it gets no second one.
MARKER: Final = "<!-- pisub: supervisor -->"
DEFAULT_INSTRUCTION: Final = f"""\
You were started by a session that goes on while you work and can answer you. The tool `{TOOL}` reaches it.

Ask it when you cannot go on without a decision that is not yours, or when what you found makes the task another one:
reason `need_decision`, with the choices as you see them. Tell it, without waiting, what it should know before you are
done: reason `progress_update`. Ask nothing that your task or the files answer, and nothing twice."""


class BridgeWish(Part, frozen=True, kw_only=True):
    """What a caller, or the configuration, wants of the bridge."""

    mode: str = "always"
    instruction_file: str | None = None
    result_delivery: bool = False


class BridgeState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``intercomBridge`` of a contract. Never active with mode off."""

    active: bool
    mode: str


class BridgeError(ValueError):
    """An override has a wrong shape; the sentence says which."""


def check_override(value: object) -> BridgeWish:
    """Return a caller's override; it replaces the configuration, and is not merged with it.

    Raises:
        BridgeError: It has a key, a mode or a type that it cannot have.
    """
    if not isinstance(value, dict):
        raise BridgeError("intercomBridge must be an object")
    given = cast("dict[object, object]", value)
    unknown = [str(key) for key in given if key not in ("mode", "instructionFile", "resultDelivery")]
    if unknown:
        raise BridgeError(
            f"intercomBridge has no key {unknown[0][:60]!a}; there are mode, instructionFile, resultDelivery"
        )
    mode, name, delivery = given.get("mode", "always"), given.get("instructionFile"), given.get("resultDelivery", False)
    if mode not in MODES:
        raise BridgeError(f"intercomBridge.mode must be one of {', '.join(MODES)}")
    if name is not None and (
        not isinstance(name, str) or len(name.encode("utf-8", "replace")) > MAX_INSTRUCTION_NAME_BYTES
    ):
        raise BridgeError(f"intercomBridge.instructionFile must be text of at most {MAX_INSTRUCTION_NAME_BYTES} bytes")
    if not isinstance(delivery, bool):
        raise BridgeError("intercomBridge.resultDelivery must be true or false")
    return BridgeWish(mode=str(mode), instruction_file=name or None, result_delivery=delivery)


def check_target(value: object) -> str | None:
    """Return the session that a child would contact; None where none is given.

    Raises:
        BridgeError: It is given, and blank or no text.
    """
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise BridgeError("orchestratorTarget must be text that is not blank")
    return value


def configured(table: dict[str, object]) -> BridgeWish:
    """Return what the configuration says. A mode that it does not know counts as ``always``."""
    mode, name = table.get("mode"), table.get("instructionFile")
    return BridgeWish(
        mode=str(mode) if mode in MODES else "always",
        instruction_file=name if isinstance(name, str) and name else None,
        result_delivery=table.get("resultDelivery") is True,
    )


def resolve_bridge(wish: BridgeWish, *, context: str, has_tools_of_ours: bool) -> BridgeState:
    """Return whether the bridge is active for a launch."""
    is_off = wish.mode == "off" or (wish.mode == "fork-only" and context != "fork")
    return BridgeState(active=has_tools_of_ours and not is_off, mode=wish.mode)


def with_instruction(prompt: str, instruction: str, target: str) -> str:
    """Return a prompt with the instruction below it, once."""
    if any(line.strip() == MARKER for line in prompt.splitlines()):
        return prompt
    text = f"{MARKER}\n{instruction.strip().replace(TARGET, target)}"
    return f"{prompt}\n\n{text}" if prompt else text
