"""Directories that pisub owns: where they are, and that they are safe to use.

Every one is 0700, the user's own, and no symlink; a directory that is not is refused untouched.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from pisub.config import Settings, session_runtime_dir
from pisub.errors import RefusedError, UnsafePathError

PRIVATE_DIR = 0o700
PRIVATE_FILE = 0o600
#: `sockaddr_un` holds 107 bytes and a NUL; the longest name that we put behind the directory is 48 bytes.
_MAX_SOCKET_DIR_BYTES = 107 - 49

#: Where an address of another machine is given, whatever way.
NO_TCP = (
    "tcp:// is refused: it comes with remote launchers, and then only with CURVE. Use a runtime directory (ipc://)."
)


def state_root(settings: Settings) -> Path:
    """Return the directory of the record: ``home``, else the platform's user state directory. Not created here."""
    if settings.home is not None:
        return settings.home.absolute()
    import platformdirs  # noqa: PLC0415  # only where no home is set

    return Path(platformdirs.user_state_dir("pisub", appauthor=False))


def runtime_dir(settings: Settings) -> Path:
    """Return the directory of sockets and locks. Not created here.

    A directory whose path is too long for a socket is replaced by one under the temp directory, named by the digest
    of the wanted path: every process that wants the same directory finds the same replacement.

    Raises:
        RefusedError: It is the address of another machine.
    """
    if settings.runtime_dir is not None:
        if str(settings.runtime_dir).startswith("tcp:/"):
            raise RefusedError(NO_TCP)
        wanted = settings.runtime_dir.absolute()
    elif base := session_runtime_dir():
        wanted = Path(base) / "pisub"
    else:
        wanted = Path(tempfile.gettempdir()) / f"pisub-{os.getuid()}"
    if len(os.fsencode(wanted)) <= _MAX_SOCKET_DIR_BYTES:
        return wanted
    digest = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:16]
    return Path("/tmp") / f"pisub-{os.getuid()}-{digest}"  # noqa: S108  # ensure_private_dir checks owner and mode


def ensure_private_dir(path: Path) -> Path:
    """Create a directory (and its parents) as 0700, or verify the one that is there.

    Raises:
        UnsafePathError: It is a symlink, no directory, another user's, or cannot be made.
    """
    try:
        path.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UnsafePathError(f"{path} cannot be used as a directory of pisub's: {error.strerror}.") from error
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise UnsafePathError(f"{path} belongs to user {found.st_uid}, not to you: choose another directory.")
        if stat.S_IMODE(found.st_mode) != PRIVATE_DIR:
            os.fchmod(descriptor, PRIVATE_DIR)
    finally:
        os.close(descriptor)
    return path
