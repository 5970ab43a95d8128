"""The agent of ``pisub smoke``: it asks two questions and says what came back."""

from __future__ import annotations

from pisub.child import Child
from pisub.protocol.checkpoint import Question


async def ask(child: Child) -> str:
    """Ask, and return the status and the answers."""
    asked = await child.ask([Question("Which?", options=["left", "right"]), Question(f"Token of {child.task}?")])
    return f"{asked.status} {' '.join(str(each) for each in asked.values)}"
