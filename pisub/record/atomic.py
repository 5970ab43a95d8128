"""Files that are whole or absent, private, and never reached through a symlink.

Owns every write of the record but the journal's. Knows nothing of what the files mean. A file is written under a
temporary name that says who writes it, then linked (create-once) or renamed (replace) into its place.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import msgspec

from pisub.errors import RecordCorruptError, RecordError
from pisub.paths import PRIVATE_FILE
from pisub.process import Liveness, ProcessIdentity, boot_id, liveness, machine_id, own_identity
from pisub.protocol.limits import MIB
from pisub.record import disk
from pisub.record.dirs import check_file_stat, open_dir, refusal
from pisub.utf8 import without_surrogates

T = TypeVar("T", bound=msgspec.Struct)

#: Largest record that is read: a spec's 4 MiB task takes six bytes per character where JSON escapes all of it.
MAX_RECORD_BYTES = 32 * MIB
#: Narrowed code of a ``RecordCorruptError``: what is there is the beginning of a record, as a power cut leaves it.
TORN = "record_torn"

#: O_NONBLOCK: a FIFO in the place of a file must not block the reader; it is refused after opening.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_MAX_NAME_BYTES = 255
_TEMP = re.compile(r"\..+\.(\d+)-(\d+)-(\d+)-([0-9a-f]{8})-([0-9a-f]{8})\.[0-9a-f]+\.tmp", re.ASCII | re.DOTALL)


# Writing. --------------------------------------------------------------------------------------------------------


def write_new(path: Path, data: bytes, *, fsync: bool) -> bool:
    """Create a file with its whole content, if nobody has. One winner among any number of processes.

    An empty file is whole as soon as it exists, so it is made in its place: there is nothing to leave over.

    Args:
        path: Its place; the directory exists.
        data: The whole content.
        fsync: Flush the file before and the directory after it gets its name.

    Returns:
        False when somebody was first; their file is untouched.

    Raises:
        UnsafePathError: The directory is unsafe.
        RecordError: The file system has no hard links.
        OSError: The disk is full, or the like; nothing is left behind.
    """
    if not data:
        return _create_empty(path, fsync=fsync)
    with open_dir(path.parent) as directory, _temporary(directory, path.name, data, fsync=fsync) as temp:
        try:
            disk.link(temp, path.name, directory=directory)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise RecordError(
                    f"The file system of {path.parent} has no hard links ({error.strerror}): "
                    "set PISUB_HOME to a directory on a local file system."
                ) from error
            raise
        if fsync:
            disk.sync(directory, name=path.parent.name)
        return True


def replace(path: Path, data: bytes, *, fsync: bool) -> None:
    """Write a file whole, over the one that is there. For files with one writer.

    Raises:
        UnsafePathError: The directory is unsafe, or what is there is no file of ours. Nothing was touched.
        OSError: The disk is full, or the like; the old content stays and nothing is left behind.
    """
    with open_dir(path.parent) as directory:
        with contextlib.suppress(FileNotFoundError):
            check_file_stat(path, os.stat(path.name, dir_fd=directory, follow_symlinks=False))
        with _temporary(directory, path.name, data, fsync=fsync) as temp:
            disk.rename(temp, path.name, directory=directory)
            if fsync:
                disk.sync(directory, name=path.parent.name)


def remove(path: Path) -> bool:
    """Remove a name from a verified directory; a symlink's target is untouched. False when it was not there."""
    try:
        with open_dir(path.parent) as directory:
            disk.unlink(path.name, directory=directory)
    except FileNotFoundError:
        return False
    return True


def move(source: Path, name: str) -> bool:
    """Give a file another name in its directory, over what has that name. False when it was not there."""
    try:
        with open_dir(source.parent) as directory:
            disk.rename(source.name, name, directory=directory)
    except FileNotFoundError:
        return False
    return True


def sweep_temp(directory: Path) -> int:
    """Remove temporary files whose writers are dead; a living or unknown writer's stay. Returns how many."""
    removed = 0
    try:
        with open_dir(directory) as descriptor:
            for name in os.listdir(descriptor):  # noqa: PTH208  # by the descriptor that was checked
                match = _TEMP.fullmatch(name)
                if match is not None and liveness(_writer(*match.groups())) is Liveness.DEAD:
                    with contextlib.suppress(FileNotFoundError):
                        disk.unlink(name, directory=descriptor)
                        removed += 1
    except FileNotFoundError:
        return 0
    return removed


# Reading. --------------------------------------------------------------------------------------------------------


