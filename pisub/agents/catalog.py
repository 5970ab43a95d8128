"""Which of several agents a name means: order of the sources, aliases, what blocks a name. Pure: it reads no file.

A file that cannot be used hides no other: it becomes a diagnostic, and blocks only its own name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from pisub.agents.definition import AgentDefinition, AgentSource, show_path
from pisub.errors import AmbiguousAgentError, InvalidAgentError, UnknownAgentError
from pisub.protocol.base import Record

#: Which agents a caller wants: those of the user, of the project, or both; builtin and packaged ones always.
Scope = Literal["user", "project", "both"]

#: Names in the error for one that there is not; more of them would hide the sentence.
_NAMES_SHOWN: Final = 8


class Diagnostic(Record, frozen=True, kw_only=True):
    """What is wrong with one file.

    Attributes:
        name: The agent's name as far as it could be read, with its package.
        is_blocking: The name cannot be used until the file is repaired; else the file is only passed over.
    """

    file: str
    message: str
    source: str
    name: str = ""
    line: int | None = None
    field: str | None = None
    is_blocking: bool = False


class Place(msgspec.Struct, frozen=True):
    """A folder in which agents were looked for. ``count`` is of its files that are agents."""

    source: AgentSource
    path: Path
    is_there: bool
    count: int


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """What ``discover`` found.

    Attributes:
        agents: Those that can be named, by name.
        shadowed: Those that a higher one of the same name replaced, that are disabled or out of scope; highest first.
        diagnostics: What is wrong, by file.
        project_root: Where the project's agents were looked for.
        cwd: The directory that they were found for.
        places: Every folder that was looked at, lowest first.
        blocked: The rank of the file that blocks a name.
        ranks: The rank of an agent, by its file.
    """

    agents: tuple[AgentDefinition, ...]
    shadowed: tuple[AgentDefinition, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    project_root: Path
    cwd: Path = Path()
    places: tuple[Place, ...] = ()
    blocked: dict[str, int] = {}
    ranks: dict[Path, int] = {}

    def get(self, name: str) -> AgentDefinition:
        """Find an agent by its name, with or without its package, else by an alias.

        Raises:
            InvalidAgentError: A file of this name is there, and cannot be used, or the name is disabled.
            AmbiguousAgentError: Several agents have this local name, or this alias.
            UnknownAgentError: Nothing has this name; the message has names that are near.
        """
        wanted = name.strip()
        named = [agent for agent in self.agents if wanted in (agent.name, agent.short_name)]
        self._check_blocked(wanted, named)
        if named:
            return _only(named, wanted, "name")
        if any(each.is_disabled and wanted == each.name for each in self.shadowed):
            raise InvalidAgentError(f"Agent {wanted!r} is disabled in config.toml.", field="disabled")
        aliased = [agent for agent in self.agents if wanted in agent.aliases]
        if aliased:
            return _only(aliased, wanted, "alias")
        raise UnknownAgentError(self._unknown(wanted), field="agent")

    def shadowed_by(self, agent: AgentDefinition) -> tuple[AgentDefinition, ...]:
        """Return the other agents whose name this one took, highest first, of all scopes."""
        return tuple(each for each in self.shadowed if each.name == agent.name)

    def explain(self) -> str:
        """Return where agents were looked for and what was found, in one sentence each."""
        looked = "; ".join(
            f"{each.source.value} {show_path(each.path)} "
            + (f"({each.count} agent{'s' if each.count != 1 else ''})" if each.is_there else "(not there)")
            for each in self.places
        )
        names = ", ".join(agent.name for agent in self.agents) or "none"
        return f"For {show_path(self.cwd)} these were looked at: {looked}. Agents: {names}."

    def _check_blocked(self, wanted: str, named: Sequence[AgentDefinition]) -> None:
        rank = self.blocked.get(wanted)
        if rank is None or rank < max((self.ranks.get(each.file, 0) for each in named), default=0):
            return
        for diagnostic in self.diagnostics:
            if diagnostic.name == wanted and diagnostic.is_blocking:
                raise InvalidAgentError(
                    f"Agent {wanted!r} has an invalid configuration: {diagnostic.message}",
                    field=diagnostic.field,
                    file=diagnostic.file,
                    line=diagnostic.line,
                )

    def _unknown(self, wanted: str) -> str:
        import difflib  # noqa: PLC0415  # only for an error's text

        names = [agent.name for agent in self.agents]
        near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        listed = f"There are: {', '.join(names[:_NAMES_SHOWN])}{more}." if names else ""
        hint = f"Did you mean {' or '.join(near)}?" if near else listed
        return f"No agent is called {wanted[:80]!a}. {hint} `pisub agents` lists them with their files.".replace(
            "  ", " "
        )


def _only(found: Sequence[AgentDefinition], wanted: str, kind: str) -> AgentDefinition:
    """Return the one agent; of several that differ in name none is chosen."""
    if len(found) == 1:
        return found[0]
    names = sorted(agent.name for agent in found)
    raise AmbiguousAgentError(
        f"Ambiguous agent {kind} {wanted!r}: {', '.join(names)}. Use one of these names.", candidates=tuple(names)
    )


def resolve(
    found: Iterable[tuple[int, AgentDefinition]],
    problems: Iterable[tuple[int, Diagnostic]],
    *,
    root: Path,
    cwd: Path,
    places: Sequence[Place] = (),
    scope: Scope = "both",
) -> Catalog:
    """Decide which agents can be named.

    Args:
        found: Every agent with the rank of its folder; of two with one rank and name the first wins.
        problems: What is wrong with other files, likewise.
        root: The project's.
        cwd: The directory that the agents are wanted for.
        places: The folders, for explanations.
        scope: Whose agents are wanted.
    """
    ranked: dict[str, list[tuple[int, AgentDefinition]]] = {}
    hidden: list[AgentDefinition] = []
    ranks: dict[Path, int] = {}
    for rank, agent in found:
        ranks[agent.file] = rank
        if _is_in_scope(agent.source, scope):
            ranked.setdefault(agent.name, []).append((rank, agent))
        else:
            hidden.append(agent)
    kept = [(rank, each) for rank, each in problems if _is_in_scope(AgentSource(each.source), scope)]
    diagnostics = [each for _, each in kept]
    blocked = {each.name: rank for rank, each in sorted(kept, key=lambda pair: pair[0]) if each.is_blocking}
    agents: list[AgentDefinition] = []
    shadowed: list[AgentDefinition] = []
    for name, candidates in sorted(ranked.items()):
        candidates.sort(key=lambda pair: -pair[0])  # stable: within a folder the first file wins
        top_rank, top = candidates[0]
        diagnostics.extend(_duplicates(candidates))
        if blocked.get(name, -1) >= top_rank or top.is_disabled:
            shadowed.extend(agent for _, agent in candidates)
            continue
        agents.append(top)
        shadowed.extend(agent for _, agent in candidates[1:])
    effective = {agent.name for agent in agents}
    return Catalog(
        agents=tuple(agents),
        shadowed=(*shadowed, *hidden),
        diagnostics=tuple(
            # A broken file below a sound one of the same name blocks nothing.
            msgspec.structs.replace(each, is_blocking=False) if each.name in effective else each
            for each in sorted(diagnostics, key=lambda each: (each.file, each.line or 0))
        ),
        project_root=root,
        cwd=cwd,
        places=tuple(places),
        blocked={name: rank for name, rank in blocked.items() if name not in effective},
        ranks=ranks,
    )


def check_runtime(runtime: Sequence[AgentDefinition], configured: Iterable[AgentDefinition]) -> None:
    """Pass where no runtime agent has a name or an alias of a configured one, of whatever scope, disabled or hidden.

    Raises:
        InvalidAgentError: One has. Then nothing can be found: which of the two is meant is nobody's guess.
    """
    owners = {key: agent for agent in runtime for key in keys_of(agent)}
    for other in configured:
        for key in keys_of(other):
            if key in owners:
                raise InvalidAgentError(
                    f"Runtime agent {owners[key].name!r} collides with the {other.source.value} agent {other.name!r} "
                    f"({show_path(other.file)}): both have the name {key!r}. Register it under another one.",
                    field="name",
                )


def keys_of(agent: AgentDefinition) -> tuple[str, ...]:
    """Return everything that an agent can be called."""
    return tuple(dict.fromkeys((agent.name, agent.short_name, *agent.aliases)))


def _is_in_scope(source: AgentSource, scope: Scope) -> bool:
    return not (
        (scope == "user" and source is AgentSource.PROJECT) or (scope == "project" and source is AgentSource.USER)
    )


def _duplicates(candidates: list[tuple[int, AgentDefinition]]) -> Iterator[Diagnostic]:
    for (rank, first), (next_rank, second) in itertools.pairwise(candidates):
        if rank == next_rank:
            yield Diagnostic(
                file=show_path(second.file),
                message=f"{show_path(second.file)}: the name {second.name!r} is taken by {show_path(first.file)}.",
                source=second.source.value,
                name=second.name,
                field="name",
            )
