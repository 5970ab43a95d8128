"""The messages of one child between two threads: the runner's shell puts in, the agent takes out.

Owns a lock and the waiting; the rules are ``pisub.runs.steering``'s. Nothing here blocks longer than a few statements.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading

from pisub.engines.base import Shell, Steered, SteeringKnown
from pisub.runs import steering
from pisub.runs.steering import SteerMessage


class Mailbox:
    """One child's messages. ``offer`` and ``close`` are for any thread, the rest for the agent's.

    Args:
        shell: Is told what becomes of each message, and that the agent reads messages once it does.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._queue = steering.SteerQueue()
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._is_known = False

    def offer(self, message: SteerMessage) -> None:
        """Put a message in, or report that it cannot be."""
        self._feed(steering.Offered(message))

    def begin_turn(self) -> None:
        """Say that the agent began a turn."""
        self._feed(steering.TurnBegan())

    def end_turn(self) -> None:
        """Say that the agent ended a turn."""
        self._feed(steering.TurnEnded())

    def end_agent(self) -> None:
        """Say that the agent's function is over."""
        self._feed(steering.AgentEnded())

    def close(self) -> None:
        """Report what was not taken as failed; nothing is delivered any more."""
        self._feed(steering.Closed())

    def take(self) -> list[SteerMessage]:
        """Return what is there, without waiting."""
        self._note_reader()
        return self._feed(steering.Polled())

    async def wait(self) -> SteerMessage:
        """Return the next message, and wait for it. One reader at a time gets each. Cancellation passes."""
        self._note_reader()
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        while True:
            with self._lock:
                self._waiting.append(waiter)
            try:
                found = self._feed(steering.Waited())
                if not found:
                    await waiter[1].wait()
            finally:
                with self._lock:
                    self._waiting.remove(waiter)
                self._feed(steering.WaitEnded())
            if found:
                return found[0]
            waiter[1].clear()

    def _note_reader(self) -> None:
        if not self._is_known:
            self._is_known = True
            self._shell.report(SteeringKnown(is_supported=True))

    def _feed(self, event: steering.AnySteerEvent) -> list[SteerMessage]:
        handed: list[SteerMessage] = []
        with self._lock:
            # Reported under the lock: what is said of a message keeps its order.
            for effect in self._queue.handle(event):
                match effect:
                    case steering.Acknowledge(request_id, state, text):
                        self._shell.report(Steered(request_id, state, text))
                    case steering.Hand(message):
                        handed.append(message)
                    case steering.Wake():
                        for loop, is_awake in self._waiting:
                            with contextlib.suppress(RuntimeError):  # the agent closed its loop: nobody waits there
                                loop.call_soon_threadsafe(is_awake.set)
        return handed
