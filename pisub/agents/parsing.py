"""From the text of an agent's file to the agent: which keys there are and what each means.

This module owns the list of keys (contract, delegation 5.5) and what the configuration lays over them. It reads no file
and knows neither folders nor trust. Keys that it does not know are kept: files are shared with other tools.
"""

from __future__ import annotations

import os
from collections.abc import Mapping as MappingABC
from pathlib import Path
from typing import Any, Final, NoReturn

from pisub.agents import frontmatter
from pisub.agents.definition import AgentDefinition, AgentSource, show_path
from pisub.agents.frontmatter import FrontmatterError, Mapping
from pisub.agents.keys import Keys
from pisub.errors import InvalidAgentError

THINKING_LEVELS: Final = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
CONTEXTS: Final = ("fresh", "fork")
OUTPUT_MODES: Final = ("inline", "file-only")
PROMPT_MODES: Final = ("append", "replace")
ACCEPTANCE_ROLES: Final = ("read-only", "writer")
#: Keys that the configuration cannot lay over a file: they say which agent it is.
FIXED_KEYS: Final = frozenset({"name", "package"})
#: Every key that means something here.
KNOWN_KEYS: Final = frozenset({
    "name", "package", "description", "runner", "aliases", "alias", "advertise", "tools", "excludeTools", "extensions",
    "excludeExtensions", "exclude_extensions", "subagentOnlyExtensions", "allowNestedSubagents", "mutationTools",
    "model", "fallbackModels", "fast", "thinking", "systemPromptMode", "inheritProjectContext", "inheritGlobalContext",
    "inheritSkills", "skills", "skill", "skillPath", "output", "outputMode", "defaultReads", "defaultProgress",
    "defaultContext", "async", "timeoutMs", "toolTimeoutMs", "toolBudget", "acceptance", "acceptanceRole",
    "completionGuard", "interactive", "maxSubagentDepth", "permission", "permissions", "memory", "disabled",
})  # fmt: skip
#: What the configuration's table is called where a value of it is wrong.
CONFIG_FILE: Final = Path("config.toml")


def parse_agent(
    text: str,
    *,
    file: Path,
    source: AgentSource = AgentSource.USER,
    project_root: Path | None = None,
    file_sha256: str = "",
    overrides: MappingABC[str, MappingABC[str, Any]] | None = None,
) -> AgentDefinition:
    """Read an agent's file.

    Args:
        text: The file's whole text.
        file: Its place: for messages, and for relative targets.
        source: Where it was found.
        project_root: For a project's agent: where its modules are imported from.
        file_sha256: Digest of the file's bytes.
        overrides: By an agent's name the keys of the configuration that replace the file's.

    Raises:
        InvalidAgentError: It cannot be used; message and attributes name file, line and field.
    """
    try:
        block, body = frontmatter.split(text) or _no_block()
        parsed = frontmatter.parse(block)
        package, local_name = _names(Keys(parsed)) if overrides else ("", "")
    except FrontmatterError as error:
        raise placed(error, file) from error
    override = (overrides or {}).get(f"{package}.{local_name}" if package else local_name, {})
    _check_override(override, local_name)
    try:
        return build_agent(
            Keys(_laid_over(parsed, override)),
            body.strip(),
            file=file,
            source=source,
            project_root=project_root,
            file_sha256=file_sha256,
        )
    except FrontmatterError as error:
        is_configured = error.field is not None and error.field.partition(".")[0] in override
        raise placed(error, CONFIG_FILE if is_configured else file) from error


def placed(error: FrontmatterError, file: Path) -> InvalidAgentError:
    """Return what is wrong with a block as what is wrong with a file. A line of 0 is left out: there is none."""
    shown = show_path(file)
    place = f"{shown}:{error.line}" if error.line else shown
    field = f"{error.field}: " if error.field else ""
    return InvalidAgentError(f"{place}: {field}{error.what}.", field=error.field, file=shown, line=error.line or None)


def _names(keys: Keys) -> tuple[str, str]:
    return keys.package(), keys.name()


def _check_override(override: MappingABC[str, Any], name: str) -> None:
    for key in override:
        if key in FIXED_KEYS or key not in KNOWN_KEYS:
            what = "cannot be configured" if key in FIXED_KEYS else "is no key of an agent"
            raise InvalidAgentError(f"{CONFIG_FILE}: agents.{name}.{key} {what}.", field=key, file=str(CONFIG_FILE))


