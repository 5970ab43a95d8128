"""The library for programs without asyncio: the same calls, which return when they are done.

One thread per ``connect`` or ``host`` runs the event loop on which everything happens; each call here hands its work
over and waits. It adds nothing of its own: what a call does, and raises, is said where its asynchronous form is.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, ParamSpec, Self, TypeVar

import pisub
from pisub.client import api
from pisub.client.answering import Questions as AsyncQuestions
from pisub.client.hosting import Host as AsyncHost
from pisub.client.runs import Run as AsyncRun
from pisub.config import Settings
from pisub.errors import ClientClosedError
from pisub.hosting.dialogs import Dialogs
from pisub.hosting.supervisor import Supervisor as AsyncSupervisor
from pisub.record.model import JournalEvent
from pisub.runs.supervision import SupervisorRequest

P = ParamSpec("P")
T = TypeVar("T")

#: What was begun gets this long to clean up after Ctrl-C before the interrupt goes on without it.
_CLEAN_UP_S: Final = 5.0


class _Loop:
    """An event loop in a thread of its own, from ``__enter__`` to ``__exit__``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pisub-blocking", daemon=True)
        self._is_closed = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left, timeout=_CLEAN_UP_S))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def require_open(self) -> None:
        """Pass where a call can be waited for.

        Raises:
            ClientClosedError: It was closed, or this is its own thread.
        """
        if self._is_closed:
            raise ClientClosedError("The connection is closed: use it inside its `with` block.")
        if threading.current_thread() is self._thread:
            raise ClientClosedError("A handler or dialog runs on the connection's own thread: no call can wait there.")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work on the loop and return its result. Ctrl-C cancels it, and is raised when it has cleaned up."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            _cancel(future)
            raise

    def blocking(self, call: Callable[P, Awaitable[T]]) -> Callable[P, T]:
        """Return the blocking form of an asynchronous call."""

        def blocking_call(*args: P.args, **kwargs: P.kwargs) -> T:
            self.require_open()
            return self.run(_await(call(*args, **kwargs)))

        return blocking_call

    def starting(self, call: Callable[P, Awaitable[AsyncRun]]) -> Callable[P, Run]:
        """Return the blocking form of a call that returns a run."""

        def blocking_call(*args: P.args, **kwargs: P.kwargs) -> Run:
            self.require_open()
            return Run(self.run(_await(call(*args, **kwargs))), self)

        return blocking_call

    def starting_all(self, call: Callable[P, Awaitable[list[AsyncRun]]]) -> Callable[P, list[Run]]:
        """Return a blocking form of a call that starts runs."""

        def blocking_call(*args: P.args, **kwargs: P.kwargs) -> list[Run]:
            self.require_open()
            return [Run(run, self) for run in self.run(_await(call(*args, **kwargs)))]

        return blocking_call

    @contextlib.contextmanager
    def inside(self, manager: AbstractAsyncContextManager[T]) -> Generator[T]:
        """Be inside an asynchronous context manager. It is left on every way out."""
        entered = self.run(manager.__aenter__())
        try:
            yield entered
        except BaseException as error:
            self.run(_await(manager.__aexit__(type(error), error, error.__traceback__)))
            raise
        else:
            self.run(_await(manager.__aexit__(None, None, None)))


async def _await(work: Awaitable[T]) -> T:
    return await work


def _cancel(future: Future[Any]) -> None:
    future.cancel()
    with contextlib.suppress(CancelledError, TimeoutError):
        future.exception(_CLEAN_UP_S)


class Run:
    """A run. Its calls are those of ``pisub.Run``.

    Attributes:
        id: The run's id.
        view, children, result, text, stop, interrupt, steer: As there, but they block.
        resume: As there; returns the new run.
    """

    def __init__(self, run: AsyncRun, loop: _Loop) -> None:
        self.id = run.id
        self._run = run
        self._loop = loop
        self.view = loop.blocking(run.view)
        self.children = loop.blocking(run.children)
        self.result = loop.blocking(run.result)
        self.text = loop.blocking(run.text)
        self.stop = loop.blocking(run.stop)
        self.interrupt = loop.blocking(run.interrupt)
        self.steer = loop.blocking(run.steer)
        self.resume = loop.starting(run.resume)

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    def events(self) -> Iterator[JournalEvent]:
        """Yield the run's events from its first, each once and in order, until it has ended."""
        self._loop.require_open()
        events = aiter(self._run.events())
        try:
            while (event := self._loop.run(_await(anext(events, None)))) is not None:
                yield event
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                self._loop.run(close())


