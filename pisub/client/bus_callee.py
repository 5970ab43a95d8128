"""The receiving side of the bus: what is done with a message of a peer.

Owns the order of steps: seen before, decoded, handled, answered, kept. Handlers are the user's code; an exception of
theirs becomes the caller's error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol

from pisub.client.bus_answers import CallKey, Seen
from pisub.client.bus_core import BusCore
from pisub.client.bus_handlers import Handlers, Report
from pisub.client.bus_types import Incoming, Sender
from pisub.errors import PisubError, ProtocolError, RemoteError
from pisub.protocol.base import Message
from pisub.protocol.codec import decode, encode, pack
from pisub.protocol.delivery import Header, Kind, Priority
from pisub.protocol.session import Arrived, Failure

#: Scope and topic on which an answer is shown to observers; both '' for none.
ReplyTopic = tuple[str, str]
_NO_TOPIC: Final[ReplyTopic] = ("", "")


class Post(Protocol):
    """Sends a frame now, or queues it."""

    def __call__(self, frame: bytes, header: Header, body: bytes = b"") -> None:
        """Raise ``NotDeliveredError`` when the outbox is full."""
        ...


class Callee:
    """Receives for one bus. Nothing here raises into the socket's loop.

    Args:
        core: Keeps the answers.
        handlers: Who wants what.
        post: How an answer is sent.
        spawn: How a handler's awaitable is run beside.
        report: Told of exceptions that are not the caller's fault.
    """

    def __init__(
        self,
        core: BusCore,
        handlers: Handlers,
        *,
        post: Post,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        report: Report,
    ) -> None:
        #: Encodes an answer: its body, and the header's flags. The shell knows how large ones go.
        self.encode: Callable[[Message], tuple[bytes, int]] = lambda message: (encode(message), 0)
        self._core = core
        self._handlers = handlers
        self._post = post
        self._spawn = spawn
        self._report = report

    def receive(self, sender: Sender, header: Header, body: bytes, dropped: int, now: float) -> bool:
        """Take a CALL, TELL, PUBLISH or DONE. False when nobody here could use it."""
        kind = header.kind
        if kind == Kind.CALL:
            self._on_call(sender, header, body, now)
            return True
        if kind == Kind.TELL:
            return self._handlers.tell(body, sender)
        if kind == Kind.PUBLISH:
            incoming = Incoming(header.topic, header.scope, sender, body, dropped)
            return self._handlers.publish(incoming) or bool(header.to and self._handlers.tell(body, sender))
        return self._on_arrived(sender, body)

    def observe(self, sender: Sender, header: Header, body: bytes, dropped: int) -> bool:
        """Show an answer that has a topic to its observers. False when there are none."""
        return self._handlers.publish(Incoming(header.topic, header.scope, sender, body, dropped))

    def _on_arrived(self, sender: Sender, body: bytes) -> bool:
        try:
            ids = decode(body, Arrived).message_ids
        except ProtocolError:
            return False
        self._core.answers.forget(sender.address, sender.incarnation, ids)
        return True

    def _on_call(self, sender: Sender, header: Header, body: bytes, now: float) -> None:
        key = (sender.address, sender.incarnation, header.message_id)
        seen = self._core.answers.begin(key, ttl_ms=header.ttl_ms, now=now)
        if seen is Seen.RUNNING:
            return
        if isinstance(seen, bytes):
            self._send(seen, Header(kind=Kind.REPLY))
            return
        topic = _NO_TOPIC
        try:
            found = self._handlers.calls.decode(body)
            if found is not None:
                name = self._handlers.reply_topics.get(type(found[0]))
                topic = _NO_TOPIC if name is None else (header.scope, name(found[0]))
            result = _refuse() if found is None else found[1](found[0], sender)
            if isinstance(result, Message):
                self._answer(key, result, topic)
            else:
                self._spawn(self._answer_later(key, result, topic))
        except Exception as error:  # noqa: BLE001  # whatever a handler raised is the caller's to know
            self._answer_error(key, error, topic)

    async def _answer_later(self, key: CallKey, result: Awaitable[Message], topic: ReplyTopic) -> None:
        try:
            self._answer(key, await result, topic)
        except Exception as error:  # noqa: BLE001  # as above
            self._answer_error(key, error, topic)

    def _answer_error(self, key: CallKey, error: Exception, topic: ReplyTopic) -> None:
        if isinstance(error, PisubError):
            failure = Failure(code=error.code, message=error.message, field=error.field)
        else:
            self._report("answering a call", error)
            failure = Failure(code="internal_error", message=f"{type(error).__name__} in the callee's handler.")
        self._answer(key, failure, topic, kind=Kind.FAIL)

    def _answer(self, key: CallKey, message: Message, topic: ReplyTopic, *, kind: int = Kind.REPLY) -> None:
        body, flags = self.encode(message)
        # To that life of the caller alone: the next one counts its calls from 1 again.
        to = f"{key[0]}@{key[1]}"
        header = Header(kind, Priority.NORMAL, self._core.next_id(), key[2], *topic, to, None, 0, flags)
        frame = pack(header, body)
        self._core.answers.finish(key, frame)
        self._send(frame, header)

    def _send(self, frame: bytes, header: Header) -> None:
        try:
            self._post(frame, header)
        except PisubError as error:  # the outbox is full: the answer is kept, a repeat of the call gets it
            self._report("sending an answer", error)


def _refuse() -> Message:
    raise RemoteError("The callee answers no message of this type.", code="not_served")
