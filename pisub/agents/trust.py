"""Whether a project's agents may run code: said once by the user, and again when its agents folders change.

Trust is recorded in the user's state by the real path of the project and a digest of its agents folders. The digest
covers where each folder really is and every file in it (not byte code caches, which a run itself writes). It does not
cover the rest of the project: whoever trusts an agent of it trusts the code that the agent names.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

import msgspec

from pisub.agents.definition import AgentDefinition, AgentSource, show_path
from pisub.agents.discovery import project_folders
from pisub.agents.files import read_bounded, walk_folder
from pisub.config import Settings
from pisub.errors import RecordCorruptError, UntrustedProjectError
from pisub.paths import PRIVATE_FILE, ensure_private_dir, state_root
from pisub.protocol.base import Record
from pisub.small_files import read_small

#: Bounds of what a digest reads; a folder beyond them is no agents folder.
MAX_DIGEST_FILES = 5_000
MAX_DIGEST_FILE_BYTES = 16 * 1024 * 1024


#: A path and a digest.
_MAX_RECORD_BYTES = 64 * 1024


class TrustRecord(Record, frozen=True, kw_only=True):
    """One project that the user trusts, as it was then."""

    root: str
    digest: str


def agents_digest(project_root: Path) -> str:
    """Return the SHA-256, in hex, of a project's agents folders: real places, names and contents.

    Raises:
        UntrustedProjectError: A folder cannot be read whole, so nobody can say what would be trusted.
    """
    digest = hashlib.sha256()
    count = 0
    for folder in project_folders(project_root):
        if not folder.is_dir():
            continue
        real = folder.resolve()
        digest.update(b"folder\0" + os.fsencode(folder.relative_to(project_root)) + b"\0" + _place(real, project_root))
        try:
            for path in walk_folder(real, only_agents=False):
                count += 1
                if count > MAX_DIGEST_FILES:
                    raise UntrustedProjectError(f"{show_path(folder)} has more than {MAX_DIGEST_FILES} files.")
                if not path.exists():
                    continue  # a dangling symlink: nothing that could run
                content = hashlib.sha256(read_bounded(path, MAX_DIGEST_FILE_BYTES)).digest()
                digest.update(b"file\0" + os.fsencode(path.relative_to(real)) + b"\0" + content)
        except OSError as error:
            raise UntrustedProjectError(
                f"{show_path(folder)} cannot be read whole ({error.strerror}), so it cannot be trusted."
            ) from error
    return digest.hexdigest()


def is_trusted(settings: Settings, project_root: Path) -> bool:
    """Tell whether the user trusts the project as it is now.

    Raises:
        UntrustedProjectError: Its agents folders cannot be read whole.
        RecordCorruptError: The record of the trust is no record.
    """
    record = _read(settings, project_root)
    return record is not None and secrets.compare_digest(record.digest, agents_digest(project_root))


def trust(settings: Settings, project_root: Path, *, shown: str | None = None) -> TrustRecord:
    """Record that the user trusts the project; replaces an older record.

    Args:
        settings: Where the user's state lies.
        project_root: The project.
        shown: Its digest from before it was shown to the user; None trusts it as it is now.

    Raises:
        UntrustedProjectError: Its agents folders cannot be read whole, or changed since they were shown.
        UnsafePathError: The state directory is not the user's own.
    """
    root = os.fsencode(project_root.resolve()).decode("utf-8", "backslashreplace")
    digest = agents_digest(project_root)
    if shown is not None and not secrets.compare_digest(shown, digest):
        raise UntrustedProjectError(
            f"The agents of the project {show_path(project_root)} changed while they were looked at, so they are not "
            "trusted: look at them again.",
            field="agent",
        )
    record = TrustRecord(root=root, digest=digest)
    path = _record_path(settings, project_root)
    ensure_private_dir(state_root(settings))
    ensure_private_dir(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, PRIVATE_FILE)
            file.write(msgspec.json.encode(record))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return record


def require_trust(settings: Settings, definition: AgentDefinition) -> None:
    """Pass for an agent that may run; a builtin, a user's and a prompt-only agent always may.

    Raises:
        UntrustedProjectError: The project was never trusted, or changed since; the message says which, and the way out.
        RecordCorruptError: The record of the trust is no record.
    """
    if definition.source is not AgentSource.PROJECT or not definition.runs_code:
        return
    root = definition.project_root or definition.file.parent
    if is_trusted(settings, root):
        return
    shown = show_path(root)
    if _read(settings, root) is None:
        what = f"Agent {definition.name!r} of the project {shown} runs code, and the project is not trusted"
    else:
        what = f"The agents of the project {shown} changed since it was trusted"
    raise UntrustedProjectError(f"{what}: look at them, then run `pisub trust {shown}`.", field="agent")


def _place(real: Path, project_root: Path) -> bytes:
    """Name a folder's real place: relative inside the project, so that a moved project needs one record only."""
    root = project_root.resolve()
    return b"in\0" + os.fsencode(real.relative_to(root)) if real.is_relative_to(root) else b"at\0" + os.fsencode(real)


def _record_path(settings: Settings, project_root: Path) -> Path:
    key = hashlib.sha256(os.fsencode(project_root.resolve())).hexdigest()
    return state_root(settings) / "trust" / f"{key}.json"


def _read(settings: Settings, project_root: Path) -> TrustRecord | None:
    path = _record_path(settings, project_root)
    try:
        raw = read_small(path, _MAX_RECORD_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordCorruptError(f"{show_path(path)} cannot be read: {error.strerror}.") from error
    try:
        return msgspec.json.decode(raw, type=TrustRecord)
    except msgspec.DecodeError as error:
        raise RecordCorruptError(
            f"{show_path(path)} is no trust record: remove it and trust the project again."
        ) from error
