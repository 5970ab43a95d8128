"""Who holds which role: the first who claims, then those who wait, in order.

Owns the table of roles and their generations. It sends nothing: what a change means for others is the caller's to say.
"""

from __future__ import annotations

from collections import deque

from pisub.errors import RefusedError, RoleTakenError, StaleGenerationError
from pisub.protocol.limits import MAX_ROLES

from .peers import Peer, RoleKey


class Role:
    """One role in one scope.

    Attributes:
        holder: Who holds it; None while nobody does.
        generation: The holder's fencing number, or the last holder's.
        waiting: Who is next, with the record number of each claim.
        record_n: The highest record number of a holder so far.
        vacated_at: When the last holder went; None while held, or if nobody ever held it.
    """

    __slots__ = ("generation", "holder", "record_n", "vacated_at", "waiting")

    def __init__(self) -> None:
        self.holder: Peer | None = None
        self.generation = 0
        self.waiting: deque[tuple[Peer, int]] = deque()
        self.record_n = 0
        self.vacated_at: float | None = None


class Roles:
    """All roles. A generation is never given twice in a broker's life, over all roles."""

    def __init__(self) -> None:
        self._table: dict[RoleKey, Role] = {}
        self._last_generation = 0

    def items(self) -> list[tuple[RoleKey, Role]]:
        """Return every role that is held, waited for, or was held."""
        return list(self._table.items())

    def names(self) -> list[RoleKey]:
        """Return the name and scope of every role."""
        return list(self._table)

    def get(self, key: RoleKey) -> Role | None:
        """Return a role, or None if nobody ever claimed it."""
        return self._table.get(key)

    def holder(self, key: RoleKey) -> Peer | None:
        """Return who holds a role."""
        role = self._table.get(key)
        return None if role is None else role.holder

    def claim(self, peer: Peer, key: RoleKey, *, wait: bool, record_n: int, is_settling: bool) -> Role:
        """Give a role to a peer, or queue it. Asking again for what one has changes nothing.

        Args:
            peer: The claimant.
            key: The role and its scope.
            wait: Whether to queue where the role is taken. A broker that is still settling queues such a claim also
                where the role is free: the holder under the last broker may be about to come back.
            record_n: The claimant's number in the role's record; 0 for none.
            is_settling: Whether the broker is so young that it may not know all holders yet.

        Raises:
            RoleTakenError: Another peer holds it, and the claimant does not wait.
            StaleGenerationError: A holder with a higher record number has been seen.
            RefusedError: The peer has as many roles as one may have.
        """
        role = self._table.get(key)
        if role is not None:
            if role.holder is peer:
                return role
            if 0 < record_n < role.record_n:
                raise StaleGenerationError(
                    f"Holder {role.record_n} of the role {key[0]!r} has been seen: {record_n} is from before it. "
                    "Claim with a new number."
                )
            if role.holder is not None and not wait:
                raise RoleTakenError(f"{role.holder.address} holds the role {key[0]!r}.", holder=role.holder.address)
        if len(peer.roles) + len(peer.waits_for) >= MAX_ROLES:
            raise RefusedError(f"A peer can hold or await at most {MAX_ROLES} roles.")
        if role is None:
            role = self._table[key] = Role()
        must_wait = role.holder is not None or (wait and (is_settling or bool(role.waiting)))
        if not must_wait:
            self._forget_waiting(peer, key, role)
            self._grant(peer, key, role, record_n)
        elif key not in peer.waits_for:
            role.waiting.append((peer, record_n))
            peer.waits_for.add(key)
        return role

    def position(self, peer: Peer, key: RoleKey) -> int:
        """Return a claimant's place in the queue, counted from 1; 0 where it does not wait."""
        role = self._table.get(key)
        if role is None:
            return 0
        return next((place for place, (each, _) in enumerate(role.waiting, 1) if each is peer), 0)

    def release(self, peer: Peer, key: RoleKey, now: float) -> None:
        """Take a role, or a place in its queue, from a peer. Idempotent. The next is not granted yet."""
        role = self._table.get(key)
        if role is None:
            return
        self._forget_waiting(peer, key, role)
        if role.holder is peer:
            role.holder = None
            role.vacated_at = now
            peer.generations.discard(peer.roles.pop(key))

    def grant_next(self, key: RoleKey) -> Role | None:
        """Give a role that nobody holds to the first who waits; None when there is nothing to do."""
        role = self._table.get(key)
        if role is None or role.holder is not None or not role.waiting:
            return None
        peer, record_n = role.waiting.popleft()
        peer.waits_for.discard(key)
        self._grant(peer, key, role, record_n)
        return role

    def forget_vacant(self, before: float) -> None:
        """Forget roles that nobody has held or awaited since a moment, so that old sessions cost nothing."""
        for key, role in self.items():
            is_empty = role.holder is None and not role.waiting
            if is_empty and (role.vacated_at is None or role.vacated_at < before):
                del self._table[key]

    def _grant(self, peer: Peer, key: RoleKey, role: Role, record_n: int) -> None:
        self._last_generation += 1
        role.holder = peer
        role.generation = self._last_generation
        role.record_n = max(role.record_n, record_n)
        role.vacated_at = None
        peer.roles[key] = role.generation
        peer.generations.add(role.generation)

    def _forget_waiting(self, peer: Peer, key: RoleKey, role: Role) -> None:
        if key in peer.waits_for:
            peer.waits_for.discard(key)
            role.waiting = deque(each for each in role.waiting if each[0] is not peer)
