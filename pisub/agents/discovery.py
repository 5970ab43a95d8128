"""Which agents there are for a directory: builtin, the user's, the project's; which one wins; what is wrong.

This module owns the folders and the order among them. It reads files and never writes or runs one. A file that cannot
be used hides no other: it becomes a diagnostic, and blocks only its own name.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from pisub.agents.definition import AgentDefinition, AgentSource, parse_agent, show_path
from pisub.config import Settings, user_config_dir
from pisub.errors import InvalidAgentError, UnknownAgentError
from pisub.protocol.base import Record
from pisub.small_files import file_of

#: The folders of a project, lowest first: other tools' places lose to ours.
PROJECT_FOLDERS = (".claude/agents", ".pi/agents", ".pisub/agents")
BUILTIN_FOLDER = Path(__file__).parent / "builtin"
#: An agent's file. The longest seen in the field has 70 KiB.
MAX_AGENT_FILE_BYTES = 1024 * 1024
#: Files of one source, and how deep they may lie.
MAX_AGENT_FILES = 2_000
MAX_FOLDER_DEPTH = 8

_NAME_LINE = re.compile(r"^name:[ \t]*[\"']?([A-Za-z0-9._-]+)", re.MULTILINE)
_HEAD_CHARS = 4_096


class Diagnostic(Record, frozen=True, kw_only=True):
    """What is wrong with one file.

    Attributes:
        name: The agent's name as far as it could be read.
        is_blocking: The name cannot be used until the file is repaired; else the file is only passed over.
    """

    file: str
    message: str
    source: str
    name: str = ""
    line: int | None = None
    field: str | None = None
    is_blocking: bool = False


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """What ``discover`` found.

    Attributes:
        agents: Those that can be named, by name.
        shadowed: Those that a higher one of the same name replaced, highest first.
        diagnostics: What is wrong, by file.
        project_root: Where the project's agents were looked for.
    """

    agents: tuple[AgentDefinition, ...]
    shadowed: tuple[AgentDefinition, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    project_root: Path

    def get(self, name: str) -> AgentDefinition:
        """Find an agent by its name, else by an alias.

        Raises:
            InvalidAgentError: A file of this name is there, and cannot be used; or an alias belongs to several agents.
            UnknownAgentError: Nothing has this name; the message has names that are near.
        """
        wanted = name.strip()
        for agent in self.agents:
            if agent.name == wanted:
                return agent
        for diagnostic in self.diagnostics:
            if diagnostic.is_blocking and diagnostic.name == wanted:
                raise InvalidAgentError(
                    f"Agent {wanted!r} has an invalid configuration: {diagnostic.message}",
                    field=diagnostic.field,
                    file=diagnostic.file,
                    line=diagnostic.line,
                )
        aliased = [agent for agent in self.agents if wanted in agent.aliases]
        if len(aliased) > 1:
            names = ", ".join(agent.name for agent in aliased)
            raise InvalidAgentError(
                f"Ambiguous agent alias {wanted!r}: {names}. Use one of these names.", field="agent"
            )
        if aliased:
            return aliased[0]
        raise UnknownAgentError(self._unknown(wanted), field="agent")

    def shadowed_by(self, agent: AgentDefinition) -> tuple[AgentDefinition, ...]:
        """Return the lower agents whose name this one took, highest first."""
        return tuple(each for each in self.shadowed if each.name == agent.name)

    def _unknown(self, wanted: str) -> str:
        import difflib  # noqa: PLC0415  # only for an error's text

        names = [agent.name for agent in self.agents]
        near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(names)}." if names else ""
        return f"No agent is called {wanted[:80]!a}. {hint} `pisub agents` lists them with their files.".replace(
            "  ", " "
        )


class _Folder(msgspec.Struct, frozen=True):
    rank: int
    source: AgentSource
    path: Path


def discover(settings: Settings, cwd: Path, *, user_folder: Path | None = None) -> Catalog:
    """Find the agents for a directory.

    Args:
        settings: Kept for the callers' sake: all of discovery's places follow from the user and ``cwd`` today.
        cwd: The directory that a run would work in.
        user_folder: Instead of `agents` in the user's configuration directory.
    """
    del settings
    root = find_project_root(cwd)
    folders = [
        _Folder(0, AgentSource.BUILTIN, BUILTIN_FOLDER),
        _Folder(1, AgentSource.USER, user_folder or user_config_dir() / "agents"),
        *(_Folder(2 + at, AgentSource.PROJECT, root / name) for at, name in enumerate(PROJECT_FOLDERS)),
    ]
    found: list[tuple[int, AgentDefinition]] = []
    problems: list[tuple[int, Diagnostic]] = []
    for folder in folders:
        for each in _read_folder(folder, root):
            if isinstance(each, Diagnostic):
                problems.append((folder.rank, each))
            else:
                found.append((folder.rank, each))
    return _resolve(found, problems, root)


def find_project_root(cwd: Path) -> Path:
    """Return the nearest directory from ``cwd`` upwards that has agents' folders or `.git`, else ``cwd`` itself."""
    start = cwd.absolute()
    for each in (start, *start.parents):
        if any(_is_there(each / name) for name in (*PROJECT_FOLDERS, ".git")):
            return each
    return start


def project_folders(root: Path) -> tuple[Path, ...]:
    """Return a project's agents folders, lowest first, whether they are there or not."""
    return tuple(root / name for name in PROJECT_FOLDERS)


