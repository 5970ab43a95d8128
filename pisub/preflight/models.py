"""Which models a child would try, and how hard it would think. Pure.

An agent with a runner of its own chooses its model itself: none of this is about it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pisub.agents.parsing import THINKING_LEVELS
from pisub.errors import InvalidArgumentError
from pisub.protocol.base import Part


class ModelInfo(Part, frozen=True, kw_only=True):
    """A model that the host can use. ``full_id`` is ``provider/id`` where it says nothing else."""

    provider: str
    id: str
    full_id: str = ""
    reasoning: bool = True

    @property
    def name(self) -> str:
        """Its whole name."""
        return self.full_id or f"{self.provider}/{self.id}"


class ModelPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The models in the order in which they would be tried."""

    candidates: tuple[str, ...] = ()

    @property
    def model(self) -> str | None:
        """The first."""
        return self.candidates[0] if self.candidates else None


def resolve_models(
    *,
    requested: str | None = None,
    agent_model: str | None = None,
    fallbacks: Sequence[str] = (),
    parent: ModelInfo | None = None,
    available: Sequence[ModelInfo] | None = None,
    preferred_provider: str | None = None,
) -> ModelPlan:
    """Return the models that would be tried: the caller's, else the agent's, else the parent's; then the fallbacks.

    Args:
        requested: What the caller asks for.
        agent_model: What the agent's file says; ``inherit`` means the parent's.
        fallbacks: What the agent's file says besides.
        parent: The model of whoever delegates. It is in use, so it is believed, also where it is not in the list.
        available: What the host has; None where nobody knows.
        preferred_provider: Which of several models of one id is meant.

    Raises:
        InvalidArgumentError: A model that somebody chose is not among those that the host has.
    """
    chosen = requested or (agent_model if agent_model != "inherit" else None)
    names = [name for name in (chosen, *fallbacks) if name]
    if available is not None:
        names = [_known(name, available, preferred_provider) for name in names]
    if chosen is None and parent is not None:
        names.insert(0, parent.name)
    return ModelPlan(candidates=tuple(dict.fromkeys(names)))


def resolve_thinking(requested: str | bool | None, agent_level: str | None) -> str | None:
    """Return the level that is asked for; None leaves it to the model.

    Args:
        requested: The caller's: a level, or False for ``off``.
        agent_level: The agent's.

    Raises:
        InvalidArgumentError: It is no level.
    """
    if requested is False:
        return "off"
    if requested is None:
        return agent_level
    if requested not in THINKING_LEVELS:
        raise InvalidArgumentError(f"thinking must be one of {', '.join(THINKING_LEVELS)}.", field="thinking")
    return str(requested)


def lower_ceiling(*levels: str | None) -> str | None:
    """Return the lowest of several ceilings; None where there is none."""
    given = [level for level in levels if level is not None]
    for level in given:
        if level not in THINKING_LEVELS:
            raise InvalidArgumentError(
                f"thinkingCeiling must be one of {', '.join(THINKING_LEVELS)}.", field="thinkingCeiling"
            )
    return min(given, key=THINKING_LEVELS.index) if given else None


def above_ceiling(
    level: str | None, ceiling: str | None, candidates: Sequence[str], available: Sequence[ModelInfo] | None
) -> str | None:
    """Return the first model that would think above a ceiling, '' where no model is named; None where none would.

    A model that cannot think is off at any level.
    """
    if level is None or ceiling is None or THINKING_LEVELS.index(level) <= THINKING_LEVELS.index(ceiling):
        return None
    silent = {each.name for each in available or () if not each.reasoning}
    if not candidates:
        return ""
    return next((name for name in candidates if name not in silent), None)


def _known(name: str, available: Sequence[ModelInfo], preferred_provider: str | None) -> str:
    exact = [each for each in available if each.name == name]
    fits = exact or [each for each in available if each.id == name]
    if len(fits) > 1 and preferred_provider is not None:
        fits = [each for each in fits if each.provider == preferred_provider] or fits
    if not fits:
        some = ", ".join(each.name for each in available[:5]) or "none"
        raise InvalidArgumentError(f"Unknown subagent model {name[:80]!a}. There are: {some}.", field="model")
    return fits[0].name
