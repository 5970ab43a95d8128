"""Who in this program wants which message: the registry of handlers, and how one is called.

Owns decoding by registered kinds. Handlers are the user's code: whatever they raise is reported and goes no further.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar, Union

import msgspec

from pisub.client.bus_types import BusState, Incoming, Sender, Unsubscriber
from pisub.errors import InvalidArgumentError, ProtocolError
from pisub.protocol import codec
from pisub.protocol.base import Message
from pisub.protocol.session import RoleGranted, Subscription, Terminated

H = TypeVar("H")

CallHandler = Callable[[Any, Sender], Awaitable[Message] | Message]
TellHandler = Callable[[Any, Sender], None]
#: Told of an exception that a handler let out: what was being done, and the exception.
Report = Callable[[str, Exception], None]


class _TypeOnly(msgspec.Struct):
    type: str = ""


class KindTable(Generic[H]):
    """Handlers by the class of the message that they take."""

    def __init__(self) -> None:
        self._handlers: dict[type[Message], H] = {}
        self._union: Any = None

    def add(self, kind: type[Message], handler: H) -> None:
        """Register the one handler of a kind.

        Raises:
            InvalidArgumentError: The kind has one.
        """
        if kind in self._handlers:
            raise InvalidArgumentError(f"{kind.__name__} has a handler already: one answer, one handler.", field="kind")
        self._handlers[kind] = handler
        self._union = Union[tuple(self._handlers)]  # noqa: UP007  # made of a tuple at run time

    def get(self, kind: type[Message]) -> H | None:
        """Return the handler of a kind."""
        return self._handlers.get(kind)

    def decode(self, body: bytes) -> tuple[Message, H] | None:
        """Decode a body as one of the kinds, with its handler; None when no handler takes this type.

        Raises:
            ProtocolError: The type is known, and the body is not such a message.
        """
        if self._union is None:
            return None
        try:
            message: Message = codec.decode(body, self._union)
        except ProtocolError:
            tags = {kind.__struct_config__.tag for kind in self._handlers}
            if codec.decode(body, _TypeOnly).type in tags:
                raise
            return None
        return message, self._handlers[type(message)]


class Handlers:
    """All handlers of one bus."""

    def __init__(self, report: Report) -> None:
        self.calls: KindTable[CallHandler] = KindTable()
        #: How the topic of a kind's answers is made of the question, where observers may see them.
        self.reply_topics: dict[type[Message], Callable[[Any], str]] = {}
        self.report = report
        self._tells: KindTable[list[TellHandler]] = KindTable()
        self._published: dict[Subscription, list[Callable[[Incoming], None]]] = {}
        self._watches: dict[str, list[Callable[[Terminated], None]]] = {}
        self._roles: list[Callable[[RoleGranted], None]] = []
        self._states: list[Callable[[BusState], None]] = []

    # Registering. --------------------------------------------------------------------------------------------

    def add_tell(self, kind: type[Message], handler: TellHandler) -> None:
        """Register one of the handlers of a kind."""
        handlers = self._tells.get(kind)
        if handlers is None:
            self._tells.add(kind, [handler])
        else:
            handlers.append(handler)

    def add_subscription(self, subscription: Subscription, handler: Callable[[Incoming], None]) -> bool:
        """Register; tell whether it is the first for this subscription."""
        handlers = self._published.setdefault(subscription, [])
        handlers.append(handler)
        return len(handlers) == 1

    def remove_subscription(self, subscription: Subscription, handler: Callable[[Incoming], None]) -> bool:
        """Take one registration back; tell whether it was the last for this subscription. Idempotent."""
        handlers = self._published.get(subscription)
        if handlers is None or handler not in handlers:
            return False
        handlers.remove(handler)
        if handlers:
            return False
        del self._published[subscription]
        return True

    def add_watch(self, address: str, handler: Callable[[Terminated], None]) -> bool:
        """Register; tell whether it is the first for this address."""
        handlers = self._watches.setdefault(address, [])
        handlers.append(handler)
        return len(handlers) == 1

    def remove_watch(self, address: str, handler: Callable[[Terminated], None]) -> None:
        """Take one registration back. Idempotent."""
        handlers = self._watches.get(address, [])
        if handler in handlers:
            handlers.remove(handler)
        if not handlers:
            self._watches.pop(address, None)

    def add_role(self, handler: Callable[[RoleGranted], None]) -> None:
        """Register a handler of granted roles."""
        self._roles.append(handler)

    def add_state(self, handler: Callable[[BusState], None]) -> Unsubscriber:
        """Register a handler of the connection's state."""
        self._states.append(handler)
        return functools.partial(_discard, self._states, handler)

    # Handing over. -------------------------------------------------------------------------------------------

    def tell(self, body: bytes, sender: Sender) -> bool:
        """Hand over a message that wants no reply. False when nobody takes it."""
        try:
            found = self._tells.decode(body)
        except ProtocolError:
            return False
        if found is None:
            return False
        message, handlers = found
        for handler in tuple(handlers):
            self._guard("handling a told message", functools.partial(handler, message, sender))
        return True

    def publish(self, incoming: Incoming) -> bool:
        """Hand over a published message. False when no subscription takes it."""
        is_taken = False
        for subscription, handlers in tuple(self._published.items()):
            if not matches(subscription, incoming.topic, incoming.scope):
                continue
            is_taken = True
            for handler in tuple(handlers):
                if handler in handlers:  # an earlier one may have unsubscribed it
                    self._guard("handling a published message", functools.partial(handler, incoming))
        return is_taken

    def terminated(self, message: Terminated) -> bool:
        """Hand over the end of a watched peer, once. False when nobody watches it."""
        handlers = self._watches.pop(message.address, [])
        for handler in handlers:
            self._guard("handling the end of a watched peer", functools.partial(handler, message))
        return bool(handlers)

    def granted(self, message: RoleGranted) -> None:
        """Hand over a granted role."""
        for handler in tuple(self._roles):
            self._guard("handling a granted role", functools.partial(handler, message))

    def state(self, state: BusState) -> None:
        """Hand over a change of the connection."""
        for handler in tuple(self._states):
            self._guard("handling a change of the connection", functools.partial(handler, state))

    def _guard(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001  # a bug in one handler must not cost the others their messages
            self.report(what, error)


def matches(subscription: Subscription, topic: str, scope: str) -> bool:
    """Tell whether a subscription wants what is published on ``topic`` in ``scope``."""
    if subscription.scope not in ("", scope):
        return False
    return topic.startswith(subscription.topic) if subscription.is_prefix else topic == subscription.topic


def _discard(items: list[H], item: H) -> None:
    if item in items:
        items.remove(item)