def walk_folder(folder: Path, *, only_agents: bool = True) -> Iterator[Path]:
    """Yield a folder's files in a stable order. Directories behind a symlink are not entered.

    Args:
        folder: May itself be a symlink. A missing one has no files.
        only_agents: Only `*.md`, without the `*.chain.md` of another tool.

    Raises:
        OSError: A directory cannot be listed.
    """
    pending = [(folder, 0)]
    while pending:
        directory, depth = pending.pop()
        try:
            with os.scandir(directory) as listing:
                entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
        except (FileNotFoundError, NotADirectoryError):
            continue
        deeper: list[tuple[Path, int]] = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_FOLDER_DEPTH and entry.name not in {"__pycache__", ".git", "node_modules"}:
                    deeper.append((directory / entry.name, depth + 1))
            elif not only_agents or (entry.name.endswith(".md") and not entry.name.endswith(".chain.md")):
                yield directory / entry.name
        pending.extend(reversed(deeper))


def read_bounded(path: Path, limit: int) -> bytes:
    """Read a regular file of at most ``limit`` bytes; a FIFO or device never blocks.

    Raises:
        OSError: It cannot be read, is no regular file, or is longer.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with file_of(descriptor) as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "not a regular file")
        if found.st_size > limit:
            raise OSError(0, f"longer than {limit} bytes")
        chunks: list[bytes] = []
        left = limit + 1
        while left > 0 and (chunk := file.read(left)):
            chunks.append(chunk)
            left -= len(chunk)
        if left <= 0:
            raise OSError(0, f"longer than {limit} bytes")
        return b"".join(chunks)


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def _read_folder(folder: _Folder, root: Path) -> Iterator[AgentDefinition | Diagnostic]:
    seen = 0
    try:
        for path in walk_folder(folder.path):
            seen += 1
            if seen > MAX_AGENT_FILES:
                yield _problem(folder, folder.path, f"more than {MAX_AGENT_FILES} files; the rest was not read")
                return
            each = _read_agent(path, folder, root)
            if each is not None:
                yield each
    except OSError as error:
        yield _problem(folder, folder.path, f"cannot be listed: {error.strerror}")


def _read_agent(path: Path, folder: _Folder, root: Path) -> AgentDefinition | Diagnostic | None:
    try:
        raw = read_bounded(path, MAX_AGENT_FILE_BYTES)
    except OSError as error:
        return _problem(folder, path, f"cannot be read: {error.strerror}", name=path.stem, is_blocking=True)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        name = _guess_name(raw.decode("utf-8", "replace"), path)
        return _problem(folder, path, "not UTF-8", name=name, line=line, is_blocking=True)
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return _problem(folder, path, "its path is not UTF-8", name=_guess_name(text, path), is_blocking=True)
    project_root = root if folder.source is AgentSource.PROJECT else None
    try:
        return parse_agent(text, file=path, source=folder.source, project_root=project_root)
    except InvalidAgentError as error:
        if not text.lstrip("\ufeff").startswith("---"):
            return None  # a README among the agents
        is_missing = error.field in {"name", "description"} and error.line == 1
        return Diagnostic(
            file=error.file,
            message=error.message,
            source=folder.source.value,
            name=_guess_name(text, path),
            line=error.line,
            field=error.field,
            is_blocking=not is_missing,
        )


def _problem(
    folder: _Folder, path: Path, what: str, *, name: str = "", line: int | None = None, is_blocking: bool = False
) -> Diagnostic:
    shown = show_path(path)
    place = shown if line is None else f"{shown}:{line}"
    safe_name = name.encode("utf-8", "backslashreplace").decode()
    return Diagnostic(
        file=shown,
        message=f"{place}: {what}.",
        source=folder.source.value,
        name=safe_name,
        line=line,
        is_blocking=is_blocking,
    )


def _guess_name(text: str, path: Path) -> str:
    found = _NAME_LINE.search(text, 0, _HEAD_CHARS)
    return found[1] if found else path.stem.encode("utf-8", "backslashreplace").decode()


def _resolve(
    found: Iterable[tuple[int, AgentDefinition]], problems: Iterable[tuple[int, Diagnostic]], root: Path
) -> Catalog:
    ranked: dict[str, list[tuple[int, AgentDefinition]]] = {}
    for rank, agent in found:
        ranked.setdefault(agent.name, []).append((rank, agent))
    diagnostics = [each for _, each in problems]
    blocked = {each.name: rank for rank, each in sorted(problems, key=lambda pair: pair[0]) if each.is_blocking}
    agents: list[AgentDefinition] = []
    shadowed: list[AgentDefinition] = []
    for name, candidates in sorted(ranked.items()):
        candidates.sort(key=lambda pair: -pair[0])  # stable: within a folder the first file wins
        top_rank, top = candidates[0]
        diagnostics.extend(_duplicates(candidates))
        if blocked.get(name, -1) >= top_rank:
            shadowed.extend(agent for _, agent in candidates)
            continue
        agents.append(top)
        shadowed.extend(agent for _, agent in candidates[1:])
    effective = {agent.name for agent in agents}
    return Catalog(
        agents=tuple(agents),
        shadowed=tuple(shadowed),
        diagnostics=tuple(
            # A broken file below a sound one of the same name blocks nothing.
            msgspec.structs.replace(each, is_blocking=False) if each.name in effective else each
            for each in sorted(diagnostics, key=lambda each: (each.file, each.line or 0))
        ),
        project_root=root,
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
