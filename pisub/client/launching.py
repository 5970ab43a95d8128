"""What a run is launched with: its agent as it is now, less what ceilings take, with the digests of its contract.

Every way to start a run goes through ``resolve_launch``: spawn, batch, nested, resume. It makes the same plan that a
preflight shows, by the same functions, and enforces the ceiling of the session, of the run above and of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from pisub import arguments
from pisub.agents.definition import may_ask, snapshot
from pisub.agents.discovery import AgentFinder
from pisub.agents.trust import require_trust
from pisub.client.caller import CHILD_REFUSED, asking_run, calling_run
from pisub.config import Settings
from pisub.errors import InvalidArgumentError, RefusedError
from pisub.preflight.contract import Preflight
from pisub.preflight.plan import PreflightRefusal, Wishes
from pisub.preflight.resolve import PreflightRequest, build_contract, check_request, plan_for, preflight
from pisub.preflight.tools import SUBAGENT_TOOL
from pisub.record.ceilings import CeilingHandle, active_ceiling, register_ceiling
from pisub.record.layout import Layout
from pisub.record.reader import RunView
from pisub.runs.budgets import ToolBudget, check_budget
from pisub.runs.ceilings import CapabilityAudit, CapabilityCeiling, check_ceiling, intersect, require_none
from pisub.runs.spec import AgentSnapshot, LaunchFacts, resolved_extensions
from pisub.runs.usage_budget import UsageBudget, check_usage_budget

#: Who asks for a ceiling that comes with one launch.
LAUNCH_SOURCE: Final = "launch"


class ResolvedLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into the spec of a run.

    Attributes:
        timeout_ms: The agent's own deadline; None where it has none.
        output_schema: As wished, checked.
        tool_budget: The agent's own; None where it has none.
    """

    agent: AgentSnapshot
    facts: LaunchFacts
    ceiling: CapabilityCeiling | None
    audit: CapabilityAudit | None
    timeout_ms: int | None
    output_schema: dict[str, Any] | None
    tool_budget: ToolBudget | None


def ceiling_for(
    layout: Layout, session_id: str, parent: RunView | None, *others: CapabilityCeiling | None
) -> CapabilityCeiling | None:
    """Return what holds for a run that is to be started: of its session, of the run above it, and what else is given.

    Raises:
        RecordCorruptError: One of them is there and cannot be read.
    """
    inherited = None if parent is None else parent.spec.capability_ceiling
    return intersect((active_ceiling(layout, session_id), inherited, *others))


def require_delegation(parent: RunView) -> None:
    """Pass for a run that may start others under its ceiling.

    Raises:
        RefusedError: Its ceiling does not have the tool ``subagent`` (``denied_tool``).
    """
    ceiling = parent.spec.capability_ceiling
    if ceiling is not None and not ceiling.allows_tool(SUBAGENT_TOOL):
        raise RefusedError(
            f"The capability ceiling ({', '.join(ceiling.sources)}) of run {parent.run_id} does not allow it the tool "
            f"{SUBAGENT_TOOL!r}: it starts nothing.",
            code="denied_tool",
        )


def resolve_launch(
    settings: Settings,
    layout: Layout,
    finder: AgentFinder,
    *,
    agent: str,
    task: str,
    cwd: Path,
    run_id: str,
    ceiling: CapabilityCeiling | None,
    wishes: Wishes,
) -> ResolvedLaunch:
    """Find an agent as it is seen from a directory, check that it may run, and plan its launch.

    Raises:
        UnknownAgentError: There is none.
        InvalidAgentError: Its file cannot be used, or nothing drives it.
        UntrustedProjectError: It is a project's that nobody has trusted.
        RefusedError: The launch cannot be made; the code is a preflight's.
    """
    catalog = finder.find(cwd)
    definition = catalog.get(agent)
    request = PreflightRequest(agent=agent, task=task, cwd=cwd, wishes=wishes, run_id=run_id, ceiling=ceiling)
    try:
        check_request(request)
        plan = plan_for(settings, catalog.project_root, definition, request)
    except PreflightRefusal as refusal:
        raise RefusedError(refusal.message, code=refusal.code, field="agent") from refusal
    require_trust(settings, definition)
    kept = snapshot(definition)
    contract = build_contract(plan, layout.runs, catalog, request)
    return ResolvedLaunch(
        agent=msgspec.structs.replace(
            kept, system_prompt=plan.system_prompt, can_ask=may_ask(kept.can_ask, plan.tools.can_ask)
        ),
        facts=LaunchFacts(
            definition_digest=plan.definition_digest,
            launch_contract_digest=plan.launch_contract_digest,
            contract_digest=contract.digest,
            context=plan.context,
            thinking=plan.thinking,
            effective_tools=plan.tools.effective_allowlist,
            output_path=plan.output.path,
            output_mode=plan.output.mode,
            resolved_extensions=resolved_extensions(plan.tools.extension_args),
        ),
        ceiling=ceiling,
        audit=plan.tools.capability_audit,
        timeout_ms=definition.timeout_ms,
        output_schema=plan.output_schema,
        tool_budget=definition.tool_budget,
    )


