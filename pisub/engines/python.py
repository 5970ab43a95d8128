"""The ``python`` engine: a function of the user's, called with a ``Child``, in the process's main thread.

An ``async def`` gets an event loop of its own; a plain function is simply called. What it returns is the result, what
it raises is the failure. It is cancelled as asyncio cancels; what does not obey is the runner's to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from pisub.child import Child
from pisub.engines import capture
from pisub.engines.base import EngineContext, Settled, Shell
from pisub.engines.mailbox import Mailbox
from pisub.errors import PisubError, StructuredOutputError, ToolBudgetError, UsageBudgetError
from pisub.runs.budgets import ToolMeter
from pisub.runs.spec import RunnerSpec
from pisub.runs.steering import SteerMessage
from pisub.session_file import Session

#: What tasks that an agent left behind get to end after their cancellation.
LEFTOVER_S = 1.0
_MAX_FRAMES = 5
_MAX_ERROR_CHARS = 4_000


class TargetError(Exception):
    """The target cannot be had; the message is a sentence for the result."""


class PythonEngine:
    """One call of one function."""

    def __init__(self, runner: RunnerSpec, context: EngineContext, shell: Shell) -> None:
        self._runner = runner
        self._context = context
        self._shell = shell
        self._mailbox = Mailbox(shell)
        self._capture = capture.Capture(context.output_schema)
        self._tools = ToolMeter(context.tool_budget, context.usage_budget)
        self._child: Child | None = None
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._cancel_task: Callable[[], None] | None = None

    def cancel(self) -> None:
        """Cancel the agent's task. Thread-safe, idempotent; a plain function only sees ``child.is_stopping``."""
        with self._lock:
            self._is_cancelled = True
            if self._child is not None:
                self._child.note_stopping()
            if self._cancel_task is not None:
                self._cancel_task()

    def steer(self, message: SteerMessage) -> None:
        """Put a message where the agent finds it."""
        self._mailbox.offer(message)

    def close_steering(self) -> None:
        """Report what the agent did not take as failed."""
        self._mailbox.close()

    def run(self) -> Settled:
        """Import the target and call it. An exception of the agent is an outcome, and never leaves here."""
        settled = self._capture.settle(self._call())
        return msgspec.structs.replace(settled, tool_budget_state=self._tools.state())

    def _call(self) -> Settled:
        try:
            session = Session(Path(self._context.session_file) if self._context.session_file else None)
        except (PisubError, OSError) as error:
            return Settled(error=f"The session file cannot be used: {error}", reason="session-error")
        try:
            function = load_target(self._runner.target, self._runner.import_paths, self._context.sys_path)
        except TargetError as error:
            return Settled(error=str(error), reason="import-error")
        child = Child(
            self._context, self._shell, mailbox=self._mailbox, session=session, capture=self._capture, tools=self._tools
        )
        with self._lock:
            if self._is_cancelled:
                return Settled(was_cancelled=True)
            self._child = child
        try:
            returned = function(child)
            if inspect.iscoroutine(returned):
                returned = self._drive(returned)
            elif inspect.isawaitable(returned):
                returned = self._drive(_await(returned))
        except asyncio.CancelledError:
            return Settled(was_cancelled=True)
        except (StructuredOutputError, ToolBudgetError, UsageBudgetError) as error:
            reason = capture.FAILED if isinstance(error, StructuredOutputError) else error.code
            return Settled(error=error.message, reason=reason)
        except BaseException as error:  # noqa: BLE001  # the agent's code may raise anything
            return Settled(error=_describe(error), reason="agent-error", was_cancelled=False)
        finally:
            self._mailbox.end_agent()
        if returned is None or isinstance(returned, str):
            return Settled(text=returned or "")
        text = (
            f"The agent returned {type(returned).__name__}, not text: let {self._runner.target} return a str or None."
        )
        return Settled(error=text, reason="agent-error")

    def _drive(self, coroutine: Coroutine[Any, Any, object]) -> object:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            task = loop.create_task(coroutine)
            with self._lock:
                self._cancel_task = lambda: _cancel_from_outside(loop, task)
                if self._is_cancelled:
                    task.cancel()
            try:
                return loop.run_until_complete(task)
            finally:
                with self._lock:
                    self._cancel_task = None
                _end_leftovers(loop)
        finally:
            asyncio.set_event_loop(None)
            # Threads of the default executor are not waited for: one may sleep for an hour, and the result is here.
            loop.close()


async def _await(awaitable: Awaitable[object]) -> object:
    return await awaitable


def _cancel_from_outside(loop: asyncio.AbstractEventLoop, task: asyncio.Task[object]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop closed a moment ago: the task has ended
        loop.call_soon_threadsafe(task.cancel)


def _end_leftovers(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what the agent left running, and give it a moment; asyncio.run would wait for ever."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=LEFTOVER_S))
    loop.run_until_complete(_close_generators(loop))


async def _close_generators(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LEFTOVER_S):
            await loop.shutdown_asyncgens()


def load_target(
    target: str, import_paths: tuple[str, ...] = (), sys_path: tuple[str, ...] = ()
) -> Callable[[Child], object]:
    """Import the function that ``module:function`` or ``/absolute/file.py:function`` names.

    Args:
        target: What to import.
        import_paths: Put before everything else: the project of the agent's file.
        sys_path: The launching process's entries; appended, so that none of them can hide a module of ours.

    Raises:
        TargetError: It cannot be imported, or is nothing that can be called.
    """
    place, separator, name = target.rpartition(":")
    if not separator or not place or not name:
        raise TargetError(f"The target {target!r} is not of the form module:function or /path/file.py:function.")
    sys.path[:0] = [path for path in import_paths if path not in sys.path]
    sys.path.extend(path for path in sys_path if path not in sys.path)
    importlib.invalidate_caches()
    try:
        found: object = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except TargetError:
        raise
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        what = "it does not exist" if missing == place else f"it needs the module {missing!r}, which does not exist"
        where = ", ".join((*import_paths, *sys_path)) or "the installed packages"
        raise TargetError(f"The target {target} cannot be imported: {what} (looked in {where}).") from error
    except BaseException as error:  # the user's module runs here, and may raise anything
        raise TargetError(f"The target {target} cannot be imported: {_describe(error)}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise TargetError(f"The target {target} cannot be imported: {place} has no {name!r}.")
        found = getattr(found, part)
    if not callable(found):
        raise TargetError(f"The target {target} is a {type(found).__name__}, not a function.")
    return found


def _load_file(path: Path) -> ModuleType:
    if not path.is_absolute():
        raise TargetError(f"The target file {str(path)!r} is relative: give its absolute path.")
    if not path.is_file():
        raise TargetError(f"The target file {path} does not exist.")
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"pisub_agent_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"The target file {path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _describe(error: BaseException) -> str:
    """Return type and message, and the last frames of the agent's own code. For the record, never for a log."""
    head = traceback.format_exception_only(error)[-1].strip()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    machinery = ("<frozen importlib", str(Path(asyncio.__file__).parent))
    frames = [frame for frame in frames if not frame.filename.startswith(machinery)]
    tail = "".join(traceback.format_list(frames[-_MAX_FRAMES:])).rstrip()
    text = f"{head}\n{tail}" if tail else head
    return text if len(text) <= _MAX_ERROR_CHARS else text[: _MAX_ERROR_CHARS - 1] + "…"