def exists(path: Path) -> bool:
    """Tell whether something has this name, a symlink included.

    Raises:
        OSError: It cannot be told, as in a directory that may not be looked into: that is not "no".
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def read_bytes(path: Path) -> bytes | None:
    """Read a whole file; None when it, or its directory, does not exist.

    Raises:
        UnsafePathError: A symlink, no regular file, or another user's.
        RecordCorruptError: Larger than any record can be.
    """
    try:
        with open_dir(path.parent) as directory:
            descriptor = os.open(path.name, _READ, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refusal(path, error) from error
    try:
        found = os.fstat(descriptor)
        check_file_stat(path, found)  # before it becomes a file object: a directory cannot
        if found.st_size > MAX_RECORD_BYTES:
            raise RecordCorruptError(f"{path} has {found.st_size} bytes; no record of pisub's is that large.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_RECORD_BYTES + 1)
    finally:
        os.close(descriptor)


def encode_record(record: msgspec.Struct) -> bytes:
    """Encode a record as indented JSON with a final newline. Half characters become question marks."""
    try:
        data = msgspec.json.encode(record)
    except UnicodeEncodeError:
        # Better a question mark than a run whose end cannot be written down.
        data = msgspec.json.encode(without_surrogates(msgspec.to_builtins(record)))
    return msgspec.json.format(data, indent=2) + b"\n"


def decode_record(data: bytes, kind: type[T], path: Path) -> T:
    """Decode a record.

    Raises:
        RecordCorruptError: It does not parse; the message names ``path``. ``code`` is ``TORN`` where the data is
            empty or breaks off, as a power cut leaves a file that was not flushed.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        # No proper beginning of what encode_record wrote ends like the whole: strings hold no raw newline, and every
        # inner brace is indented.
        is_torn = not data.endswith(b"\n}\n")
        raise RecordCorruptError(
            f"{path} {'breaks off' if is_torn else 'does not parse'} ({error}). Move it away, or restore it.",
            code=TORN if is_torn else None,
        ) from error


def read_record(path: Path, kind: type[T]) -> T | None:
    """Read a record; None when it does not exist.

    Raises:
        RecordCorruptError: It is there but does not parse (see ``decode_record``).
        UnsafePathError: A symlink, no regular file, or another user's.
    """
    data = read_bytes(path)
    return None if data is None else decode_record(data, kind, path)


def read_survivor(path: Path, kind: type[T]) -> tuple[T | None, str | None]:
    """Read a record that a power cut may have torn: torn reads as missing, and the second value says so.

    Raises:
        RecordCorruptError: It is whole and does not parse.
        UnsafePathError: A symlink, no regular file, or another user's.
    """
    try:
        return read_record(path, kind), None
    except RecordCorruptError as error:
        if error.code != TORN:
            raise
        return None, error.message


# Parts. ----------------------------------------------------------------------------------------------------------


def _create_empty(path: Path, *, fsync: bool) -> bool:
    with open_dir(path.parent) as directory:
        try:
            descriptor = disk.create(path.name, _CREATE, PRIVATE_FILE, directory=directory)
        except FileExistsError:
            return False
        try:
            os.fchmod(descriptor, PRIVATE_FILE)
        finally:
            os.close(descriptor)
        if fsync:
            disk.sync(directory, name=path.parent.name)
    return True


@contextlib.contextmanager
def _temporary(directory: int, name: str, data: bytes, *, fsync: bool) -> Generator[str]:
    """Write ``data`` under a temporary name, which is gone again on exit, whatever happens."""
    temp = _temp_name(name)
    descriptor = disk.create(temp, _CREATE, PRIVATE_FILE, directory=directory, final=name)
    try:
        try:
            os.fchmod(descriptor, PRIVATE_FILE)  # an umask such as 0777 takes bits that we need
            write_all(descriptor, data, name=name)
            if fsync:
                disk.sync(descriptor, name=name)
        finally:
            os.close(descriptor)
        yield temp
    finally:
        # One that cannot be removed now is swept by its name later; what was written, or was refused, stands.
        with contextlib.suppress(OSError):
            disk.unlink(temp, directory=directory, final=name)


def write_all(descriptor: int, data: bytes, *, name: str) -> None:
    """Write every byte of the file ``name``, however many calls it takes.

    Raises:
        OSError: The disk is full, or the like; a part may have been written.
    """
    view = memoryview(data)
    while view:
        view = view[disk.write(descriptor, view, name=name) :]


def _temp_name(name: str) -> str:
    tail = f".{_own_tag(os.getpid())}.{secrets.token_hex(6)}.tmp"
    if len(os.fsencode(name)) + len(tail) + 1 > _MAX_NAME_BYTES:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return f".{name}{tail}"


@functools.lru_cache(maxsize=1)
def _own_tag(pid: int) -> str:
    # Keyed by pid, so that a fork does not sign with its parent's name.
    own = own_identity()
    return f"{pid}-{own.start_ticks}-{own.pid_namespace}-{_digest(own.boot_id)}-{_digest(own.machine_id)}"


def _writer(pid: str, ticks: str, namespace: str, boot: str, machine: str) -> ProcessIdentity:
    return ProcessIdentity(
        pid=int(pid),
        start_ticks=int(ticks),
        pid_namespace=int(namespace),
        boot_id=boot_id() if boot == _digest(boot_id()) else boot,
        machine_id=machine_id() if machine == _digest(machine_id()) else machine,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
