"""Which agents there are for a directory: builtin, packages', the user's, the project's, and a host's own.

This module owns the folders and reads their files; which agent a name means is ``catalog``'s to say. It never writes or
runs one. Nothing has to be restarted after an edit: folders are listed and files looked at with every use, and read
again only where they changed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pisub.agents.catalog import Catalog, Diagnostic, Place, Scope, check_runtime, resolve
from pisub.agents.definition import AgentDefinition, AgentSource, show_path
from pisub.agents.files import MAX_AGENT_FILE_BYTES, MAX_AGENT_FILES, read_bounded, stamp_of, walk_folder
from pisub.agents.packages import InstalledPackages
from pisub.agents.parsing import parse_agent
from pisub.agents.runtime import RuntimeAgents
from pisub.config import Settings, user_config_dir
from pisub.errors import InvalidAgentError

#: The folders of a project, lowest first: other tools' places lose to ours.
PROJECT_FOLDERS = (".claude/agents", ".pi/agents", ".pisub/agents")
BUILTIN_FOLDER = Path(__file__).parent / "builtin"

_NAME_LINE = re.compile(r"^name:[ \t]*[\"']?([A-Za-z0-9._-]+)", re.MULTILINE)
_PACKAGE_LINE = re.compile(r"^package:[ \t]*[\"']?([A-Za-z0-9._-]+)", re.MULTILINE)
_HEAD_CHARS = 4_096
#: Above every project folder.
_RUNTIME_RANK = 100

_Found = AgentDefinition | Diagnostic | None


class _Folder(msgspec.Struct, frozen=True):
    rank: int
    source: AgentSource
    path: Path


class AgentFinder:
    """Finds agents, and remembers the files that it read for as long as they do not change.

    Args:
        settings: Their ``agents`` table is laid over the files.
        user_folder: Instead of `agents` in the user's configuration directory.
        packages: What installed packages bring; None looks it up.
    """

    def __init__(
        self, settings: Settings, *, user_folder: Path | None = None, packages: InstalledPackages | None = None
    ) -> None:
        self._overrides = settings.agents
        self._user_folder = user_folder or user_config_dir() / "agents"
        self._packages = packages or InstalledPackages()
        self._known: dict[tuple[Path, AgentSource, Path | None], tuple[tuple[int, ...], _Found]] = {}
        #: Agents that this program registered.
        self.runtime = RuntimeAgents()
        #: How many files were read, since the beginning.
        self.files_read = 0

    def find(self, cwd: Path, *, scope: Scope = "both") -> Catalog:
        """Find the agents for a directory.

        Args:
            cwd: The directory that a run would work in.
            scope: Whose agents are wanted: ``user``, ``project``, and anything else means both.

        Raises:
            InvalidAgentError: A runtime agent has the name of another one.
        """
        root = find_project_root(cwd)
        found: list[tuple[int, AgentDefinition]] = []
        problems: list[tuple[int, Diagnostic]] = []
        places: list[Place] = []
        for folder in self._folders(root):
            count = 0
            for each in self._read_folder(folder, root):
                if isinstance(each, Diagnostic):
                    problems.append((folder.rank, each))
                else:
                    count += 1
                    found.append((folder.rank, each))
            places.append(Place(folder.source, folder.path, folder.path.is_dir(), count))
        runtime = self.runtime.agents
        check_runtime(runtime, (agent for _, agent in found))
        found.extend((_RUNTIME_RANK, agent) for agent in runtime)
        return resolve(found, problems, root=root, cwd=cwd, places=places, scope=scope)

    def _folders(self, root: Path) -> list[_Folder]:
        packaged = [path for _, path in self._packages.folders()]
        return [
            _Folder(0, AgentSource.BUILTIN, BUILTIN_FOLDER),
            *(_Folder(1, AgentSource.PACKAGE, path) for path in packaged),
            _Folder(2, AgentSource.USER, self._user_folder),
            *(_Folder(3 + at, AgentSource.PROJECT, root / name) for at, name in enumerate(PROJECT_FOLDERS)),
        ]

    def _read_folder(self, folder: _Folder, root: Path) -> Iterator[AgentDefinition | Diagnostic]:
        seen = 0
        try:
            for path in walk_folder(folder.path):
                seen += 1
                if seen > MAX_AGENT_FILES:
                    yield _problem(folder, folder.path, f"more than {MAX_AGENT_FILES} files; the rest was not read")
                    return
                each = self._look_at(path, folder, root)
                if each is not None:
                    yield each
        except OSError as error:
            yield _problem(folder, folder.path, f"cannot be listed: {error.strerror}")

    def _look_at(self, path: Path, folder: _Folder, root: Path) -> _Found:
        key = (path, folder.source, root if folder.source is AgentSource.PROJECT else None)
        # Before the read: what is written in between is read now, and looked at again the next time.
        stamp = stamp_of(path)
        known = self._known.get(key)
        if known is not None and known[0] == stamp:
            return known[1]
        self.files_read += 1
        found = self._read(path, folder, root)
        if stamp is not None:
            self._known[key] = (stamp, found)
        return found

    def _read(self, path: Path, folder: _Folder, root: Path) -> _Found:
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
        try:
            return parse_agent(
                text,
                file=path,
                source=folder.source,
                project_root=root if folder.source is AgentSource.PROJECT else None,
                file_sha256=hashlib.sha256(raw).hexdigest(),
                overrides=self._overrides,
            )
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


def builtin_names() -> frozenset[str]:
    """Return the names of pisub's own agents."""
    return frozenset(path.stem for path in walk_folder(BUILTIN_FOLDER))


def discover(settings: Settings, cwd: Path, *, user_folder: Path | None = None) -> Catalog:
    """Find the agents for a directory, once; see ``AgentFinder``."""
    return AgentFinder(settings, user_folder=user_folder).find(cwd)


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


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


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
    """Return the name that a file of which not all could be read would have, with its package."""
    found = _NAME_LINE.search(text, 0, _HEAD_CHARS)
    name = found[1] if found else path.stem.encode("utf-8", "backslashreplace").decode()
    package = _PACKAGE_LINE.search(text, 0, _HEAD_CHARS)
    return f"{package[1].lower()}.{name}" if package else name
