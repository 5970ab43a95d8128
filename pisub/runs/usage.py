"""What a child used of its models, as it reports it: tokens, money, turns. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from pisub.protocol.base import Part

#: A report above it is a mistake, and its sum would leave what a record holds.
MAX_REPORTED_TOKENS: Final = 10**12
MAX_REPORTED_COST: Final = 1e9


class Usage(Part, frozen=True, kw_only=True):
    """Sums over a run.

    Attributes:
        input: Tokens sent, without what came from a cache.
        output: Tokens answered.
        cache_read: Tokens read from a cache.
        cache_write: Tokens written to one.
        cost: In US dollars.
        turns: Answers of a model.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0
    turns: int = 0

    def plus(self, other: Usage) -> Usage:
        """Return the sum of both."""
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class Tokens(Part, frozen=True, kw_only=True):
    """Tokens in short; what a cache took part in is not counted."""

    input: int = 0
    output: int = 0
    total: int = 0


def tokens_of(usage: Usage) -> Tokens:
    """Return a usage's tokens in short."""
    return Tokens(input=usage.input, output=usage.output, total=usage.input + usage.output)


class UsageMeter(msgspec.Struct):
    """Adds up what a child reports.

    Attributes:
        usage: The sums; None before the first report.
        model: The model that answered last, '' where it was not said.
    """

    usage: Usage | None = None
    model: str = ""

    def add(self, usage: Usage, model: str) -> None:
        """Take a report."""
        self.usage = usage if self.usage is None else self.usage.plus(usage)
        self.model = model or self.model
