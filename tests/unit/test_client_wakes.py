"""Waking early, and being cancelled in the same turn."""

from __future__ import annotations

import asyncio

import pytest

from pisub.client.wakes import Wakes
from pisub.ids import new_id


@pytest.mark.parametrize("turns", range(4))
def test_a_cancellation_that_comes_with_the_news_is_not_lost(turns: int) -> None:
    async def main() -> None:
        async with Wakes(new_id(), bus=None, reread_s=60.0) as wakes:
            waiting = asyncio.ensure_future(wakes.wait())
            await asyncio.sleep(0)
            wakes._event.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            had_returned = waiting.done()
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled() is not had_returned

    asyncio.run(main())
