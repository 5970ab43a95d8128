"""The bases of everything that crosses a wire or lies on disk.

Keys are camelCase outside and snake_case inside, by ``rename`` alone. ``frozen`` and ``kw_only`` are said again on
every subclass: msgspec does not inherit them. Unknown keys are ignored, so that a newer writer does not break an
older reader.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True):
    """One message's body. A subclass names itself with ``tag``: the name that clients see."""

    #: Whether a body over the bound of a frame goes by a file, unseen by its sender and receiver. Others are refused.
    may_be_large: ClassVar[bool] = False


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A value inside messages that is not a message itself."""


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A value that is written to a file as a JSON object."""
