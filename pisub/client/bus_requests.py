"""What a client asks of the broker itself: roles, subscriptions, watches, its figures.

Owns what is remembered of them for the next broker, together with the core, which states it in every Hello.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pisub.client.bus_core import BusCore
from pisub.client.bus_handlers import Handlers
from pisub.client.bus_shell import BusShell
from pisub.client.bus_types import Incoming, Unsubscriber
from pisub.errors import InvalidArgumentError
from pisub.ids import is_role
from pisub.protocol.codec import decode, encode
from pisub.protocol.delivery import Fence, Header, Kind, Priority
from pisub.protocol.session import (
    Claim,
    Claimed,
    ControlRequest,
    Done,
    Release,
    Shutdown,
    Subscribe,
    Subscription,
    Terminated,
    Watch,
)

T = TypeVar("T")


class BrokerRequests:
    """The part of a bus that speaks with the broker and not with peers."""

    _core: BusCore
    _shell: BusShell
    _handlers: Handlers

    async def control(self, request: ControlRequest, reply: type[T], *, timeout_s: float = 5.0) -> T:
        """Ask the broker itself.

        Raises:
            CallTimeoutError: No answer in time: there is no broker, or it hangs.
            PisubError: Its refusal.
        """
        header = Header(
            kind=Kind.CONTROL,
            priority=Priority.CONTROL,
            message_id=self._core.next_id(),
            ttl_ms=max(1, int(timeout_s * 1000)),
        )
        # All but this one may be carried out twice: the next broker must not be shut down in the last one's place.
        is_repeatable = not isinstance(request, Shutdown)
        claim = request if isinstance(request, Claim) else None
        body = await self._shell.ask(
            header, encode(request), timeout_s=timeout_s, is_repeatable=is_repeatable, claim=claim
        )
        return decode(body, reply)

    async def claim(self, role: str, scope: str = "", *, wait: bool = False, record_n: int = 0) -> Claimed:
        """Claim a role. It is remembered, and claimed again from the next broker.

        With ``wait`` and a taken role the answer has generation 0; handlers of ``on_role`` hear when it is granted.

        Raises:
            RoleTakenError: Another holds it, and ``wait`` is false. Nothing is remembered.
            StaleGenerationError: A holder with a higher ``record_n`` was seen.
        """
        if not is_role(role):
            raise InvalidArgumentError(f"{role!r} cannot name a role.", field="role")
        request = Claim(role=role, scope=scope, wait=wait, record_n=record_n)
        self._core.begin_claim(request)
        try:
            return await self.control(request, Claimed)
        except BaseException:
            self._core.give_up((role, scope))
            self._shell.look()
            raise

    async def release(self, role: str, scope: str = "") -> None:
        """Give a role, or a place in its queue, back. Idempotent."""
        self._core.forget_claim((role, scope))
        try:
            await self.control(Release(role=role, scope=scope), Done)
        except BaseException:
            self._core.give_up((role, scope))
            self._shell.look()
            raise

    def fence(self, role: str, scope: str = "") -> Fence | None:
        """Return the fencing number of a role that this client holds now; None when it does not."""
        return self._core.fence((role, scope))

    async def subscribe(
        self, topic: str, handler: Callable[[Incoming], None], *, is_prefix: bool = False, scope: str = ""
    ) -> Unsubscriber:
        """Have ``handler`` called for what is published on a topic from now on. Remembered over reconnects.

        Args:
            topic: The topic, or with ``is_prefix`` the beginning of topics.
            handler: Called on the loop; what it raises is reported to the loop's exception handler.
            is_prefix: See ``topic``.
            scope: Only what is published in this session; '' is every one.
        """
        subscription = Subscription(topic=topic, is_prefix=is_prefix, scope=scope)
        is_first = self._handlers.add_subscription(subscription, handler)

        def unsubscribe() -> None:
            if self._handlers.remove_subscription(subscription, handler):
                self._core.unsubscribe(subscription)
                self._shell.look()

        if is_first:
            self._core.subscriptions[subscription] = None
            try:
                await self.control(Subscribe(topic=topic, is_prefix=is_prefix, scope=scope), Done)
            except BaseException:
                unsubscribe()
                raise
        return unsubscribe

    def subscribe_first(
        self, topic: str, handler: Callable[[Incoming], None], *, is_prefix: bool = False, scope: str = ""
    ) -> None:
        """Subscribe with the first Hello: for ``prepare``. Nothing that is published from then on is missed."""
        subscription = Subscription(topic=topic, is_prefix=is_prefix, scope=scope)
        self._handlers.add_subscription(subscription, handler)
        self._core.subscriptions[subscription] = None

    async def watch(self, address: str, on_gone: Callable[[Terminated], None]) -> None:
        """Have ``on_gone`` called once, when the peer at ``address`` is gone; at once if it is not there.

        One that went and came again as another life is gone, also where no broker was there to see it.
        """
        is_first = self._handlers.add_watch(address, on_gone)
        if not is_first:
            return
        self._core.watches[address] = 0
        try:
            answer = await self.control(Watch(address=address), Done)
        except BaseException:
            self._core.watches.pop(address, None)
            self._handlers.remove_watch(address, on_gone)
            raise
        self._core.note_watched(address, answer.incarnation)
