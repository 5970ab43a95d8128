"""What a host shows a question with: the protocol that a program implements, and what it is told about the question.

Knows nothing of queues, buses or terminals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec


class DialogContext(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, why, and how much time is left when the dialog opens.

    Every text comes from a child and is untrusted: a face that draws it makes control characters visible first
    (``pisub.hosting.text``).

    Attributes:
        ask_id: The batch that the question belongs to.
        run_id: The run that asks.
        agent: Name of the agent that asks.
        label: The run's label, or ''.
        depth: How many delegations lie between the human and the asker; 0 is a run started by a person.
        why: Why the batch is asked, or ''.
        number: Which question of the batch this is, counted from 1.
        count: How many questions the batch has.
        waiting: How many other batches wait behind this one when the dialog opens; see ``ShowsWaiting``.
        remaining_s: Seconds until the dialog closes by itself; None is no limit.
        session_id: The session whose host shows the dialog.
        asked_at: Unix time in milliseconds at which the child asked; 0 where unknown.
    """

    ask_id: str
    run_id: str
    agent: str
    label: str = ""
    depth: int = 0
    why: str = ""
    number: int = 1
    count: int = 1
    waiting: int = 0
    remaining_s: float | None = None
    session_id: str = ""
    asked_at: int = 0


@runtime_checkable
class Dialogs(Protocol):
    """A face of the host. One method is called at a time, never two.

    Each returns the human's answer, or None when the human dismissed the question. A method is cancelled (in asyncio's
    sense, the reason in the cancellation's message) when its dialog must close: time is up, the asker is gone, somebody
    answered elsewhere. It then cleans up and lets the cancellation pass; the host waits a second for that. What a
    method raises ends its ask with status ``error``, and the queue goes on.
    """

    async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
        """Let the human choose; the value returned is one of ``options``."""
        ...

    async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:
        """Let the human write; ``placeholder`` is a hint and never an answer."""
        ...


@runtime_checkable
class ShowsWaiting(Protocol):
    """What a face may have besides: it is told how many wait while its dialog is open.

    A face without this shows the number that its ``DialogContext`` had. What it raises goes to the loop's exception
    handler, and costs no question.
    """

    def show_waiting(self, waiting: int) -> None:
        """Show that ``waiting`` batches wait behind the open dialog now. It must not block."""
        ...


def show_waiting(dialogs: Dialogs, waiting: int) -> None:
    """Tell a face how many wait, if it wants to know. For faces that wrap another."""
    if isinstance(dialogs, ShowsWaiting):
        dialogs.show_waiting(waiting)
