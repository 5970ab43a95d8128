"""The human of a demo without a terminal: takes the first choice, says one sentence, and lets everybody see it."""

from __future__ import annotations

from collections.abc import Sequence

from pisub.cli.console import Console, safe_line
from pisub.host.dialogs import DialogContext

_PURPOSE = "To show a new contributor around."


class DemoHuman:
    """Dialogs that answer themselves. They fit any question: what there is to choose follows from the directory."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
        """Choose the first option."""
        return self._answer(title, options[0], context)

    async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:  # noqa: ARG002  # the protocol's shape
        """Say what the report is for."""
        return self._answer(title, _PURPOSE, context)

    def _answer(self, title: str, answer: str, context: DialogContext) -> str:
        self._console.say(
            f"question {context.number} of {context.count} from {safe_line(context.agent)}: {safe_line(title)}"
        )
        self._console.say(f"answer: {safe_line(answer)}")
        return answer
