"""A preflight: what exactly would be launched, or the first thing that is in the way. It reads, and changes nothing.

No directory is made, no process started, no broker asked. What only a running host could prove is said to be so, as a
diagnostic of severity ``host-required``.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pisub.agents.catalog import Catalog, Scope
from pisub.agents.definition import AgentDefinition
from pisub.agents.discovery import AgentFinder
from pisub.agents.files import read_bounded
from pisub.agents.parsing import CONTEXTS
from pisub.agents.skills import find_skills
from pisub.config import Settings, user_config_dir
from pisub.errors import AmbiguousAgentError, InvalidAgentError, UnknownAgentError
from pisub.preflight import bridge as bridging
from pisub.preflight import contract as ct
from pisub.preflight.context import resolve_context
from pisub.preflight.digests import contract_digest
from pisub.preflight.plan import LaunchPlan, PreflightRefusal, Surroundings, Wishes, plan_launch, wanted_skills
from pisub.preflight.tools import Note
from pisub.protocol.limits import MAX_INSTRUCTION_BYTES
from pisub.protocol.version import LIFECYCLE_ARTIFACT_VERSION
from pisub.record.layout import Layout
from pisub.runs.ceilings import CapabilityCeiling
from pisub.version import __version__

#: The run id of a preflight that names none. It is no run's.
PREFLIGHT_RUN = "preflight"
ARTIFACT_DIRS = ("project", "session", "temp")


class PreflightRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The question. See the contract, delegation 2.1, for each field; None is "not given"."""

    agent: str
    task: str = ""
    cwd: Path
    agent_scope: Scope = "both"
    wishes: Wishes = Wishes()
    artifacts: bool = True
    artifact_dir: str = "project"
    parent_session_file: Path | None = None
    parent_leaf_id: str | None = None
    session_root: Path | None = None
    session_dir: Path | None = None
    run_id: str = PREFLIGHT_RUN
    nested_root_run_id: str | None = None
    ceiling: CapabilityCeiling | None = None
    is_foreground: bool = False


def preflight(
    settings: Settings, layout: Layout | None, finder: AgentFinder, request: PreflightRequest
) -> ct.Preflight:
    """Answer a question.

    Args:
        settings: The configuration.
        layout: The record in which the run would be; None where nobody says, and then the session's place is the
            host's to say.
        finder: Where agents are found.
        request: The question.

    Raises:
        InvalidArgumentError: A model is named that the host does not have, or a thinking level that is none.
    """
    try:
        check_request(request)
        catalog = finder.find(request.cwd, scope=request.agent_scope)
        agent = _agent(catalog, request)
        plan = plan_for(settings, catalog.project_root, agent, request)
    except PreflightRefusal as refusal:
        own = Note(code=refusal.code, severity="error", message=refusal.message)
        # Who asks for a name that nothing has gets no diagnostic: there is no file at fault.
        is_unknown = refusal.code == "missing_agent" and not refusal.diagnostics
        return ct.Refused(
            ok=False,
            code=refusal.code,
            message=refusal.message,
            diagnostics=refusal.diagnostics or (() if is_unknown else (own,)),
        )
    runs = (layout or Layout.of(settings)).runs
    return ct.Accepted(ok=True, contract=build_contract(plan, runs, catalog, request, is_recorded=layout is not None))


def plan_for(settings: Settings, project_root: Path, agent: AgentDefinition, request: PreflightRequest) -> LaunchPlan:
    """Look at the disk for what a launch needs, and plan it.

    Raises:
        PreflightRefusal: It cannot be made.
    """
    wishes = request.wishes
    context = resolve_context(
        explicit=wishes.context,
        configured=settings.default_context,
        agent_default=agent.default_context,
        has_parent_session=request.parent_session_file is not None and request.parent_session_file.is_file(),
        leaf_id=request.parent_leaf_id,
    )
    wish, instruction, notes = _bridge(settings, request)
    names = wanted_skills(wishes.skill, agent)
    skills, missing = find_skills(
        names, root=project_root, user_folder=user_config_dir() / "skills", agent_paths=agent.skill_path
    )
    around = Surroundings(
        cwd=str(request.cwd),
        context=context,
        ceiling=request.ceiling,
        skills=skills,
        missing_skills=missing,
        bridge=wish,
        instruction=instruction,
        is_foreground=request.is_foreground,
    )
    plan = plan_launch(agent, request.task, wishes, around)
    return msgspec.structs.replace(plan, diagnostics=(*plan.diagnostics, *notes))


