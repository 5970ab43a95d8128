"""A program that delegates a task and answers the child's questions through dialogs of its own."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pisub


class FirstIdea:
    """Dialogs without a human: takes the first option, and has one reason for everything."""

    async def select(self, title: str, options: Sequence[str], context: pisub.DialogContext) -> str | None:
        """Choose."""
        print(f"{context.agent} asks {context.number} of {context.count}: {title}")
        return options[0]

    async def input(self, title: str, placeholder: str, context: pisub.DialogContext) -> str | None:
        """Write."""
        print(f"{context.agent} asks {context.number} of {context.count}: {title}")
        return "it was there first"


async def main(task: str) -> int:
    """Delegate, follow, and print the result."""
    async with pisub.host(dialogs=FirstIdea()) as host:
        run = await host.spawn(agent="namer", task=task, cwd=Path(__file__).parent)
        async for event in run.events():
            print(f"  {event.type}")
        result = await run.result()
    print(result.output or result.error)
    return 0 if result.success else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(" ".join(sys.argv[1:]) or "the new service")))
