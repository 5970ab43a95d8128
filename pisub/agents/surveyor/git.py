"""What git says of the directory: its files and its history.

Read-only, offline and bounded; no program that the repository's configuration names is started.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from pisub.agents.surveyor.model import Commit, GitFacts
from pisub.config import caller_environment

TIMEOUT_S = 30.0
#: 20,000 files with the longest paths seen, twice.
MAX_OUTPUT_BYTES = 32 * 1024 * 1024
LAST_COMMITS = 10
WINDOW = 500
MOST_CHANGED = 15
#: A repository's configuration can name programs that git starts: a file-system monitor, a signature checker, hooks,
#: a transport for missing objects. None of them belongs to a survey.
_SAFE = (
    "--no-pager", "--no-optional-locks", "--literal-pathspecs", "-c", "core.fsmonitor=false", "-c",
    "core.hooksPath=/dev/null", "-c", "log.showSignature=false", "-c", "protocol.allow=never",
)  # fmt: skip


async def run_git(directory: Path, *arguments: str) -> bytes | None:
    """Run one git command and return what it printed; None where git or a repository is missing, or it fails.

    At most ``TIMEOUT_S`` and ``MAX_OUTPUT_BYTES``. Cancelling ends git.
    """
    with tempfile.TemporaryFile() as output:
        try:
            process = _start(directory, arguments, output.fileno())
        except OSError:
            return None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                waiting = asyncio.ensure_future(asyncio.to_thread(process.wait))
                code = await asyncio.shield(waiting)
        except TimeoutError:
            return None
        finally:
            process.kill()
            process.wait()
        if code != 0 or os.fstat(output.fileno()).st_size > MAX_OUTPUT_BYTES:
            return None
        output.seek(0)
        return output.read()


async def list_files(directory: Path) -> bytes | None:
    """Return `git ls-files -z` of tracked files and of new ones that are not ignored; None where that cannot be had."""
    return await run_git(directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard")


async def read_history(directory: Path) -> GitFacts | None:
    """Return the history of the directory; None where there is none."""
    log = await run_git(directory, "log", "-n", str(LAST_COMMITS), "-z", "--format=%h%n%as%n%an%n%s", "--", ".")
    if not log:
        return None
    names = await run_git(
        directory, "log", "-n", str(WINDOW), "-z", "--format=", "--name-only", "--no-renames", "--relative", "--", "."
    )
    return parse_history(log, names or b"")


def parse_history(log: bytes, names: bytes) -> GitFacts | None:
    """Read the two outputs that ``read_history`` asks for."""
    commits: list[Commit] = []
    for entry in log.split(b"\0"):
        fields = entry.decode("utf-8", "replace").split("\n")
        if len(fields) >= 4:
            commits.append(Commit(fields[0], fields[1], fields[2], fields[3]))
    if not commits:
        return None
    counts = Counter(os.fsdecode(name.strip(b"\n")) for name in names.split(b"\0") if name.strip(b"\n"))
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], os.fsencode(pair[0])))
    return GitFacts(tuple(commits), tuple(pair for pair in ranked[:MOST_CHANGED] if pair[1] > 1), WINDOW)


def _start(directory: Path, arguments: tuple[str, ...], output: int) -> subprocess.Popen[bytes]:
    environ = {name: value for name, value in caller_environment().items() if not name.startswith("GIT_")}
    environ |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
    return subprocess.Popen(
        ["git", *_SAFE, "-C", str(directory), *arguments],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.DEVNULL,
    )
