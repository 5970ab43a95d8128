"""A session as the supervisor of its children: what waits, the reply, and a handler that is told of what comes.

The files decide, and are looked at twice a second (contract: at most every 500 ms). Nothing is lost with this process:
an open request waits in the record for the session's next host, or for the command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Final

from pisub import arguments
from pisub.clock import Clock, SystemClock
from pisub.errors import InvalidArgumentError, PisubError
from pisub.hosting.desk import Report
from pisub.record.layout import Layout
from pisub.record.supervisor import end_request, list_requests, reply_to_request
from pisub.runs.supervision import EndKind, SupervisorRequest, choose

#: How often the files are looked at for what is new.
POLL_S: Final = 0.5
#: Called for each request, and for each progress update.
SupervisorHandler = Callable[[SupervisorRequest], Awaitable[None] | None]


class Supervisor:
    """The supervisor's side of one session. ``close`` it where a handler was set.

    Args:
        layout: The record.
        session_id: The session; requests to another are never seen.
        report: Told of a handler that failed; None is the loop's exception handler.
        clock: Time.
    """

    def __init__(
        self, layout: Layout, session_id: str, *, report: Report | None = None, clock: Clock | None = None
    ) -> None:
        self._layout = layout
        self._session_id = session_id
        self._report = report or _report_to_loop
        self._clock = clock or SystemClock()
        self._told: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def pending(self) -> list[SupervisorRequest]:
        """Return what waits for a reply, oldest first; progress updates are not among it."""
        return [each for each in await self._open() if each.expects_reply]

    async def reply(self, message: str, *, reply_to: str | None = None, to: str | None = None) -> SupervisorRequest:
        """Reply to a request, and return it.

        Args:
            message: The reply; to an interview best a JSON value.
            reply_to: The request's id.
            to: Instead: the beginning of its id or its run's, or its agent's name, where that is one alone. Without
                both it is the only one that waits.

        Raises:
            InvalidArgumentError: The message is blank, or not exactly one request is meant.
            QuestionClosedError: It has its end already.
        """
        if not arguments.text(message, "message").strip():
            raise InvalidArgumentError("A reply needs a text.", field="message")
        request = choose(await self.pending(), reply_to=reply_to, to=to)
        await asyncio.to_thread(reply_to_request, self._layout, request, message, now_ms=self._clock.wall_ms())
        return request

    def on_request(self, handler: SupervisorHandler) -> None:
        """Have ``handler`` called once for each request, and for each progress update until one call does not fail."""
        if self._task is not None:
            raise InvalidArgumentError("There is a handler already.", field="handler")
        self._task = asyncio.get_running_loop().create_task(self._follow(handler), name="pisub-supervisor")

    async def close(self) -> None:
        """Stop telling. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _open(self) -> list[SupervisorRequest]:
        return await asyncio.to_thread(list_requests, self._layout, self._session_id, now_ms=self._clock.wall_ms())

    async def _follow(self, handler: SupervisorHandler) -> None:
        while True:
            with contextlib.suppress(
                OSError, PisubError
            ):  # a full disk, a directory that is away: in half a second again
                for request in await self._open():
                    await self._tell(handler, request)
            await asyncio.sleep(POLL_S)

    async def _tell(self, handler: SupervisorHandler, request: SupervisorRequest) -> None:
        if request.id in self._told:
            return
        if request.expects_reply:
            self._told.add(request.id)  # it is in ``pending`` whatever the handler does
        try:
            returned = handler(request)
            if inspect.isawaitable(returned):
                await returned
        except Exception as error:  # noqa: BLE001  # the program's own code may raise anything
            self._report(f"The supervisor's handler failed for request {request.id}.", error)
            return
        if not request.expects_reply:
            await asyncio.to_thread(end_request, self._layout, request, EndKind.SHOWN, "", now_ms=self._clock.wall_ms())


def _report_to_loop(what: str, error: BaseException | None) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": f"pisub supervisor: {what}", "exception": error})
