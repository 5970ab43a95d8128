"""Dialogs for a terminal that can only print lines: a numbered list, and a line read through the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Callable, Sequence
from typing import Final, Self

from pisub.errors import InvalidArgumentError
from pisub.hosting.dialogs import DialogContext
from pisub.hosting.terminal import Countdown, closing, opening, reason_of, terminal_gone
from pisub.hosting.text import visible
from pisub.protocol.limits import MAX_ANSWER_CHARS

#: A terminal in line mode hands over at most 4,096 bytes at a time.
_READ_BYTES: Final = 65_536


class PlainDialogs:
    """One dialog at a time on a terminal in line mode. Made by ``TerminalDialogs``, which see.

    Args:
        descriptor: The terminal to read from. It must be one that a loop can watch.
        write: Prints a text and flushes it.
        interrupt: Called at the end of the input.
        bell: Whether the bell rings at the first question of a batch.
    """

    def __init__(
        self, descriptor: int, write: Callable[[str], None], interrupt: Callable[[], None], *, bell: bool = False
    ) -> None:
        self._descriptor = descriptor
        self._write = write
        self._interrupt = interrupt
        self._bell = bell

    @classmethod
    def of_process(cls, interrupt: Callable[[], None], *, bell: bool = False) -> Self:
        """Use whichever standard streams are a terminal.

        Raises:
            InvalidArgumentError: Standard input is none.
        """
        if not sys.stdin.isatty():
            raise InvalidArgumentError("Standard input is no terminal: there is nobody to ask.", field="dialogs")
        stream = sys.stdout if sys.stdout.isatty() else sys.stderr

        def write(text: str) -> None:
            stream.write(text)
            stream.flush()

        return cls(sys.stdin.fileno(), write, interrupt, bell=bell)

    async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
        """Let the human choose by number."""
        shown = "".join(f"  {n}. {visible(each, is_multiline=False)}\n" for n, each in enumerate(options, start=1))

        def check(line: str) -> tuple[str | None, str]:
            if line.isascii() and line.isdigit() and 1 <= int(line) <= len(options):
                return options[int(line) - 1], ""
            return (line, "") if line in options else (None, f"a number from 1 to {len(options)}, please")

        return await self._ask(title, context, shown, f"number, or an empty line to dismiss (1-{len(options)})", check)

    async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:
        """Let the human write a line."""
        hint = f"{visible(placeholder, is_multiline=False)}; " if placeholder else ""

        def check(line: str) -> tuple[str | None, str]:
            if len(line) > MAX_ANSWER_CHARS:
                return None, f"{len(line)} characters are more than {MAX_ANSWER_CHARS}: shorten it"
            return line, ""

        return await self._ask(title, context, "", f"{hint}an empty line dismisses", check)

    async def _ask(
        self,
        title: str,
        context: DialogContext,
        shown: str,
        hint: str,
        check: Callable[[str], tuple[str | None, str]],
    ) -> str | None:
        if os.isatty(self._descriptor):  # what was typed before the question was not meant for it
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
        left = Countdown(context.remaining_s, 0.0).text(0.0)
        lines = "\n".join(text for _, text in opening(title, context))
        ring = "\a" if self._bell and context.number == 1 else ""
        self._write(f"{ring}{lines}\n{shown}[{' · '.join(part for part in (left, hint) if part)}] > ")
        try:
            answer = await self._answer(check)
        except asyncio.CancelledError as error:
            self._write(f"\n{closing(None, reason_of(error))}\n")
            raise
        self._write(f"{closing(answer, '')}\n")
        return answer

    async def _answer(self, check: Callable[[str], tuple[str | None, str]]) -> str | None:
        while True:
            line = await self._read_line()
            if line is None:
                await terminal_gone(self._interrupt)
            if not line.strip():
                return None
            answer, problem = check(line)
            if answer is not None:
                return answer
            self._write(f"[{problem}] > ")

    async def _read_line(self) -> str | None:
        """Read up to a line feed; None at the end of the input, where nothing was read before it."""
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str | None] = loop.create_future()
        buffer = bytearray()

        def readable() -> None:
            try:
                data = os.read(self._descriptor, _READ_BYTES)
            except OSError:  # the terminal is gone: nobody can answer
                data = b""
            buffer.extend(data)
            if not data and not buffer and not line.done():
                line.set_result(None)
            elif (not data or b"\n" in data) and not line.done():
                line.set_result(buffer.partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r"))

        loop.add_reader(self._descriptor, readable)
        try:
            return await line
        finally:
            loop.remove_reader(self._descriptor)
