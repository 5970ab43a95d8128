"""A run's progress on standard error, held back while a dialog has the screen."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

from pisub.cli.console import Console
from pisub.cli.render import event_lines
from pisub.hosting.dialogs import DialogContext, Dialogs
from pisub.record.model import JournalEvent


class Progress:
    """Prints events as they come. While a dialog is open they wait, and are printed after it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._held: list[JournalEvent] = []
        self._dialogs = 0

    def show(self, event: JournalEvent) -> None:
        """Print an event, or keep it until the open dialog is closed."""
        if self._dialogs:
            self._held.append(event)
            return
        for line in event_lines(event):
            self._console.say(self._console.style(line, "dim"))

    @contextlib.asynccontextmanager
    async def holding(self) -> AsyncGenerator[None]:
        """Hold events back while the block runs."""
        self._dialogs += 1
        try:
            yield
        finally:
            self._dialogs -= 1
            if not self._dialogs:
                held, self._held = self._held, []
                for event in held:
                    self.show(event)


class DialogsOverProgress:
    """Dialogs that have the terminal to themselves while they are open."""

    def __init__(self, dialogs: Dialogs, progress: Progress) -> None:
        self._dialogs = dialogs
        self._progress = progress

    async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
        """Let the human choose."""
        async with self._progress.holding():
            return await self._dialogs.select(title, options, context)

    async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:
        """Let the human write."""
        async with self._progress.holding():
            return await self._dialogs.input(title, placeholder, context)