def build_contract(
    plan: LaunchPlan, runs: Path, catalog: Catalog, request: PreflightRequest, *, is_recorded: bool = True
) -> ct.LaunchContract:
    """Return the contract of a plan, with its digest.

    Args:
        plan: The plan.
        runs: The directory of the runs.
        catalog: Where the agent was found.
        request: The question.
        is_recorded: Whether a session for which no place is given lies in the run's directory.
    """
    agent = plan.agent
    run = runs / request.run_id
    root, directory, file = ct.session_places(
        request.run_id, run / "session.jsonl", session_root=request.session_root, session_dir=request.session_dir
    )
    is_placed = is_recorded or request.session_root is not None or request.session_dir is not None
    contract = ct.LaunchContract(
        version=ct.CONTRACT_VERSION,
        run_id=request.run_id,
        agent=ct.contract_agent(agent, plan.definition_digest, catalog),
        context=plan.context,
        model=plan.models.model,
        model_candidates=plan.models.candidates,
        thinking=plan.thinking,
        thinking_ceiling=plan.thinking_ceiling,
        system_prompt_mode=agent.prompt_mode,
        inherit_project_context=agent.takes_project_context,
        inherit_global_context=agent.inherit_global_context is True,
        inherit_skills=agent.inherit_skills is True,
        skills=ct.ContractSkills(
            requested=plan.requested_skills,
            resolved=tuple(ct.ContractSkill(name=e.name, path=e.path, source=e.source) for e in plan.skills),
            missing=(),
        ),
        tools=plan.tools,
        intercom_bridge=plan.bridge,
        roots=ct.Roots(
            cwd=str(request.cwd),
            session_root=str(root) if root is not None else None,
            session_dir=str(directory) if is_placed else None,
            session_file=str(file) if is_placed else None,
            artifacts_dir=str(run / "artifacts") if request.artifacts else None,
            output_path=plan.output.path,
            lifecycle=ct.Lifecycle(
                async_dir=str(run),
                result_path=str(run / "result.json"),
                status_path=str(run / "status.json"),
                events_path=str(run / "events.jsonl"),
                process_terminal_path=str(run / "process-terminal.json"),
                process_terminal_candidate_path=str(run / "process-terminal.json"),
            ),
        ),
        protocol=ct.ContractProtocol(
            lifecycle_artifact_version=LIFECYCLE_ARTIFACT_VERSION, package_version=__version__
        ),
        diagnostics=(*plan.diagnostics, *_host_required(plan, request, is_placed=is_placed)),
        launch_contract_digest=plan.launch_contract_digest,
    )
    return msgspec.structs.replace(contract, digest=contract_digest(contract))


def check_request(request: PreflightRequest) -> None:
    """Check what can be checked without the agent, in the contract's order.

    Raises:
        PreflightRefusal: A value is none that could be launched with.
    """
    if not request.cwd.is_dir():
        raise PreflightRefusal("invalid_cwd", f"The working directory {request.cwd} does not exist.")
    context = request.wishes.context
    if context is not None and context not in CONTEXTS:
        raise PreflightRefusal("unsupported_mode", f"context {context[:60]!a} is none of {', '.join(CONTEXTS)}.")
    if request.artifact_dir not in ARTIFACT_DIRS:
        raise PreflightRefusal(
            "invalid_artifact_dir", f"artifactDir {request.artifact_dir[:60]!a} is none of {', '.join(ARTIFACT_DIRS)}."
        )
    try:
        if request.wishes.intercom_bridge is not None:
            bridging.check_override(request.wishes.intercom_bridge)
        bridging.check_target(request.wishes.orchestrator_target)
    except bridging.BridgeError as error:
        raise PreflightRefusal("invalid_intercom_bridge", f"{error}.") from error


def _agent(catalog: Catalog, request: PreflightRequest) -> AgentDefinition:
    try:
        return catalog.get(request.agent)
    except InvalidAgentError as error:
        note = Note(code="missing_agent", severity="error", message=error.message)
        raise PreflightRefusal("missing_agent", error.message, [note]) from error
    except AmbiguousAgentError as error:
        raise PreflightRefusal("ambiguous_agent", error.message) from error
    except UnknownAgentError as error:
        raise PreflightRefusal("missing_agent", f"{error.message} {catalog.explain()}") from error


def _bridge(settings: Settings, request: PreflightRequest) -> tuple[bridging.BridgeWish, str, tuple[Note, ...]]:
    """Return what is wanted of the bridge, and the text of its instruction."""
    override = request.wishes.intercom_bridge
    wish = bridging.configured(settings.intercom_bridge) if override is None else bridging.check_override(override)
    if wish.instruction_file is None:
        return wish, bridging.DEFAULT_INSTRUCTION, ()
    path = request.cwd / Path(wish.instruction_file).expanduser()
    try:
        return wish, read_bounded(path, MAX_INSTRUCTION_BYTES).decode("utf-8"), ()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        message = f"The instruction file {path} cannot be read ({reason}): the default text is used."
        return wish, bridging.DEFAULT_INSTRUCTION, (Note(code="instruction_file", severity="warning", message=message),)


def _host_required(plan: LaunchPlan, request: PreflightRequest, *, is_placed: bool) -> list[Note]:
    """Return what only a running host could prove."""
    wishes = request.wishes
    found: list[str] = []
    if plan.context == "fork":
        found.append("The context is a fork: only the host that holds the parent's session knows what is forked.")
    names_target = bridging.TARGET in plan.instruction
    if plan.bridge.active and names_target and wishes.orchestrator_target is None:
        found.append("The bridge's instruction names the session to contact, and no orchestratorTarget is given.")
    if not is_placed:
        found.append(
            "Neither sessionRoot nor sessionDir is given: where the child's session lies is the host's to say."
        )
    if plan.models.candidates and wishes.available_models is None:
        found.append("A model is named and no availableModels are given: only the host knows whether it has it.")
    if request.nested_root_run_id is not None:
        found.append("The run is nested: the root of its artifacts is the host's to say.")
    if plan.agent.runner is None:
        found.append(f"Agent {plan.agent.name!r} is a prompt: it needs a model engine, and none is configured.")
    return [Note(code="host_required", severity="host-required", message=each) for each in found]
