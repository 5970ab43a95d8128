"""Dialogs as JSON lines for a program at the other end: the Extension UI protocol, as IDEs speak it.

Owns the lines and what is accepted as a response. Knows no queue: a dialog is a request, and ends with the response of
its id. Standard output has the protocol and nothing else. Reading and writing are done in threads of their own, so
neither a slow reader nor a silent writer holds up the host.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from pisub.hosting.dialogs import DialogContext
from pisub.hosting.terminal import header, reason_of
from pisub.protocol.limits import MAX_ANSWER_CHARS, MAX_STDIO_LINE_BYTES
from pisub.utf8 import is_utf8

_REQUEST: Final = "extension_ui_request"
_RESPONSE: Final = "extension_ui_response"
_CANCEL: Final = "extension_ui_cancel"
_READ_BYTES: Final = 65_536
#: What is still to be written when the host ends has this long to be read.
_DRAIN_S: Final = 1.0
#: Ids of closed dialogs that are remembered, so that a late response is told from one to nothing.
_MAX_CLOSED: Final = 1_024


class _Open:
    """The dialog that waits for its response."""

    def __init__(self, ident: str, options: Sequence[str]) -> None:
        self.id = ident
        self.options = options
        self.response: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()


class StdioDialogs:
    """Asks the program at the other end of two descriptors. An implementation of ``pisub.hosting.dialogs.Dialogs``.

    A response belongs to one dialog, by its id: one that comes late can never answer the next question. The end of the
    input answers nothing: the host is interrupted, and the question stays open for the next one.

    Args:
        source: Descriptor that responses are read from.
        target: Descriptor that requests are written to.
        interrupt: Called, on the loop, when the input has ended or nothing can be written any more.

    Attributes:
        malformed: How many lines were no response.
        refused: How many responses were to no open dialog, or no answer to it.
    """

    def __init__(self, source: int, target: int, interrupt: Callable[[], None]) -> None:
        self._source = source
        self._target = target
        self._interrupt = interrupt
        self._loop = asyncio.get_running_loop()
        self._open: _Open | None = None
        self._closed: dict[str, str] = {}
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._told = itertools.count(1)
        self._is_over = False
        self.malformed = 0
        self.refused = 0
        # Daemons: a read that never returns must not keep the process.
        self._writer = threading.Thread(target=self._write, name="pisub-stdio-write", daemon=True)
        self._writer.start()
        threading.Thread(target=self._read, name="pisub-stdio-read", daemon=True).start()

    async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
        """Have the program's user choose."""
        return await self._ask("select", title, context, options, {"options": list(options)})

    async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:
        """Have the program's user write."""
        return await self._ask("input", title, context, (), {"placeholder": placeholder})

    def show_waiting(self, waiting: int) -> None:
        """Send how many wait, as a status line."""
        text = f"{waiting} more waiting" if waiting else ""
        self._tell("setStatus", {"statusKey": "pisub.waiting", "statusText": text})

    def notify(self, message: str, kind: str = "info") -> None:
        """Send a notice; ``kind`` is info, warning or error."""
        self._tell("notify", {"message": message, "notifyType": kind})

    def _tell(self, method: str, more: dict[str, Any]) -> None:
        """Send a request that wants no response. It has an id all the same: readers of the protocol count on one."""
        self._send({"type": _REQUEST, "id": f"pisub.{next(self._told)}", "method": method, **more})

    def close(self) -> None:
        """Write what is left, for a second at most."""
        self._is_over = True
        self._lines.put(None)
        self._writer.join(_DRAIN_S)

    async def _ask(
        self, method: str, title: str, context: DialogContext, options: Sequence[str], more: dict[str, Any]
    ) -> str | None:
        dialog = self._open = _Open(f"{context.ask_id}.{context.number}", options)
        self._closed.pop(dialog.id, None)
        who = header(context)
        why = f"\n{context.why}" if context.why and context.number == 1 else ""
        timeout = {} if context.remaining_s is None else {"timeout": max(1, round(context.remaining_s * 1000))}
        request = {
            "type": _REQUEST,
            "id": dialog.id,
            "method": method,
            "title": f"{who}{why}\n{title}",
            **more,
            **timeout,
            "context": {**_camel(context), "question": title},
        }
        self._send(request)
        try:
            answer = await dialog.response
        except asyncio.CancelledError as error:
            reason = reason_of(error)
            self._send({"type": _CANCEL, "id": dialog.id, "reason": reason})
            self._over(dialog, reason)
            raise
        self._over(dialog, "it has its response")
        return answer

    def _over(self, dialog: _Open, why: str) -> None:
        self._open = None
        self._closed[dialog.id] = why
        if len(self._closed) > _MAX_CLOSED:
            del self._closed[next(iter(self._closed))]

    # Lines from the other end. -----------------------------------------------------------------------------------

    def _hear(self, line: bytes | None) -> None:
        """Take a line; None is one that was too long."""
        if self._is_over:
            return
        if line is None:
            self._reject(f"A line has more than {MAX_STDIO_LINE_BYTES} bytes.")
            return
        if not line.strip():
            return
        try:
            found = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._reject(f"The line is no JSON object: {error}.")
            return
        if found.get("type") != _RESPONSE:
            self._reject(f"Only objects of type {_RESPONSE} are taken.")
            return
        ident, value, is_cancelled = found.get("id"), found.get("value"), found.get("cancelled")
        if not isinstance(ident, str):
            self._reject("The response has no id.")
        elif is_cancelled is True and value is None:
            self._respond(ident, None)
        elif isinstance(value, str) and not is_cancelled:
            self._respond(ident, value)
        else:
            self._reject("A response has a text as its value, or cancelled: true.", ident)

    def _respond(self, ident: str, value: str | None) -> None:
        dialog = self._open
        if dialog is None or dialog.id != ident or dialog.response.done():
            why = self._closed.get(ident)
            if why is None and not (dialog is not None and dialog.id == ident):
                self._refuse("unknown-dialog", ident, f"No dialog has the id {ident[:80]!r}.")
            else:
                self._refuse("closed", ident, f"The dialog is closed: {why or 'it has its response'}.")
            return
        problem = "" if value is None else _problem_of(value, dialog.options)
        if problem:
            self._refuse("invalid-answer", ident, f"{problem} The dialog is still open.")
        else:
            dialog.response.set_result(value)

    def _reject(self, message: str, ident: str | None = None) -> None:
        self.malformed += 1
        self._send({"type": "error", "id": ident, "code": "malformed", "message": message, "malformed": self.malformed})

    def _refuse(self, code: str, ident: str, message: str) -> None:
        self.refused += 1
        self._send({"type": "error", "id": ident[:200], "code": code, "message": message, "refused": self.refused})

    def _send(self, message: dict[str, Any]) -> None:
        self._lines.put(msgspec.json.encode(message) + b"\n")

    # Threads. ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        for line in _lines_of(self._source):
            if not self._call(self._hear, line):
                return
        self._call(self._gone)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            left = memoryview(line)
            try:
                while left:
                    left = left[os.write(self._target, left) :]
            except OSError:  # nobody reads any more
                self._call(self._gone)
                return

    def _call(self, function: Callable[..., None], *arguments: object) -> bool:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed: the host is over
            return False
        return True

    def _gone(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._interrupt()


def _lines_of(descriptor: int) -> Iterator[bytes | None]:
    """Read lines up to the end; None stands for a line that is too long, which is passed over."""
    buffer = bytearray()
    is_passing_over = False
    while True:
        try:
            data = os.read(descriptor, _READ_BYTES)
        except OSError:
            return
        if not data:
            break
        *whole, rest = (bytes(buffer) + data).split(b"\n")
        for line in whole:
            if is_passing_over:
                is_passing_over = False
            else:
                yield line if len(line) <= MAX_STDIO_LINE_BYTES else None
        buffer = bytearray(b"" if is_passing_over else rest)
        if len(buffer) > MAX_STDIO_LINE_BYTES:
            buffer.clear()
            is_passing_over = True
            yield None
    if buffer and not is_passing_over:
        yield bytes(buffer)


def _camel(context: DialogContext) -> dict[str, Any]:
    """Return a context with the names that all JSON of pisub has."""
    found: dict[str, Any] = msgspec.to_builtins(context)
    return {"".join(part.title() if at else part for at, part in enumerate(key.split("_"))): value
            for key, value in found.items()}  # fmt: skip


def _problem_of(value: str, options: Sequence[str]) -> str:
    if options and value not in options:
        return "The value is none of the options."
    if not value.strip():
        return "An empty text is no answer: send cancelled to give none."
    if len(value) > MAX_ANSWER_CHARS:
        return f"The value has {len(value)} characters, more than {MAX_ANSWER_CHARS}."
    return "" if is_utf8(value) else "The value holds half of a surrogate pair."
