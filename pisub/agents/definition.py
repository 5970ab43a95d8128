"""One agent, as a value: what its file may say, what follows from it for asking, and the snapshot that a run keeps.

This module owns the fields and their defaults; ``parsing`` reads them, ``discovery`` finds the files. It reads nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pisub.errors import InvalidAgentError
from pisub.runs.budgets import ToolBudget
from pisub.runs.spec import AgentSnapshot, RunnerSpec

RUNNER_TYPES = ("python", "external-cli")
#: The extension that lets a child ask the human: named in `extensions` it arms, as `ext:` in `tools` it grants.
ASKING_EXTENSION = "checkpoint-bridge"
ASKING_TOOL = "ask_user_via_host"
#: The one builtin agent that works with its parent's prompt and project context (contract, delegation 5.2).
DELEGATE = "delegate"


class AgentSource(enum.StrEnum):
    """Where an agent comes from, lowest first: a higher one replaces a lower one of the same name."""

    BUILTIN = "builtin"
    PACKAGE = "package"
    USER = "user"
    PROJECT = "project"
    RUNTIME = "runtime"


class AgentDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, as its file says. None is a key that is not there, () one whose list is empty: that means "none".

    Attributes:
        name: What `pisub run` takes: with a ``package`` in front where the file has one.
        local_name: The name without the package; '' where that is the name.
        file: The file, absolute; of a runtime agent no file that is there.
        file_sha256: Digest of the file's bytes; '' where there is none.
        project_root: Of a project's agent, else None.
        runner: What drives it; None for an agent that is a prompt only.
        tools: As written: builtins, ``*``, ``ext:``, ``mcp:`` and paths together. ``extensions`` likewise.
        thinking: A level, ``off`` where the file says false.
        output: Where its result is written; '' where the file says false.
        is_disabled: It is listed, and cannot be named: the configuration's word.
        extra: Keys that pisub has no use for, as JSON-compatible values.
    """

    name: str
    local_name: str = ""
    package: str = ""
    description: str
    source: AgentSource
    file: Path
    file_sha256: str = ""
    project_root: Path | None = None
    runner: RunnerSpec | None = None
    system_prompt: str = ""
    aliases: tuple[str, ...] = ()
    advertise: bool = True
    tools: tuple[str, ...] | None = None
    exclude_tools: tuple[str, ...] = ()
    extensions: tuple[str, ...] | None = None
    exclude_extensions: tuple[str, ...] = ()
    subagent_only_extensions: tuple[str, ...] = ()
    allow_nested_subagents: bool | None = None
    mutation_tools: tuple[str, ...] = ()
    model: str | None = None
    fallback_models: tuple[str, ...] = ()
    fast: bool | None = None
    thinking: str | None = None
    system_prompt_mode: str | None = None
    inherit_project_context: bool | None = None
    inherit_global_context: bool | None = None
    inherit_skills: bool | None = None
    skills: tuple[str, ...] | None = None
    skill_path: tuple[str, ...] = ()
    output: str | None = None
    output_mode: str | None = None
    default_reads: tuple[str, ...] | None = None
    default_progress: bool | None = None
    default_context: str | None = None
    default_async: bool | None = None
    timeout_ms: int | None = None
    tool_timeout_ms: int | None = None
    tool_budget: ToolBudget | None = None
    acceptance: Any = None
    acceptance_role: str | None = None
    completion_guard: bool | None = None
    interactive: bool | None = None
    max_depth: int | None = None
    permissions: Any = None
    memory: Any = None
    is_disabled: bool = False
    extra: Mapping[str, Any] = {}

    @property
    def short_name(self) -> str:
        """The name without its package."""
        return self.local_name or self.name

    @property
    def runs_code(self) -> bool:
        """Whether a run of it starts code that the agent's author chose."""
        return self.runner is not None

    @property
    def prompt_mode(self) -> str:
        """``append`` to the engine's own prompt, or ``replace`` it."""
        return self.system_prompt_mode or ("append" if self.name == DELEGATE else "replace")

    @property
    def takes_project_context(self) -> bool:
        """Whether the child is given the project's own instructions."""
        given = self.inherit_project_context
        return self.name == DELEGATE if given is None else given

    @property
    def nesting_limit(self) -> int | None:
        """How deep what it starts may delegate at most; None sets no limit of its own."""
        return 0 if self.allow_nested_subagents is False else self.max_depth

    @property
    def can_ask(self) -> bool:
        """Whether its child may ask the human.

        Arming and granting are separate: `extensions: [checkpoint-bridge]` and `tools: "*, ext:checkpoint-bridge"`.
        An agent of ours with a runner that states neither key may ask. What is excluded is excluded in any case.
        """
        excluded = {each.lower() for each in self.exclude_extensions}
        if ASKING_EXTENSION in excluded or ASKING_TOOL in self.exclude_tools:
            return False
        if self.runner is not None and self.tools is None and self.extensions is None:
            return True
        armed = any(item == "*" or item.lower() == ASKING_EXTENSION for item in self.extensions or ())
        return armed and any(grants_asking(tool) for tool in self.tools or ())


def grants_asking(tool: str) -> bool:
    """Tell whether an entry of ``tools`` grants ``ask_user_via_host``."""
    extension, slash, name = tool.removeprefix("ext:").partition("/")
    is_ours = tool.startswith("ext:") and extension.lower() == ASKING_EXTENSION
    return is_ours and (not slash or name == ASKING_TOOL)


def may_ask(wanted: bool, *limits: bool) -> bool:
    """Return whether a run may ask: what its agent is granted, less what each limit above it takes away.

    The one place where they meet: a limit can only take, and nothing that comes later gives it back.

    Args:
        wanted: What the agent's own definition grants.
        *limits: What each ceiling, and each earlier run of a resumed one, allows.
    """
    return wanted and all(limits)


def snapshot(definition: AgentDefinition) -> AgentSnapshot:
    """Return the agent as a run's spec keeps it.

    Raises:
        InvalidAgentError: Nothing drives this agent: it has no ``runner``.
    """
    if definition.runner is None:
        raise InvalidAgentError(
            f"Agent {definition.name!r} is a prompt: it needs a model engine, and none is configured. Give it a "
            f"program that runs it, by `runner:` in {show_path(definition.file)} or in config.toml under "
            f"[agents.{toml_key(definition.name)}], with a type of {' or '.join(RUNNER_TYPES)}.",
            field="runner",
            file=show_path(definition.file),
        )
    return AgentSnapshot(
        name=definition.name,
        description=definition.description,
        source=definition.source.value,
        file=str(definition.file),
        runner=definition.runner,
        system_prompt=definition.system_prompt,
        can_ask=definition.can_ask,
        max_depth=definition.nesting_limit,
    )


def toml_key(name: str) -> str:
    """Return a name as a key of TOML: quoted where it has dots."""
    return f'"{name}"' if "." in name else name


def show_path(path: Path) -> str:
    """Return a path as valid text on one line, for messages."""
    text = str(path).encode("utf-8", "backslashreplace").decode()
    return text if text.isprintable() else ascii(text)[1:-1]
