"""Scripted dialogs that let the people who watch see what was asked and said."""

from __future__ import annotations

from collections.abc import Sequence

from pisub.cli.console import Console, safe_line
from pisub.hosting.dialogs import DialogContext, Dialogs


class NarratedDialogs:
    """Prints each question and its answer to standard error."""

    def __init__(self, dialogs: Dialogs, console: Console) -> None:
        self._dialogs = dialogs
        self._console = console

    async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
        """Have the script choose."""
        self._asked(title, context)
        for number, option in enumerate(options, start=1):
            self._console.say(f"    {number}) {safe_line(option)}")
        return self._said(await self._dialogs.select(title, options, context))

    async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:
        """Have the script write."""
        self._asked(title, context)
        return self._said(await self._dialogs.input(title, placeholder, context))

    def _asked(self, title: str, context: DialogContext) -> None:
        who = safe_line(context.agent)
        self._console.say(f"  question {context.number} of {context.count} from {who}: {safe_line(title)}")

    def _said(self, answer: str | None) -> str | None:
        self._console.say("  no answer" if answer is None else f"  answer: {safe_line(answer)}")
        return answer
