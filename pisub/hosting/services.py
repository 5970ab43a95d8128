"""What a host does for other programs while it is there: delegations, and RPC. Started and ended together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from pisub.hosting.delegation import Delegations
from pisub.hosting.rpc import RpcService
from pisub.hosting.supervisor import Supervisor

if TYPE_CHECKING:
    from pisub.client.api import Client
    from pisub.hosting.session import HostSession


@contextlib.asynccontextmanager
async def serving(client: Client, session: HostSession, *, wait: bool) -> AsyncGenerator[Supervisor]:
    """Be the host, and serve its session, for a block.

    Raises:
        RoleTakenError: As ``HostSession.start``.
    """
    delegations, rpc = Delegations(client, session), RpcService(client, session)
    await delegations.start()
    await rpc.start()
    await session.start(wait=wait)
    announcing = asyncio.get_running_loop().create_task(rpc.announce(), name="pisub-rpc-ready")
    supervisor = Supervisor(client.layout, client.session_id)
    try:
        yield supervisor
    finally:
        announcing.cancel()
        await asyncio.wait({announcing})
        await rpc.stop()
        await delegations.stop()
        await supervisor.close()
        await session.stop()
