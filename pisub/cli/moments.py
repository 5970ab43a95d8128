"""Moments and ages as people type them. Pure: texts in, numbers out; what time it is now is an argument."""

from __future__ import annotations

import argparse
import datetime as dt
from typing import Final

import msgspec

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Since(msgspec.Struct, frozen=True):
    """From when on: so long ago, or since a moment (Unix time). One of the two is None. All in milliseconds."""

    age_ms: int | None = None
    at_ms: int | None = None

    def begin(self, now_ms: int) -> int:
        """Return the Unix time from which on."""
        return now_ms - self.age_ms if self.age_ms is not None else self.at_ms or 0


def age_ms(text: str) -> int:
    """Read an age: a whole number and a unit, as in ``30d``, ``12h``, ``45m``, ``90s``; returned in milliseconds.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS_MS or not number.isascii() or not number.isdigit() or len(number) > 6:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age: give a whole number and s, m, h or d, as in 30d")
    return int(number) * _UNITS_MS[unit]


def since(text: str) -> Since:
    """Read an age, or a moment with its time zone as in ``2026-12-01T09:30:00Z`` or ``2026-12-01T10:30+01:00``.

    Raises:
        argparse.ArgumentTypeError: It is neither, or a time without a zone, which would mean another moment elsewhere.
    """
    try:
        return Since(age_ms=age_ms(text))
    except argparse.ArgumentTypeError:
        pass
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither an age, as in 10m, nor a moment, as in 2026-12-01T09:30:00Z"
        ) from None
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone: add Z, or an offset as in +01:00")
    return Since(at_ms=int(moment.timestamp() * 1000))
