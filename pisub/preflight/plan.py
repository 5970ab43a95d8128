"""From an agent and what is wanted of it to the plan of its launch: everything that its digest covers. Pure.

The one function that both a preflight and a launch call, so that equal inputs give equal digests. It checks in the
contract's order (delegation 2.3, from the extension bindings on); the first thing in the way is the refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pisub.agents.definition import AgentDefinition
from pisub.agents.skills import RESERVED, Skill
from pisub.preflight import bridge as bridging
from pisub.preflight.bindings import BindingsError, check_bindings
from pisub.preflight.bridge import BridgeState
from pisub.preflight.digests import definition_digest, launch_digest
from pisub.preflight.models import ModelInfo, ModelPlan, above_ceiling, lower_ceiling, resolve_models, resolve_thinking
from pisub.preflight.output import OutputBinding, bind_output
from pisub.preflight.prompt import assemble_prompt
from pisub.preflight.tools import DeniedToolError, Note, ToolPlan, plan_tools
from pisub.runs.ceilings import RESTRICTED_AGENT, CapabilityCeiling, refusal
from pisub.schemas import check_schema


class PreflightRefusal(Exception):  # noqa: N818  # an answer, not a fault: whoever asked gets it as a value
    """The launch cannot be made. ``code`` is one of the contract's eleven."""

    def __init__(self, code: str, message: str, diagnostics: Sequence[Note] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.diagnostics = tuple(diagnostics)


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller asks for beside agent and task; None leaves it to the agent or the configuration."""

    context: str | None = None
    model: str | None = None
    fast: bool | None = None
    thinking: str | bool | None = None
    thinking_ceiling: str | None = None
    inherited_thinking_ceiling: str | None = None
    parent_model: ModelInfo | None = None
    available_models: Sequence[ModelInfo] | None = None
    preferred_provider: str | None = None
    skill: bool | str | Sequence[str] | None = None
    output: str | bool | None = None
    output_mode: str | None = None
    output_schema: Mapping[str, Any] | None = None
    extension_bindings: object = None
    host_available_builtins: Sequence[str] | None = None
    intercom_bridge: object = None
    orchestrator_target: object = None


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What was found on the disk and in the session for one launch.

    Attributes:
        context: As resolved.
        skills: The skills that were asked for and found.
        missing_skills: Those that were not.
        instruction: Of the bridge.
        bridge: What is wanted of it.
    """

    cwd: str
    context: str = "fresh"
    ceiling: CapabilityCeiling | None = None
    skills: tuple[Skill, ...] = ()
    missing_skills: tuple[str, ...] = ()
    bridge: bridging.BridgeWish = bridging.BridgeWish()
    instruction: str = bridging.DEFAULT_INSTRUCTION
    is_foreground: bool = False


class LaunchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One launch, planned."""

    agent: AgentDefinition
    context: str
    models: ModelPlan
    thinking: str | None
    thinking_ceiling: str | None
    requested_skills: tuple[str, ...]
    skills: tuple[Skill, ...]
    tools: ToolPlan
    bridge: BridgeState
    instruction: str
    system_prompt: str
    output: OutputBinding
    output_schema: dict[str, Any] | None
    diagnostics: tuple[Note, ...]
    definition_digest: str
    launch_contract_digest: str


def plan_launch(agent: AgentDefinition, task: str, wishes: Wishes, around: Surroundings) -> LaunchPlan:
    """Plan a launch.

    Raises:
        PreflightRefusal: It cannot be made.
        InvalidArgumentError: A model, a thinking level or a schema is none.
    """
    schema = None if wishes.output_schema is None else check_schema(wishes.output_schema)
    bindings = _bindings(wishes, agent)
    ceiling = around.ceiling
    if ceiling is not None and not ceiling.allows_agent(agent.name):
        raise PreflightRefusal(RESTRICTED_AGENT, refusal(ceiling, agent.name))
    requested_skills = wanted_skills(wishes.skill, agent)
    reserved = [each for each in requested_skills if each in RESERVED]
    if reserved:
        raise PreflightRefusal(
            "missing_skill", f"The skill {reserved[0]!r} is pisub's own and cannot be given to a child."
        )
    models = _models(wishes, agent)
    thinking = resolve_thinking(wishes.thinking, agent.thinking)
    thinking_ceiling = lower_ceiling(wishes.thinking_ceiling, wishes.inherited_thinking_ceiling)
    above = above_ceiling(thinking, thinking_ceiling, models.candidates, wishes.available_models)
    if above is not None:
        of = f" of {above}" if above else ""
        raise PreflightRefusal(
            "thinking_ceiling", f"Thinking {thinking!r}{of} is above the ceiling {thinking_ceiling!r}: ask for less."
        )
    bridge = bridging.resolve_bridge(around.bridge, context=around.context, has_tools_of_ours=agent.runner is None)
    try:
        tools, notes = plan_tools(
            agent,
            ceiling=ceiling,
            needs_skills=bool(requested_skills),
            has_schema=wishes.output_schema is not None,
            is_bridge_active=bridge.active,
            is_foreground=around.is_foreground,
            host_builtins=wishes.host_available_builtins,
        )
    except DeniedToolError as error:
        raise PreflightRefusal("denied_required_tool", str(error)) from error
    if around.missing_skills:
        raise PreflightRefusal("missing_skill", f"There is no skill {', '.join(map(repr, around.missing_skills))}.")
    output = bind_output(
        requested=wishes.output,
        agent_output=agent.output,
        requested_mode=wishes.output_mode,
        agent_mode=agent.output_mode,
        cwd=around.cwd,
    )
    prompt = agent.system_prompt
    if bridge.active:
        target = bridging.check_target(wishes.orchestrator_target) or bridging.PLACEHOLDER
        prompt = bridging.with_instruction(prompt, around.instruction, target)
    system_prompt = assemble_prompt(prompt, skills=around.skills, output_path=output.path)
    definition = definition_digest(agent)
    return LaunchPlan(
        agent=agent,
        context=around.context,
        models=models,
        thinking=thinking,
        thinking_ceiling=thinking_ceiling,
        requested_skills=requested_skills,
        skills=around.skills,
        tools=tools,
        bridge=bridge,
        instruction=around.instruction,
        system_prompt=system_prompt,
        output=output,
        output_schema=schema,
        diagnostics=notes,
        definition_digest=definition,
        launch_contract_digest=launch_digest(
            agent=agent,
            definition=definition,
            task=task,
            models=models,
            fast=agent.fast if wishes.fast is None else wishes.fast,
            thinking=thinking,
            system_prompt=system_prompt,
            skills=around.skills,
            requested_skills=requested_skills,
            tools=tools,
            output=output,
            schema=schema,
            bindings=bindings,
        ),
    )


def wanted_skills(asked: bool | str | Sequence[str] | None, agent: AgentDefinition) -> tuple[str, ...]:
    """Return the names of the skills for a launch: the caller's, else the agent's; False is none."""
    match asked:
        case False:
            return ()
        case None | True:
            names: Sequence[str] = agent.skills or ()
        case str():
            names = asked.split(",")
        case _:
            names = asked
    return tuple(dict.fromkeys(each.strip() for each in names if each.strip()))


def _bindings(wishes: Wishes, agent: AgentDefinition) -> dict[str, Any] | None:
    if wishes.extension_bindings is None:
        return None
    if agent.runner is not None and agent.runner.type == "external-cli":
        raise PreflightRefusal("unsupported_mode", f"Agent {agent.name!r} is a program: it takes no extensionBindings.")
    try:
        return check_bindings(wishes.extension_bindings)
    except BindingsError as error:
        raise PreflightRefusal("invalid_extension_bindings", f"{error}.") from error


def _models(wishes: Wishes, agent: AgentDefinition) -> ModelPlan:
    if agent.runner is not None:
        return ModelPlan()
    return resolve_models(
        requested=wishes.model,
        agent_model=agent.model,
        fallbacks=agent.fallback_models,
        parent=wishes.parent_model,
        available=wishes.available_models,
        preferred_provider=wishes.preferred_provider,
    )
