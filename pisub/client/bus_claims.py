"""The roles that a client holds or waits for, remembered over reconnects. Pure.

Owns which number each role has under the broker of now. Nothing here is sent.
"""

from __future__ import annotations

import msgspec

from pisub.client.bus_events import Effect, Granted, Reclaim
from pisub.protocol.delivery import Fence
from pisub.protocol.session import Claim, Claimed, HeldRole, RoleGranted, Welcome

RoleKey = tuple[str, str]


class HeldClaim(msgspec.Struct):
    """A claim that is remembered over reconnects. ``generation`` is 0 while it waits."""

    request: Claim
    generation: int = 0
    #: Whether the broker answered. Until then the request itself is what is sent again.
    is_answered: bool = False


class Claims:
    """All claims of one client."""

    def __init__(self) -> None:
        self._table: dict[RoleKey, HeldClaim] = {}
        #: The highest number heard of, by role, under this broker: a grant that is no higher is old news.
        self._heard: dict[RoleKey, int] = {}

    def generation(self, key: RoleKey) -> int:
        """Return the number under which a role is held; 0 when it is not."""
        claim = self._table.get(key)
        return claim.generation if claim is not None else 0

    def begin(self, request: Claim) -> None:
        """Note a claim before it is sent."""
        self._table.setdefault((request.role, request.scope), HeldClaim(request)).request = request

    def forget(self, key: RoleKey) -> None:
        """The role was given back, or the claim came to nothing."""
        self._table.pop(key, None)

    def claimed(self, answer: Claimed) -> bool:
        """The broker granted or queued a claim. Tell whether this made the client the holder."""
        key = (answer.role, answer.scope)
        claim = self._table.get(key)
        if claim is None:
            return False
        claim.is_answered = True
        is_news = bool(answer.generation) and answer.generation != claim.generation
        claim.generation = answer.generation
        self._hear(key, answer.generation)
        return is_news

    def granted(self, granted: RoleGranted) -> bool:
        """A waiting claim became a holding one. Tell whether that is news: a released one is none."""
        key = (granted.role, granted.scope)
        claim = self._table.get(key)
        if claim is None or granted.generation <= self._heard.get(key, 0):
            return False
        claim.generation = granted.generation
        claim.is_answered = True
        self._hear(key, granted.generation)
        return True

    def stated(self) -> tuple[HeldRole, ...]:
        """Return what a Hello says of them: roles that are held, and claims that wait."""
        return tuple(
            HeldRole(role=role, scope=scope, generation=claim.generation, record_n=claim.request.record_n)
            for (role, scope), claim in self._table.items()
            if claim.generation or (claim.is_answered and claim.request.wait)
        )

    def renew(self, welcome: Welcome, epoch: str) -> tuple[dict[Fence, Fence], list[Effect]]:
        """Take the numbers of a Welcome.

        Args:
            welcome: What the broker says.
            epoch: The broker before it.

        Returns:
            The new fence of each old one, and what is to be told or claimed again.
        """
        now_held = {(role.role, role.scope): role.generation for role in welcome.roles}
        if welcome.epoch != epoch:
            self._heard.clear()
        renewed: dict[Fence, Fence] = {}
        effects: list[Effect] = []
        for (role, scope), claim in self._table.items():
            generation = now_held.get((role, scope), 0)
            if claim.generation and generation:
                renewed[Fence(epoch, claim.generation)] = Fence(welcome.epoch, generation)
            if generation and (welcome.epoch != epoch or generation != claim.generation):
                effects.append(Granted(RoleGranted(role=role, scope=scope, generation=generation)))
            elif not generation and claim.is_answered:
                effects.append(Reclaim(claim.request))
            claim.generation = generation
            self._hear((role, scope), generation)
        return renewed, effects

    def _hear(self, key: RoleKey, generation: int) -> None:
        self._heard[key] = max(generation, self._heard.get(key, 0))