def _laid_over(block: Mapping, override: MappingABC[str, Any]) -> Mapping:
    if not override:
        return block
    entries, lines = dict(block.entries), dict(block.lines)
    for key, value in override.items():
        # One key of several that mean the same replaces them all.
        for other in _SAME.get(key, (key,)):
            entries.pop(other, None)
        entries[key] = frontmatter.as_node(value, 0)
        lines[key] = 0
    return Mapping(block.line, entries, lines)


_SAME: Final[dict[str, tuple[str, ...]]] = {
    each: pair for pair in (("aliases", "alias"), ("skills", "skill"), ("permissions", "permission")) for each in pair
}


def build_agent(
    keys: Keys,
    body: str,
    *,
    file: Path,
    source: AgentSource,
    project_root: Path | None = None,
    file_sha256: str = "",
) -> AgentDefinition:
    """Make the agent that the keys of a head say; arguments as for ``parse_agent``.

    Raises:
        FrontmatterError: A key has a value that it cannot have.
    """
    package, local_name = _names(keys)
    name = f"{package}.{local_name}" if package else local_name
    extensions = _resolved(keys.extensions(), file)
    return AgentDefinition(
        name=name,
        local_name=local_name if package else "",
        package=package,
        description=keys.description(),
        source=source,
        file=file,
        file_sha256=file_sha256,
        project_root=project_root,
        runner=keys.runner(file, _import_paths(file, source, project_root)),
        system_prompt=body,
        aliases=tuple(each for each in keys.names("aliases", "alias") if each not in (name, local_name)),
        advertise=keys.switch("advertise") is not False,
        tools=_resolved(keys.entries("tools"), file),
        exclude_tools=keys.entries("excludeTools") or (),
        extensions=extensions,
        exclude_extensions=keys.entries("excludeExtensions", "exclude_extensions") or (),
        subagent_only_extensions=_resolved(keys.entries("subagentOnlyExtensions"), file) or (),
        allow_nested_subagents=keys.switch("allowNestedSubagents"),
        mutation_tools=keys.entries("mutationTools") or (),
        model=keys.text("model"),
        fallback_models=keys.entries("fallbackModels") or (),
        fast=keys.switch("fast"),
        thinking=_thinking(keys),
        system_prompt_mode=keys.choice("systemPromptMode", PROMPT_MODES),
        inherit_project_context=keys.hint("inheritProjectContext"),
        inherit_global_context=keys.hint("inheritGlobalContext"),
        inherit_skills=keys.hint("inheritSkills"),
        skills=keys.entries("skills", "skill"),
        skill_path=_resolved(keys.entries("skillPath"), file) or (),
        output=keys.text_or_false("output"),
        output_mode=keys.choice("outputMode", OUTPUT_MODES),
        default_reads=keys.entries("defaultReads"),
        default_progress=keys.hint("defaultProgress"),
        default_context=keys.choice("defaultContext", CONTEXTS),
        default_async=keys.switch("async"),
        timeout_ms=keys.whole("timeoutMs", lowest=1),
        tool_timeout_ms=keys.whole("toolTimeoutMs", lowest=1),
        tool_budget=keys.budget("toolBudget"),
        acceptance=keys.value("acceptance"),
        acceptance_role=keys.choice("acceptanceRole", ACCEPTANCE_ROLES),
        completion_guard=keys.hint("completionGuard"),
        interactive=keys.hint("interactive"),
        max_depth=keys.whole("maxSubagentDepth", lowest=0),
        permissions=keys.value("permission", "permissions"),
        memory=keys.value("memory"),
        is_disabled=keys.switch("disabled") is True,
        extra=keys.rest(),
    )


def _thinking(keys: Keys) -> str | None:
    found = keys.choice("thinking", (*THINKING_LEVELS, "false"))
    return "off" if found == "false" else found


def _resolved(entries: tuple[str, ...] | None, file: Path) -> tuple[str, ...] | None:
    """Return a list with its relative paths as they lie from the agent's file."""
    if entries is None:
        return None
    return tuple(os.path.normpath(file.parent / each) if each.startswith(("./", "../")) else each for each in entries)


def _import_paths(file: Path, source: AgentSource, project_root: Path | None) -> tuple[str, ...]:
    match source:
        case AgentSource.BUILTIN | AgentSource.PACKAGE | AgentSource.RUNTIME:
            return ()
        case AgentSource.USER:
            return (str(file.parent),)
        case AgentSource.PROJECT:
            return (str(project_root or file.parent),)


def _no_block() -> NoReturn:
    raise FrontmatterError("no frontmatter: the file must begin with a line ---", line=1)
