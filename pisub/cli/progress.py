"""A command's lines on standard error, held back while a dialog has the screen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final

from pisub.cli.console import Console
from pisub.cli.render import event_lines
from pisub.hosting.dialogs import DialogContext, Dialogs, show_waiting
from pisub.record.model import JournalEvent

#: A question comes as a message, what led to it through the journal. The dialog waits this long for the latter.
_CATCH_UP_S: Final = 2.0


class Progress:
    """Prints lines and events as they come. While a dialog is open they wait, and are printed after it.

    Attributes:
        run_id: Whose events are shown; None until it is known.
    """

    def __init__(self, console: Console) -> None:
        self.run_id: str | None = None
        self._console = console
        self._held: list[str] = []
        self._dialogs = 0
        self._asks: dict[str, asyncio.Event] = {}

    def show(self, event: JournalEvent) -> None:
        """Print an event, or keep it until the open dialog is closed."""
        for line in event_lines(event):
            self.say(self._console.style(line, "dim"))
        if event.type == "subagent.ask.opened":
            self._ask(str(event.data.get("askId"))).set()

    def say(self, line: str) -> None:
        """Print a line, or keep it until the open dialog is closed."""
        if self._dialogs:
            self._held.append(line)
        else:
            self._console.say(line)

    async def caught_up(self, context: DialogContext) -> None:
        """Wait, not for long, until what the run did before it asked has been shown."""
        if self.run_id not in {None, context.run_id}:
            return  # another run of the session: nobody shows its events here
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP_S):
                await self._ask(context.ask_id).wait()

    @contextlib.asynccontextmanager
    async def holding(self) -> AsyncGenerator[None]:
        """Hold everything back while the block runs."""
        self._dialogs += 1
        try:
            yield
        finally:
            self._dialogs -= 1
            if not self._dialogs:
                held, self._held = self._held, []
                for line in held:
                    self._console.say(line)

    def _ask(self, ask_id: str) -> asyncio.Event:
        return self._asks.setdefault(ask_id, asyncio.Event())


class DialogsOverProgress:
    """Dialogs that have the terminal to themselves while they are open.

    Args:
        dialogs: Those that ask.
        progress: What is held back meanwhile.
        before: Awaited before the first question of an ask is shown.
    """

    def __init__(
        self, dialogs: Dialogs, progress: Progress, before: Callable[[DialogContext], Awaitable[None]]
    ) -> None:
        self._dialogs = dialogs
        self._progress = progress
        self._before = before

    async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
        """Let the human choose."""
        async with self._alone(context):
            return await self._dialogs.select(title, options, context)

    async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:
        """Let the human write."""
        async with self._alone(context):
            return await self._dialogs.input(title, placeholder, context)

    def show_waiting(self, waiting: int) -> None:
        """Pass on how many wait."""
        show_waiting(self._dialogs, waiting)

    @contextlib.asynccontextmanager
    async def _alone(self, context: DialogContext) -> AsyncGenerator[None]:
        if context.number == 1:
            await self._before(context)
        async with self._progress.holding():
            yield
