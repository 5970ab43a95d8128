"""Which files a directory has, and their bytes: bounded, never through a symlink, never blocked by a FIFO.

This module owns all reading of the surveyed tree. Whatever vanishes or is refused meanwhile becomes a note. The walk
and the reading are generators of small steps, so that the agent's loop stays responsive between them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path

from pisub.agents.surveyor.analyse import analyse_file
from pisub.agents.surveyor.ignore import Rule, is_ignored, parse_ignore
from pisub.agents.surveyor.languages import SKIPPED_DIRECTORIES, is_generated, language_of
from pisub.agents.surveyor.model import Listing, SurveyedFile
from pisub.small_files import file_of

#: Files in one survey. At about 0.3 ms each a survey of the largest tree takes some seconds.
MAX_FILES = 20_000
#: A longer file is counted but not read: no hand-written source is longer.
MAX_FILE_BYTES = 1024 * 1024
#: Bytes read in one survey.
MAX_TOTAL_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 64
MAX_PROBLEMS = 200
_BINARY_PROBE_BYTES = 8_192
_MAX_IGNORE_BYTES = 64 * 1024


def walk(root: Path, *, max_files: int = MAX_FILES) -> Generator[int, None, Listing]:
    """List a tree without git. Yields the number of files so far after each directory; returns the listing."""
    paths: list[str] = []
    problems: list[tuple[str, str]] = []
    skipped: Counter[str] = Counter()
    is_capped = False
    pending: list[tuple[str, tuple[Rule, ...], int]] = [("", (), 0)]
    while pending and not is_capped:
        base, rules, depth = pending.pop()
        try:
            with os.scandir(root / base) as listing:
                entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
        except OSError as error:
            problems.append((base, _reason(error)))
            continue
        if any(entry.name == ".gitignore" for entry in entries):
            rules += parse_ignore(_read_ignore(root / base / ".gitignore"), base)
        deeper: list[tuple[str, tuple[Rule, ...], int]] = []
        for entry in entries:
            path = base + entry.name
            try:
                is_directory = entry.is_dir(follow_symlinks=False)
                is_file = entry.is_file(follow_symlinks=False)
            except OSError as error:
                problems.append((path, _reason(error)))
                continue
            if is_directory and entry.name in SKIPPED_DIRECTORIES:
                skipped[entry.name] += 1
            elif is_ignored(path, rules, is_directory=is_directory):
                continue
            elif is_directory and depth >= MAX_DEPTH:
                problems.append((path, f"deeper than {MAX_DEPTH} directories"))
            elif is_directory:
                deeper.append((path + "/", rules, depth + 1))
            elif is_file:
                if len(paths) >= max_files:
                    is_capped = True
                    break
                paths.append(path)
        pending.extend(reversed(deeper))
        yield len(paths)
    return Listing(
        how="a walk of the directory",
        paths=tuple(sorted(paths, key=os.fsencode)),
        skipped=tuple(sorted(skipped.items())),
        problems=tuple(problems[:MAX_PROBLEMS]),
        is_capped=is_capped,
    )


def listing_from_git(output: bytes, *, max_files: int = MAX_FILES) -> Listing:
    """Make a listing of what `git ls-files -z` printed; only the surveyor's own skipped directories are left out."""
    names = sorted(set(output.split(b"\0")) - {b""})
    skipped: Counter[str] = Counter()
    kept: list[str] = []
    for name in names:
        path = os.fsdecode(name)
        unwanted = next((part for part in path.split("/")[:-1] if part in SKIPPED_DIRECTORIES), None)
        if unwanted is None:
            kept.append(path)
        else:
            skipped[unwanted] += 1
    return Listing(
        how="git",
        paths=tuple(kept[:max_files]),
        skipped=tuple(sorted(skipped.items())),
        is_capped=len(kept) > max_files,
    )


def read_files(
    root: Path, paths: Iterable[str], *, max_total_bytes: int = MAX_TOTAL_BYTES
) -> Generator[SurveyedFile | str, None, None]:
    """Read and analyse files one by one: a path that is gone is yielded as text, what is no file is left out."""
    left = max_total_bytes
    for path in paths:
        found = _read_file(root, path, min(left, MAX_FILE_BYTES))
        if found is None:
            continue
        if isinstance(found, str | SurveyedFile):
            yield found
            continue
        data, status = found
        left -= len(data)
        yield _make_file(path, data, status)


def _read_file(root: Path, path: str, limit: int) -> tuple[bytes, os.stat_result] | SurveyedFile | str | None:
    try:
        # O_NONBLOCK: opening a FIFO that took the file's place must not wait for a writer.
        descriptor = os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return path
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # a symlink, a socket
            return None
        return SurveyedFile(path, _size(root / path), language_of(path), why_unread=_reason(error))
    try:
        with file_of(descriptor) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return None
            if status.st_size > limit:
                why = "too big to read" if status.st_size > MAX_FILE_BYTES else "beyond the survey's limit of bytes"
                return SurveyedFile(
                    path, status.st_size, language_of(path), why_unread=why, is_generated=is_generated(path)
                )
            return file.read(limit) or b"", status
    except OSError as error:
        return SurveyedFile(path, _size(root / path), language_of(path), why_unread=_reason(error))


def _make_file(path: str, data: bytes, status: os.stat_result) -> SurveyedFile:
    is_executable = bool(status.st_mode & stat.S_IXUSR)
    if b"\0" in data[:_BINARY_PROBE_BYTES]:
        return SurveyedFile(path, status.st_size, language_of(path), why_unread="binary", is_executable=is_executable)
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    language = language_of(path, text.partition("\n")[0][:200])
    generated = is_generated(path)
    return SurveyedFile(
        path,
        status.st_size,
        language,
        lines=text.count("\n") + (not text.endswith("\n") and text != ""),
        is_generated=generated,
        is_executable=is_executable,
        facts=analyse_file(path, text, language, is_generated=generated, is_executable=is_executable),
    )


def _read_ignore(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with file_of(descriptor) as file:
            is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return (file.read(_MAX_IGNORE_BYTES) or b"").decode("utf-8", "surrogateescape") if is_regular else ""
    except OSError:
        return ""


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _reason(error: OSError) -> str:
    return (error.strerror or "cannot be read").lower()
