"""Bodies too large for a frame: written once beside the broker's socket, named in the message, read by its receiver.

Owns the files and their names. It must not know the bus, nor what a body means.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from pathlib import Path
from typing import Final

import msgspec

from pisub.errors import ProtocolError
from pisub.paths import PRIVATE_FILE, ensure_private_dir
from pisub.process import Liveness, ProcessIdentity, liveness, own_identity
from pisub.protocol.base import Message
from pisub.protocol.limits import MIB

#: In the runtime directory, beside the socket.
BODIES_DIR: Final = "bodies"
#: The largest body that travels so. What is larger is a file of the user's, and its path is what is sent.
MAX_REFERENCED_BYTES: Final = 16 * MIB
#: How long a body waits for its receiver, where nobody says that it came. What a dead process left goes after it.
KEEP_BODY_S: Final = 600.0
#: The writer's pid, boot and start time are in the name, so that anybody can tell whether it lives.
_NAME: Final = re.compile(r"([1-9][0-9]{0,9})-([0-9]{1,20})-([0-9a-f]{8})-[0-9a-f]{16}\Z")


class BodyReference(Message, frozen=True, kw_only=True, tag="pisub:body"):
    """Stands for a body: the name of its file, its length, and its SHA-256 in hexadecimal."""

    name: str
    bytes: int
    sha256: str


def write_body(directory: Path, data: bytes) -> BodyReference:
    """Write a body, once, and return what stands for it.

    Raises:
        OSError: It cannot be written.
        UnsafePathError: The directory cannot be used.
    """
    ensure_private_dir(directory)
    process = own_identity()
    name = f"{process.pid}-{process.start_ticks}-{_boot(process)}-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(directory / name, flags, PRIVATE_FILE), "wb") as file:
            os.fchmod(file.fileno(), PRIVATE_FILE)
            file.write(data)
    except OSError:
        remove_body(directory, name)
        raise
    return BodyReference(name=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def read_body(directory: Path, reference: BodyReference) -> bytes:
    """Return the body that a reference stands for.

    Raises:
        ProtocolError: It is gone, is not what the reference says, or the reference names something else.
    """
    if not _NAME.match(reference.name) or not 0 <= reference.bytes <= MAX_REFERENCED_BYTES:
        raise ProtocolError("A reference to a body names no body.")
    try:
        descriptor = os.open(directory / reference.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            is_own = os.fstat(descriptor).st_uid == os.geteuid()
            data = file.read(reference.bytes + 1) if is_own else b""
    except OSError as error:
        raise ProtocolError(f"A body that travels as a file is not there any more: {error.strerror}.") from error
    if len(data) != reference.bytes or hashlib.sha256(data).hexdigest() != reference.sha256:
        raise ProtocolError("A body that travels as a file is not what the message says.")
    return data


def remove_body(directory: Path, name: str) -> None:
    """Remove a body. Idempotent."""
    with contextlib.suppress(OSError):
        (directory / name).unlink()


def sweep_bodies(directory: Path, *, keep_s: float = KEEP_BODY_S) -> None:
    """Remove what processes that are gone have left, once nobody can be about to read it."""
    try:
        names = [entry.name for entry in os.scandir(directory)]
    except OSError:
        return
    for name in names:
        found = _NAME.match(name)
        if found is not None and _is_left(directory / name, found, keep_s):
            remove_body(directory, name)


def _is_left(path: Path, found: re.Match[str], keep_s: float) -> bool:
    me = own_identity()
    writer = msgspec.structs.replace(me, pid=int(found[1]), start_ticks=int(found[2]))
    if found[3] == _boot(me) and liveness(writer) is not Liveness.DEAD:
        return False
    with contextlib.suppress(OSError):
        return time.time() - path.lstat().st_mtime >= keep_s
    return False


def _boot(process: ProcessIdentity) -> str:
    """Return what tells one boot and pid namespace from another, short."""
    return hashlib.sha256(f"{process.machine_id}{process.boot_id}{process.pid_namespace}".encode()).hexdigest()[:8]
