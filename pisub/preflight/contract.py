"""What exactly would be launched: the contract, as a value and as JSON. Pure.

Names and nesting are the contract's (delegation 2.2). It has no prompt and no task in it, only their digests. What has
no default is always written, so that a reader need not know ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from pisub.agents.catalog import Catalog
from pisub.agents.definition import AgentDefinition
from pisub.preflight.bridge import BridgeState
from pisub.preflight.digests import DEFINITION_PROJECTION
from pisub.preflight.tools import Note, ToolPlan
from pisub.protocol.base import Part

CONTRACT_VERSION = 3


class _Always(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of which every field is written."""


class Candidate(Part, frozen=True, kw_only=True):
    """An agent that has the name, chosen or not."""

    name: str
    local_name: str | None = None
    package_name: str | None = None
    source: str
    file_path: str
    disabled: bool = False
    selected: bool = False


class ContractAgent(Part, frozen=True, kw_only=True):
    """The agent that was chosen, and those that it shadows, of all scopes."""

    name: str
    local_name: str | None = None
    package_name: str | None = None
    source: str
    file_path: str
    definition_projection_version: int
    definition_digest: str
    shadowed_candidates: list[Candidate]


class ContractSkill(_Always, frozen=True, kw_only=True):
    """A skill that was found."""

    name: str
    path: str
    source: str


class ContractSkills(_Always, frozen=True, kw_only=True):
    """The skills that were asked for, found, and not found."""

    requested: tuple[str, ...]
    resolved: tuple[ContractSkill, ...]
    missing: tuple[str, ...]


class Lifecycle(_Always, frozen=True, kw_only=True):
    """Where a run's record lies."""

    async_dir: str
    result_path: str
    status_path: str
    events_path: str
    process_terminal_path: str
    process_terminal_candidate_path: str


class Roots(Part, frozen=True, kw_only=True):
    """Every place of the launch. None of them was made."""

    cwd: str
    session_root: str | None = None
    session_dir: str | None = None
    session_file: str | None = None
    artifacts_dir: str | None = None
    output_path: str | None = None
    lifecycle: Lifecycle


class ContractProtocol(_Always, frozen=True, kw_only=True):
    """The versions of what is written and of who writes it."""

    lifecycle_artifact_version: int
    package_version: str


class LaunchContract(Part, frozen=True, kw_only=True):
    """One launch, resolved. ``digest`` covers the whole of it except for itself."""

    version: int
    run_id: str
    agent: ContractAgent
    context: str
    model: str | None = None
    model_candidates: tuple[str, ...]
    thinking: str | None = None
    thinking_ceiling: str | None = None
    system_prompt_mode: str
    inherit_project_context: bool
    inherit_global_context: bool
    inherit_skills: bool
    skills: ContractSkills
    tools: ToolPlan
    intercom_bridge: BridgeState
    roots: Roots
    protocol: ContractProtocol
    diagnostics: tuple[Note, ...]
    launch_contract_digest: str
    digest: str = ""


class Accepted(_Always, frozen=True, kw_only=True):
    """The launch can be made."""

    ok: Literal[True]
    contract: LaunchContract


class Refused(_Always, frozen=True, kw_only=True):
    """It cannot; ``code`` is the first thing that is in the way."""

    ok: Literal[False]
    code: str
    message: str
    diagnostics: tuple[Note, ...]


Preflight = Accepted | Refused


def contract_agent(agent: AgentDefinition, digest: str, catalog: Catalog) -> ContractAgent:
    """Return the agent as a contract names it."""
    return ContractAgent(
        name=agent.name,
        local_name=agent.local_name or None,
        package_name=agent.package or None,
        source=agent.source.value,
        file_path=str(agent.file),
        definition_projection_version=DEFINITION_PROJECTION,
        definition_digest=digest,
        shadowed_candidates=[candidate(each) for each in catalog.shadowed_by(agent)],
    )


def candidate(agent: AgentDefinition, *, is_selected: bool = False) -> Candidate:
    """Return an agent as one of several of a name."""
    return Candidate(
        name=agent.name,
        local_name=agent.local_name or None,
        package_name=agent.package or None,
        source=agent.source.value,
        file_path=str(agent.file),
        disabled=agent.is_disabled,
        selected=is_selected,
    )


def session_places(
    run_id: str, own: Path, *, session_root: Path | None, session_dir: Path | None
) -> tuple[Path | None, Path, Path]:
    """Return root, directory and file of the child's session.

    Args:
        run_id: The run, by which each given place is divided.
        own: The session file in the run's own record, for who gives no place.
        session_root: Given by the caller.
        session_dir: Given by the caller; it takes precedence.
    """
    if session_dir is not None:
        directory = session_dir / run_id / "run-0"
        return session_root, directory, directory / "session.jsonl"
    if session_root is not None:
        directory = session_root / run_id / "run-0"
        return session_root / run_id, directory, directory / "session.jsonl"
    return None, own.parent, own
