"""What the simulated programs say to each other. Each message is recognisable wherever it comes out."""

from __future__ import annotations

from pisub.protocol.base import Message


class Work(Message, frozen=True, kw_only=True, tag="sim:work"):
    """A call. ``mode``: answered at once, later, or with an error."""

    key: int
    mode: str = "now"


class Worked(Message, frozen=True, kw_only=True, tag="sim:worked"):
    """Its answer: the same key, and which life gave it."""

    key: int
    by: int


class Note(Message, frozen=True, kw_only=True, tag="sim:note"):
    """A told or published message. ``number`` ascends over all of a history."""

    number: int


class Word(Message, frozen=True, kw_only=True, tag="sim:word"):
    """What the holder of a role says, in its name."""

    number: int
    role: str
