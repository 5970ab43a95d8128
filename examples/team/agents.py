"""An agent that hands parts of its task to others, and puts together what they found."""

import pisub
from pisub import Child


async def counter(child: Child) -> str:
    """Count the words of one part."""
    return str(len(child.task.split()))


async def team(child: Child) -> str:
    """Start one counter per paragraph, three at a time, and add up.

    The counters are runs of their own: `pisub ps --tree` shows them below this one, and stopping this one stops them.
    """
    parts = [part for part in child.task.split("\n\n") if part.strip()]
    tasks = [pisub.Task(agent="counter", task=part, label=f"part {number}") for number, part in enumerate(parts, 1)]
    async with pisub.connect() as client:
        runs = await client.spawn_all(tasks, concurrency=3)
        counts = [int(await run.text()) for run in runs]
    return f"{sum(counts)} words in {len(counts)} parts: {', '.join(map(str, counts))}"
