"""Asks of the programs that a run started: calls to the runner, which asks for them as it does for its agent.

Who may: a process that descends from this runner, by the pid that the broker checked, and only where the run's agent
may ask. What becomes of an ask is ``ask_service``'s to say; this module must not know the record.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from typing import Protocol

from msgspec import UnsetType

from pisub.asking import check_questions
from pisub.client.bus import Bus, Sender
from pisub.engines.base import AskTimes
from pisub.errors import InvalidArgumentError, RefusedError
from pisub.process import read_stat
from pisub.protocol.checkpoint import CHILD_PREFIX, AskResult, ChildAsk
from pisub.protocol.limits import MAX_DURATION_MS, MAX_OPEN_ASKS_PER_RUN
from pisub.protocol.session import Terminated
from pisub.runs.spec import RunSpec

from .intake import AskPosted
from .process_tree import is_ours


class Asks(Protocol):
    """What carries the asks out."""

    def post(self, posted: AskPosted) -> None:
        """Open one."""
        ...

    def withdraw(self, number: int, reason: str) -> None:
        """Take one back."""
        ...

    def give_up(self, number: int) -> None:
        """End one for its own time."""
        ...


class ChildAsks:
    """The asks that come from outside of the agent's own code. Used from the shell's loop.

    Args:
        spec: The run.
        asks: Carries them out.
        bus: Returns the connection, to notice an asker's end.
    """

    def __init__(self, spec: RunSpec, asks: Asks, bus: Callable[[], Bus | None]) -> None:
        self._spec = spec
        self._asks = asks
        self._bus = bus
        self._numbers = itertools.count(-1, -1)  # the agent's own count up
        self._open: dict[int, str] = {}
        self._is_ending = False

    def refuse_more(self) -> None:
        """The run is being ended: nobody is asked any more."""
        self._is_ending = True

    async def serve(self, message: ChildAsk, sender: Sender) -> AskResult:
        """Ask for a child and wait for the result. The asker's end takes the question back.

        Raises:
            RefusedError: It is no child of this run, its agent may not ask, or the run is being ended.
            InvalidArgumentError: A question breaks a bound.
        """
        if not _is_below_this_process(sender.address):
            raise RefusedError(f"{sender.address} is no process of run {self._spec.run_id}: it cannot ask for it.")
        if not self._spec.agent.can_ask:
            raise RefusedError(
                f"Agent {self._spec.agent.name!r} may not ask the human: its definition does not grant "
                "ext:checkpoint-bridge."
            )
        if self._is_ending:
            raise RefusedError("The run is being ended.")
        if len(self._open) >= MAX_OPEN_ASKS_PER_RUN:
            raise RefusedError(f"At most {MAX_OPEN_ASKS_PER_RUN} asks of a run can be open at once.")
        _check_time(message.wait_ms, "waitMs")
        _check_time(message.timeout_ms, "timeoutMs")
        _check_time(message.question_timeout_ms, "questionTimeoutMs")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[AskResult] = loop.create_future()

        def settle(result: AskResult, /) -> None:
            if not future.done():
                future.set_result(result)

        questions = check_questions(message.questions)
        number = next(self._numbers)
        self._open[number] = sender.address
        timer = None
        try:
            times = AskTimes(timeout_ms=message.timeout_ms, question_timeout_ms=message.question_timeout_ms)
            self._asks.post(AskPosted(number, questions, message.why, settle, times))
            if message.wait_ms is not None:
                timer = loop.call_later(message.wait_ms / 1000, self._asks.give_up, number)
            bus = self._bus()
            if bus is not None:
                await bus.watch(sender.address, self._note_gone)
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            del self._open[number]
            self._asks.withdraw(number, "The asker took it back.")

    def _note_gone(self, gone: Terminated) -> None:
        for number in [number for number, address in self._open.items() if address == gone.address]:
            self._asks.withdraw(number, "The asker is gone.")


def _check_time(value: int | UnsetType | None, field: str) -> None:
    if isinstance(value, int) and not 0 < value <= MAX_DURATION_MS:
        raise InvalidArgumentError(f"{field} must be above 0 and at most {MAX_DURATION_MS} ms.", field=field)


def _is_below_this_process(address: str) -> bool:
    """Tell whether an address is a descendant's, and no nearer run's: the broker has checked the pid in it."""
    digits = address.removeprefix(CHILD_PREFIX).partition("-")[0]
    if not address.startswith(CHILD_PREFIX) or not digits.isascii() or not digits.isdigit():
        return False
    own, pid = os.getpid(), int(digits)
    for _ in range(1_000):  # deeper than any tree of processes: the table changes while it is read
        if pid == own:
            return True
        try:
            stat = read_stat(pid) if pid > 1 else None
        except OSError:
            return False
        if stat is None or is_ours(stat):
            return False
        pid = stat.parent_pid
    return False
