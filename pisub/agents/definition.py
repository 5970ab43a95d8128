"""One agent's file: Markdown with a YAML head. What the keys mean, and what is wrong with them.

This module owns the meaning of the keys; it reads no file and knows neither folders nor trust. Keys that it does not
know are kept in ``extra``: files are shared with other tools.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping as MappingABC
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from pisub.agents import frontmatter
from pisub.agents.frontmatter import FrontmatterError, Items, Mapping, Node, Scalar
from pisub.errors import InvalidAgentError
from pisub.runs.spec import AgentSnapshot, RunnerSpec

RUNNER_TYPES = ("python", "external-cli")
#: The extension that lets a child ask the human: named in `extensions` it arms, as `ext:` in `tools` it grants.
ASKING_EXTENSION = "checkpoint-bridge"
ASKING_TOOL = "ask_user_via_host"
MAX_DESCRIPTION_CHARS = 16_384

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?", re.ASCII)
_TARGET = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_FILE_TARGET = re.compile(r"(?P<path>[^\x00\n]+\.py):(?P<function>[^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_COMMA = re.compile(r",(?![^()]*\))")  # the comma in `Bash(git add, git commit)` separates no tools


class AgentSource(enum.StrEnum):
    """Where an agent comes from, lowest first: a higher one replaces a lower one of the same name."""

    BUILTIN = "builtin"
    USER = "user"
    PROJECT = "project"


class AgentDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, as its file says.

    Attributes:
        name: What `pisub run` takes.
        file: The file, absolute.
        project_root: Of a project's agent, else None.
        runner: What drives it; None for an agent that is a prompt only.
        tools: None where the key is not there, () for none at all; likewise ``extensions``.
        extra: Keys that pisub has no use for, as JSON-compatible values.
    """

    name: str
    description: str
    source: AgentSource
    file: Path
    project_root: Path | None = None
    runner: RunnerSpec | None = None
    system_prompt: str = ""
    aliases: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    extensions: tuple[str, ...] | None = None
    extra: MappingABC[str, Any] = {}

    @property
    def runs_code(self) -> bool:
        """Whether a run of it starts code that the agent's author chose."""
        return self.runner is not None

    @property
    def can_ask(self) -> bool:
        """Whether its child may ask the human.

        Arming and granting are separate: `extensions: [checkpoint-bridge]` and `tools: "*, ext:checkpoint-bridge"`.
        An agent of ours with a runner that states neither key may ask.
        """
        if self.runner is not None and self.tools is None and self.extensions is None:
            return True
        armed = any(item == "*" or item.lower() == ASKING_EXTENSION for item in self.extensions or ())
        return armed and any(_grants_asking(tool) for tool in self.tools or ())


def parse_agent(
    text: str, *, file: Path, source: AgentSource = AgentSource.USER, project_root: Path | None = None
) -> AgentDefinition:
    """Read an agent's file.

    Args:
        text: The file's whole text.
        file: Its place: for messages, and for relative targets.
        source: Where it was found.
        project_root: For a project's agent: where its modules are imported from.

    Raises:
        InvalidAgentError: It cannot be used; message and attributes name file, line and field.
    """
    try:
        block, body = frontmatter.split(text) or _no_block()
        keys = _Keys(frontmatter.parse(block), file)
        return AgentDefinition(
            name=keys.name("name"),
            description=keys.description(),
            source=source,
            file=file,
            project_root=project_root,
            runner=keys.runner(source, project_root),
            system_prompt=body.strip(),
            aliases=keys.aliases(),
            tools=keys.tools(),
            extensions=keys.extensions(),
            extra=keys.rest(),
        )
    except FrontmatterError as error:
        field = f"{error.field}: " if error.field else ""
        raise InvalidAgentError(
            f"{show_path(file)}:{error.line}: {field}{error.what}.",
            field=error.field,
            file=show_path(file),
            line=error.line,
        ) from error


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
            f"Agent {definition.name!r} has no runner, so nothing can run it: add `runner:` to "
            f"{show_path(definition.file)} with a type of {' or '.join(RUNNER_TYPES)}.",
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
        max_depth=_max_depth(definition),
    )


def _max_depth(definition: AgentDefinition) -> int | None:
    """Return ``maxSubagentDepth``; what is no such number binds nothing less than the settings do."""
    value = definition.extra.get("maxSubagentDepth")
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def show_path(path: Path) -> str:
    """Return a path as valid text on one line, for messages."""
    text = str(path).encode("utf-8", "backslashreplace").decode()
    return text if text.isprintable() else ascii(text)[1:-1]


def _no_block() -> NoReturn:
    raise FrontmatterError("no frontmatter: the file must begin with a line ---", line=1)


def _grants_asking(tool: str) -> bool:
    extension, slash, name = tool.removeprefix("ext:").partition("/")
    is_ours = tool.startswith("ext:") and extension.lower() == ASKING_EXTENSION
    return is_ours and (not slash or name == ASKING_TOOL)