class Questions:
    """What children want to know from the human: the calls of ``pisub.client.answering.Questions``, but they block.

    Attributes:
        list, answer, decline: As there.
    """

    def __init__(self, questions: AsyncQuestions, loop: _Loop) -> None:
        self.list = loop.blocking(questions.list)
        self.answer = loop.blocking(questions.answer)
        self.decline = loop.blocking(questions.decline)


class Client:
    """A connection in the name of one session. Made by ``connect``.

    Attributes:
        session_id: The session that this client's runs belong to.
        spawn: As ``pisub.Client.spawn``; returns a ``Run`` of this module.
        spawn_all: As there; returns a list of them.
        runs, wait: As there, but they block.
        questions: What children want to know from the human.
    """

    def __init__(self, client: api.Client, loop: _Loop) -> None:
        self.session_id = client.session_id
        self._client = client
        self._loop = loop
        self.spawn = loop.starting(client.spawn)
        self.spawn_all = loop.starting_all(client.spawn_all)
        self.runs = loop.blocking(client.runs)
        self.wait = loop.blocking(client.wait)
        self.questions = Questions(client.questions, loop)

    def run(self, run_id: str) -> Run:
        """Return a run by its id, or by a prefix that fits one run of this session, else one of all.

        Raises:
            UnknownRunError: There is none.
            AmbiguousIdError: There are several.
        """
        return Run(self._client.run(run_id), self._loop)


class Supervisor:
    """What a session's children want to know from the session itself.

    Attributes:
        pending, reply: As ``pisub.hosting.supervisor.Supervisor``'s, but they block.
    """

    def __init__(self, supervisor: AsyncSupervisor, loop: _Loop) -> None:
        self._supervisor = supervisor
        self._loop = loop
        self.pending = loop.blocking(supervisor.pending)
        self.reply = loop.blocking(supervisor.reply)

    def on_request(self, handler: Callable[[SupervisorRequest], None]) -> None:
        """Have ``handler`` called for each request, on the connection's own thread: it must not use the host."""

        async def begin() -> None:
            self._supervisor.on_request(handler)

        self._loop.run(begin())


class Host(Client):
    """A session's host. Made by ``host``.

    Attributes:
        ask, wait_for_turn: As ``pisub.Host``'s, but they block.
        supervisor: What its children want to know from the session itself.
    """

    def __init__(self, host: AsyncHost, loop: _Loop) -> None:
        super().__init__(host.client, loop)
        self._host = host
        self.ask = loop.blocking(host.ask)
        self.wait_for_turn = loop.blocking(host.wait_for_turn)
        self.supervisor = Supervisor(host.supervisor, loop)

    @property
    def is_host(self) -> bool:
        """Whether it holds the role now."""
        return self._host.is_host


@contextlib.contextmanager
def connect(session: str | None = None, settings: Settings | None = None, **overrides: Any) -> Generator[Client]:
    """Connect to the broker, starting one where none runs. Arguments and errors are those of ``pisub.connect``.

    Use it in one thread. Leaving the block closes the connection and ends its thread; detached runs go on.
    """
    with _Loop() as loop, loop.inside(pisub.connect(session, settings, **overrides)) as client:
        yield Client(client, loop)


@contextlib.contextmanager
def host(session: str | None = None, dialogs: Dialogs | None = None, **options: Any) -> Generator[Host]:
    """Connect, and be the host of a session. Arguments and errors are those of ``pisub.host``.

    Dialogs and handlers are called on the connection's own thread, and must not use the host from there.
    """
    with _Loop() as loop, loop.inside(pisub.host(session, dialogs, **options)) as made:
        yield Host(made, loop)
