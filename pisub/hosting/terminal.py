"""Dialogs in a terminal: who asks, why, how long there is left; arrows, digits and free text.

Knows the terminal and nothing of queues. Everything a child wrote is made visible before it is drawn. The event loop is
never blocked: keys come through it, and what is drawn is short.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from pisub.errors import InvalidArgumentError
from pisub.hosting.dialogs import DialogContext, Dialogs, show_waiting
from pisub.hosting.text import short_time, visible

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

#: Keys are ignored for this long after a dialog opened: they were typed before it could be read.
SETTLE_S: Final = 0.25
_MAX_NAME_CHARS: Final = 60


def _interrupt_process() -> None:
    signal.raise_signal(signal.SIGINT)


class TerminalDialogs:
    """Asks in the terminal that this process has. An implementation of ``pisub.hosting.dialogs.Dialogs``.

    Esc dismisses the question at hand, and nothing else. Ctrl-C answers nothing: it is passed on as SIGINT,
    and the program decides what that means. A terminal that is closed answers nothing either: it interrupts
    likewise, and the question stays open for whoever hosts the session next. Where the terminal can do no
    more than print lines (``TERM=dumb``), options are a numbered list and an empty line dismisses.
    ``NO_COLOR`` is heeded.

    Args:
        input: Where keys come from; None is this process's terminal.
        output: Where is drawn; None is this process's terminal.
        settle_s: See ``SETTLE_S``.
        interrupt: Called at Ctrl-C and at the terminal's end, instead of SIGINT to this process.
        bell: Whether the terminal's bell rings at the first question of a batch.

    Raises:
        InvalidArgumentError: This process has no terminal.
    """

    def __init__(
        self,
        *,
        input: Input | None = None,  # noqa: A002  # as prompt_toolkit names it
        output: Output | None = None,
        settle_s: float = SETTLE_S,
        interrupt: Callable[[], None] = _interrupt_process,
        bell: bool = True,
    ) -> None:
        if input is None and not any(
            stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)
        ):
            raise InvalidArgumentError(
                "There is no terminal to ask in: pass dialogs of your own, or answers in a file.", field="dialogs"
            )
        self._input = input
        self._output = output
        self._settle_s = settle_s
        self._interrupt = interrupt
        self._bell = bell
        self._face: Dialogs | None = None
        self._lock = asyncio.Lock()

    async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
        """Let the human choose with arrows or digits, then Enter."""
        async with self._lock:
            return await self._open().select(title, options, context)

    async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:
        """Let the human write a line, or several with Alt-Enter."""
        async with self._lock:
            return await self._open().input(title, placeholder, context)

    def show_waiting(self, waiting: int) -> None:
        """Show how many wait behind the open dialog, where the terminal can redraw."""
        if self._face is not None:
            show_waiting(self._face, waiting)

    def _open(self) -> Dialogs:
        if self._face is None:
            from prompt_toolkit.utils import is_dumb_terminal  # noqa: PLC0415  # 60 ms, paid at the first question

            if self._input is None and is_dumb_terminal():
                from pisub.hosting.terminal_plain import PlainDialogs  # noqa: PLC0415  # see above

                self._face = PlainDialogs.of_process(self._interrupt, bell=self._bell)
            else:
                from pisub.hosting.terminal_rich import RichDialogs  # noqa: PLC0415  # see above

                self._face = RichDialogs(
                    self._input,
                    self._output,
                    settle_s=self._settle_s,
                    interrupt=self._interrupt,
                    bell=self._bell,
                )
        return self._face


async def terminal_gone(interrupt: Callable[[], None]) -> NoReturn:
    """Do what is left to do in a dialog whose terminal was closed: say so, and wait to be told to close."""
    interrupt()
    await asyncio.get_running_loop().create_future()
    raise AssertionError  # nobody sets it: the wait ends by cancellation


def header(context: DialogContext) -> str:
    """Say in one line who asks, and since when: agent, label, run, depth, place in the batch, how many wait."""
    parts = [visible(context.agent, is_multiline=False, max_chars=_MAX_NAME_CHARS) or "an agent"]
    if context.label:
        parts.append(f"({visible(context.label, is_multiline=False, max_chars=_MAX_NAME_CHARS)})")
    parts.append("asks")
    notes = [f"run {visible(context.run_id, is_multiline=False)[:10]}"] if context.run_id else []
    if context.asked_at:
        notes.append(f"since {time.strftime('%H:%M:%S', time.localtime(context.asked_at / 1000))}")
    if context.depth:
        notes.append(f"depth {context.depth}")
    if context.count > 1:
        notes.append(f"question {context.number} of {context.count}")
    if context.waiting:
        notes.append(f"{context.waiting} more waiting")
    return " · ".join((" ".join(parts), *notes))


def opening(title: str, context: DialogContext) -> list[tuple[str, str]]:
    """Return what is printed above a dialog, as styled lines: it stays in the scrollback."""
    lines = [("class:pisub.who", header(context))]
    if context.why and context.number == 1:
        lines.append(("class:pisub.why", visible(context.why)))
    lines.append(("class:pisub.question", visible(title)))
    return lines


def closing(answer: str | None, closed: str) -> str:
    """Say in one line how a dialog ended."""
    if closed:
        return f"✗ closed: {visible(closed, is_multiline=False)}"
    return "✗ dismissed" if answer is None else f"✓ {visible(answer)}"


class Countdown:
    """What is left of a dialog's time, for showing it; the host decides when it is over."""

    def __init__(self, remaining_s: float | None, now: float) -> None:
        self._until = None if remaining_s is None else now + remaining_s

    def text(self, now: float) -> str:
        """Return the time left, or ''."""
        return "" if self._until is None else f"{short_time(self._until - now)} left"


def reason_of(error: asyncio.CancelledError) -> str:
    """Return why a dialog was told to close."""
    return str(error.args[0]) if error.args and error.args[0] else "no longer needed"