class _Keys:
    """The keys of one block, taken one by one; what is left in the end is ``extra``."""

    def __init__(self, block: Mapping, file: Path) -> None:
        self._left = dict(block.entries)
        self._lines = block.lines
        self._file = file

    def name(self, key: str) -> str:
        node = self._left.pop(key, None)
        if node is None:
            raise FrontmatterError("the key is missing", line=1, field=key)
        text = _text(node, key).strip()
        _check_name(text, node.line, key)
        return text

    def description(self) -> str:
        node = self._left.pop("description", None)
        if node is None:
            raise FrontmatterError("the key is missing", line=1, field="description")
        text = _text(node, "description").strip()
        if not 1 <= len(text) <= MAX_DESCRIPTION_CHARS:
            raise FrontmatterError(f"use 1 to {MAX_DESCRIPTION_CHARS} characters", line=node.line, field="description")
        return text

    def aliases(self) -> tuple[str, ...]:
        found: list[str] = []
        for key in ("aliases", "alias"):
            node = self._left.pop(key, None)
            for alias in _list(node, key) or ():
                _check_name(alias, self._lines[key], key)
                if alias not in found:
                    found.append(alias)
        return tuple(found)

    def tools(self) -> tuple[str, ...] | None:
        found = _list(self._left.pop("tools", None), "tools")
        return () if found in {("none",), ("[]",)} else found

    def extensions(self) -> tuple[str, ...] | None:
        node = self._left.pop("extensions", None)
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return ("*",) if node.value else ()
        found = _list(node, "extensions")
        return () if found == ("none",) else found

    def runner(self, source: AgentSource, project_root: Path | None) -> RunnerSpec | None:
        node = self._left.pop("runner", None)
        if node is None:
            return None
        if not isinstance(node, Mapping):
            raise FrontmatterError(
                'expected keys, such as {type: python, target: "module:function"}', line=node.line, field="runner"
            )
        kind_node = node.entries.get("type")
        kind = "" if kind_node is None else _text(kind_node, "runner.type")
        if kind not in RUNNER_TYPES:
            raise FrontmatterError(
                f"{kind!a} is not a type of runner; there are {', '.join(RUNNER_TYPES)}",
                line=node.line if kind_node is None else kind_node.line,
                field="runner.type",
            )
        wanted = "target" if kind == "python" else "argv"
        for key in node.entries:
            if key not in {"type", wanted}:
                raise FrontmatterError(
                    f"a runner of type {kind} has no such key; it takes type and {wanted}",
                    line=node.lines[key],
                    field=f"runner.{key}",
                )
        if wanted not in node.entries:
            raise FrontmatterError(f"a runner of type {kind} needs it", line=node.line, field=f"runner.{wanted}")
        value = node.entries[wanted]
        if kind == "external-cli":
            return RunnerSpec(type="external-cli", argv=_argv(value))
        paths = _import_paths(self._file, source, project_root)
        return RunnerSpec(type="python", target=_target(value, self._file), import_paths=paths)

    def rest(self) -> dict[str, frontmatter.PlainValue]:
        return {key: frontmatter.plain(node) for key, node in self._left.items()}


def _import_paths(file: Path, source: AgentSource, project_root: Path | None) -> tuple[str, ...]:
    match source:
        case AgentSource.BUILTIN:
            return ()
        case AgentSource.USER:
            return (str(file.parent),)
        case AgentSource.PROJECT:
            return (str(project_root or file.parent),)


def _text(node: Node, field: str) -> str:
    if not isinstance(node, Scalar) or node.value is None:
        raise FrontmatterError("expected text", line=node.line, field=field)
    return node.text


def _check_name(text: str, line: int, field: str) -> None:
    if _NAME.fullmatch(text) is None:
        raise FrontmatterError(
            f"{text[:60]!a} is not a name: use 1 to 128 of letters, digits, '.', '_' and '-', "
            "beginning and ending with a letter or digit",
            line=line,
            field=field,
        )


def _list(node: Node | None, field: str) -> tuple[str, ...] | None:
    """Read a list: YAML's, `a, b`, or `[a, b]` that was written as text. An empty value is an empty list."""
    match node:
        case None:
            return None
        case Items(items=items):
            return tuple(text for item in items if (text := _text(item, field).strip()))
        case Scalar(value=None):
            return ()
        case Scalar(text=whole):
            inner = whole.strip()
            if inner.startswith("[") and inner.endswith("]"):
                inner = inner[1:-1]
            parts = (part.strip().strip("\"'").strip() for part in _COMMA.split(inner))
            return tuple(part for part in parts if part)
        case Mapping(line=line):
            raise FrontmatterError("expected a list", line=line, field=field)


def _argv(node: Node) -> tuple[str, ...]:
    field = "runner.argv"
    if not isinstance(node, Items) or not node.items:
        raise FrontmatterError("expected a list: the program, then its arguments", line=node.line, field=field)
    argv = tuple(_text(item, field) for item in node.items)
    for item, word in zip(node.items, argv, strict=True):
        if "\0" in word:
            raise FrontmatterError("an argument holds a NUL", line=item.line, field=field)
    if not argv[0].strip():
        raise FrontmatterError("the program has no name", line=node.items[0].line, field=field)
    return argv


def _target(node: Node, file: Path) -> str:
    text = _text(node, "runner.target").strip()
    if _TARGET.fullmatch(text):
        return text
    found = _FILE_TARGET.fullmatch(text)
    if found is None:
        raise FrontmatterError(
            f"{text[:80]!a} is not a target: use 'package.module:function' or './file.py:function'",
            line=node.line,
            field="runner.target",
        )
    return f"{file.parent / found['path']}:{found['function']}"
