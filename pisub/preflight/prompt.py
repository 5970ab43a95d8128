"""The system prompt that a child really gets, put together in one order. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pisub.agents.skills import Skill


def assemble_prompt(
    prompt: str, *, skills: Sequence[Skill] = (), memory: str = "", overlay: str = "", output_path: str | None = None
) -> str:
    """Return the effective system prompt.

    Args:
        prompt: The agent's, with the bridge's instruction where that is active.
        skills: Those that were asked for and found.
        memory: What the agent remembers.
        overlay: What refines the prompt for this launch.
        output_path: Where the result is to be written.
    """
    parts = [prompt, _skills(skills), memory.strip(), overlay.strip(), _output(output_path)]
    return "\n\n".join(part for part in parts if part)


def _skills(skills: Sequence[Skill]) -> str:
    if not skills:
        return ""
    lines = [f"- {each.name}: {each.description or 'no description'} (file: {each.path})" for each in skills]
    return "\n".join(["Skills that are there for this task. Read a skill's file before you do what it is for.", *lines])


def _output(path: str | None) -> str:
    return f"Write your result to the file {path}." if path else ""
