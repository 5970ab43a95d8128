"""The three digests of a launch, each SHA-256 over canonical JSON of a projection. Pure.

Equal inputs give equal digests, in a preflight and in the run: both call these functions and no others. Keys are sorted
by code point, absent members are dropped, null stays (contract, delegation 2.7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pisub.agents.definition import AgentDefinition
from pisub.agents.skills import Skill
from pisub.preflight.bindings import canonical
from pisub.preflight.models import ModelPlan
from pisub.preflight.output import OutputBinding
from pisub.preflight.tools import ToolPlan

DEFINITION_PROJECTION = 1
LAUNCH_PROJECTION = 2


def digest(value: object) -> str:
    """Return the digest of a JSON-compatible value."""
    return hashlib.sha256(canonical(value)).hexdigest()


def text_digest(text: str) -> str:
    """Return the digest of a text, which may hold halves of surrogate pairs."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def definition_digest(agent: AgentDefinition) -> str:
    """Return the digest of an agent as its file says it, before anything is added for a launch.

    Aliases, description, output mode, permissions and tool timeout are no fields of it; of an agent from a file they
    show all the same, in the digest of the file's bytes.
    """
    return digest(
        _present(
            {
                "projection": DEFINITION_PROJECTION,
                "name": agent.name,
                "localName": agent.local_name,
                "packageName": agent.package,
                "filePath": str(agent.file),
                "fileSha256": agent.file_sha256,
                "runner": agent.runner,
                "systemPrompt": text_digest(agent.system_prompt),
                "systemPromptMode": agent.prompt_mode,
                "inheritProjectContext": agent.takes_project_context,
                "inheritGlobalContext": agent.inherit_global_context,
                "inheritSkills": agent.inherit_skills,
                "model": agent.model,
                "fallbackModels": agent.fallback_models,
                "fast": agent.fast,
                "thinking": agent.thinking,
                "tools": agent.tools,
                "excludeTools": agent.exclude_tools,
                "allowNestedSubagents": agent.allow_nested_subagents,
                "extensions": agent.extensions,
                "excludeExtensions": agent.exclude_extensions,
                "subagentOnlyExtensions": agent.subagent_only_extensions,
                "skills": agent.skills,
                "skillPath": agent.skill_path,
                "mutationTools": agent.mutation_tools,
                "output": False if agent.output == "" else agent.output,
                "defaultReads": agent.default_reads,
                "defaultProgress": agent.default_progress,
                "defaultContext": agent.default_context,
                "async": agent.default_async,
                "timeoutMs": agent.timeout_ms,
                "acceptance": agent.acceptance,
                "acceptanceRole": agent.acceptance_role,
                "interactive": agent.interactive,
                "maxSubagentDepth": agent.max_depth,
                "completionGuard": agent.completion_guard,
                "toolBudget": agent.tool_budget,
                "memory": agent.memory,
            }
        )
    )


def launch_digest(
    *,
    agent: AgentDefinition,
    definition: str,
    task: str,
    models: ModelPlan,
    fast: bool | None,
    thinking: str | None,
    system_prompt: str,
    skills: Sequence[Skill],
    requested_skills: Sequence[str],
    tools: ToolPlan,
    output: OutputBinding,
    schema: Mapping[str, Any] | None = None,
    bindings: Mapping[str, Any] | None = None,
) -> str:
    """Return the digest of what a child is launched with. Which model is tried at the moment is not in it."""
    is_limited = tools.effective_allowlist is not None
    return digest(
        {
            **_present(
                {
                    "projection": LAUNCH_PROJECTION,
                    "definitionDigest": definition,
                    "task": text_digest(task),
                    "modelCandidates": models.candidates,
                    "fast": fast or None,
                    "thinking": thinking,
                    "systemPrompt": text_digest(system_prompt),
                    "systemPromptMode": agent.prompt_mode,
                    "inheritProjectContext": agent.takes_project_context or None,
                    "inheritGlobalContext": agent.inherit_global_context or None,
                    "inheritSkills": agent.inherit_skills or None,
                    "skills": tuple(requested_skills),
                    "skillFiles": [each.sha256 for each in skills],
                    "excludeTools": tools.exclude_tools,
                    "extensionSelectors": tools.extension_selectors,
                    "extensionArgs": tools.extension_args,
                    "disableAmbientExtensions": tools.disable_ambient_extensions or None,
                    "effectiveMcpTools": tools.effective_mcp_tools,
                    "canAsk": tools.can_ask or None,
                    "outputPath": output.path,
                    "outputMode": output.mode,
                    "schema": schema,
                    "extensionBindings": bindings or None,
                }
            ),
            # No tool at all is something else than any tool.
            **({"effectiveTools": tools.effective_allowlist} if is_limited else {}),
        }
    )


def contract_digest(contract: msgspec.Struct) -> str:
    """Return the digest of a whole contract except for itself."""
    value = msgspec.to_builtins(contract)
    value.pop("digest", None)
    return digest(value)


def _present(value: dict[str, object]) -> dict[str, object]:
    """Drop what is absent: None and the empty text. An empty list says something and stays."""
    return {key: each for key, each in value.items() if each is not None and each != ""}