def budget_for(asked: ToolBudget | None, resolved: ResolvedLaunch) -> ToolBudget | None:
    """Return a run's budget of tool calls: the caller's, else the agent's own. A program's calls are its own affair.

    Raises:
        RefusedError: One is asked for of a program (``budget_not_kept``).
    """
    if asked is not None and resolved.agent.runner.type != "python":
        raise RefusedError(
            f"Agent {resolved.agent.name!r} is a program: pisub sees none of its tool calls, and keeps no budget.",
            code="budget_not_kept",
            field="tool_budget",
        )
    return asked or (resolved.tool_budget if resolved.agent.runner.type == "python" else None)


def wishes_of(given: Mapping[str, Any]) -> Wishes:
    """Return a caller's keyword arguments as wishes.

    Raises:
        InvalidArgumentError: One has no such name or type.
    """
    unknown = sorted(given.keys() - set(Wishes.__struct_fields__))
    if unknown:
        known = ", ".join(Wishes.__struct_fields__)
        raise InvalidArgumentError(f"There is no argument {unknown[0]!r}; there are {known}.", field=unknown[0])
    try:
        return msgspec.convert(dict(given), Wishes)
    except msgspec.ValidationError as error:
        field = str(error).rpartition("$.")[2].rstrip("`") or None
        raise InvalidArgumentError(f"{field}: {error}", field=field) from error


def preflight_in(
    settings: Settings, layout: Layout, finder: AgentFinder, *, session_id: str, given: Mapping[str, Any]
) -> Preflight:
    """Answer a preflight for a session: with its ceiling, and that of the run whose process this is.

    Args:
        settings: The configuration.
        layout: The record in which the run would be.
        finder: Where agents are found.
        session_id: The session.
        given: Arguments by name: fields of ``PreflightRequest`` and of ``Wishes``; None is "not given".

    Raises:
        InvalidArgumentError: An argument has no such name or type, or a model is not there.
    """
    found = {key: value for key, value in given.items() if value is not None}
    own = {key: found.pop(key) for key in tuple(found) if key in _REQUEST_FIELDS}
    wishes = wishes_of(found)
    for key in ("agent", "task", "run_id"):
        if key in own:
            arguments.text(own[key], key)
    directory = arguments.path(own.pop("cwd", Path.cwd()), "cwd").expanduser().absolute()
    policy = own.pop("ceiling", None)
    ceiling = ceiling_for(
        layout, session_id, asking_run(layout), None if policy is None else check_ceiling(policy, LAUNCH_SOURCE)
    )
    for key in _PATH_FIELDS:
        if key in own:
            own[key] = arguments.path(own[key], key)
    request = PreflightRequest(cwd=directory, wishes=wishes, ceiling=ceiling, **own)
    return preflight(settings, layout, finder, request)


def budget_of(given: object) -> ToolBudget:
    """Return a caller's budget of tool calls. None may forbid them all: that is for a delegation's host to say.

    Raises:
        InvalidArgumentError: It is none.
    """
    try:
        return check_budget(dict(given) if isinstance(given, Mapping) else given, lowest=1)  # pyright: ignore[reportUnknownArgumentType]
    except ValueError as error:
        raise InvalidArgumentError(f"tool_budget: {error}.", field="tool_budget") from error


def usage_budget_of(given: object) -> UsageBudget:
    """Return a caller's budget of what models may use.

    Raises:
        InvalidArgumentError: It is none.
    """
    try:
        return check_usage_budget(given)
    except ValueError as error:
        raise InvalidArgumentError(f"usage_budget: {error}.", field="usage_budget") from error


_PATH_FIELDS: Final = ("parent_session_file", "session_root", "session_dir")
_REQUEST_FIELDS: Final = frozenset(PreflightRequest.__struct_fields__) - {"wishes"}


def put_ceiling(layout: Layout, session_id: str, source: str, ceiling: object) -> CeilingHandle:
    """Put a ceiling over a session; see ``pisub.record.ceilings``.

    Raises:
        RefusedError: This process is a run's: its limits come from whoever started it (``child_refused``).
        InvalidArgumentError: It is no ceiling.
    """
    caller = calling_run(layout)
    if caller is not None:
        raise RefusedError(
            f"A child of run {caller} may not set capability ceilings: what it may do is decided above it.",
            code=CHILD_REFUSED,
        )
    return register_ceiling(layout, session_id, source, ceiling)


def require_schedulable(layout: Layout, session_id: str) -> None:
    """Pass where a schedule may be kept: not while a ceiling is active in the session.

    Raises:
        RefusedError: One is (``ceiling_active``).
    """
    require_none(active_ceiling(layout, session_id))
