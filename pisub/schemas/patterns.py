"""What a regular expression of a schema may cost at most, from its text alone. Pure.

Python's matcher goes back and tries again; a short pattern can keep it for years. The cost here is a bound of the ways
that it can try: ``2**ways * n**degree`` for a text of n characters. A pattern with no such bound is refused: a
repetition without end of something that can itself be matched in several ways, a look around, a reference back.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_PATTERN_CHARS: Final = 1_024
#: Ways that one match may try: some tenths of a second.
MAX_TRIES: Final = 10_000_000
#: A repetition of at most so many is one of a fixed number of ways; above it, it counts as one without end.
_FEW: Final = 64
_QUANTIFIER: Final = re.compile(r"\{(\d*)(,?)(\d*)\}")
_GROUP: Final = re.compile(r"\?(?::|P<\w+>)")


class PatternError(ValueError):
    """The pattern is none, or its cost has no bound; the text says which."""


class Cost(NamedTuple):
    """A bound of the ways to match a text of n characters: ``2**ways * n**degree``."""

    ways: float
    degree: int


class _Atom(NamedTuple):
    """What one quantifier applies to."""

    ways: float = 0.0
    degree: int = 0

    @property
    def is_fixed(self) -> bool:
        """Whether it matches in one way."""
        return not self.ways and not self.degree


def pattern_cost(pattern: str) -> Cost:
    """Return what a search for a pattern costs at most.

    Raises:
        PatternError: It is no pattern, or is refused.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PatternError(f"a pattern has at most {MAX_PATTERN_CHARS} characters")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(f"it is no regular expression: {error}") from error
    found = _Scanner(pattern).scan()
    is_anchored = pattern.startswith(("^", r"\A")) and "|" not in pattern
    return Cost(found.ways, found.degree if is_anchored else found.degree + 1)


def longest_text(cost: Cost) -> int:
    """Return how long a text may be that is matched against a pattern of this cost; 0 is "none"."""
    if cost.degree == 0:
        return MAX_TRIES
    if cost.ways > 60:
        return 0
    return int((MAX_TRIES / 2**cost.ways) ** (1 / cost.degree) + 1e-6)


class _Scanner:
    """Reads a pattern that ``re`` takes, once, from left to right."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0

    def scan(self) -> _Atom:
        found = self._branches()
        if self._at < len(self._text):
            raise PatternError("its parentheses do not close")
        return found

    def _branches(self) -> _Atom:
        """Return the cost of alternatives up to the closing parenthesis or the end: they add up."""
        count, ways, degree = 1, 0.0, 0
        while True:
            branch = self._sequence()
            ways, degree = ways + branch.ways, max(degree, branch.degree)
            if self._text[self._at : self._at + 1] != "|":
                return _Atom(ways + (count - 1), degree)
            self._at += 1
            count += 1

    def _sequence(self) -> _Atom:
        ways, degree = 0.0, 0
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            atom = self._repeated(self._atom())
            ways, degree = ways + atom.ways, degree + atom.degree
        return _Atom(ways, degree)

    def _atom(self) -> _Atom:
        character = self._text[self._at]
        self._at += 1
        if character == "\\":
            if self._text[self._at].isdigit() and self._text[self._at] != "0":
                raise PatternError("a reference back to a group is not supported")
            self._at += 1
        elif character == "[":
            self._skip_class()
        elif character == "(":
            return self._group()
        return _Atom()

    def _group(self) -> _Atom:
        if self._text[self._at] == "?":
            opening = _GROUP.match(self._text, self._at)
            if opening is None:
                raise PatternError("of the groups with (? only (?: and (?P<name> are supported")
            self._at = opening.end()
        inner = self._branches()
        self._at += 1  # its parenthesis: re has taken the pattern
        return inner

    def _skip_class(self) -> None:
        if self._text[self._at] == "^":
            self._at += 1
        self._at += 1  # the first may be a closing bracket
        if self._text[self._at - 1] == "\\":
            self._at += 1
        while self._text[self._at] != "]":
            self._at += 2 if self._text[self._at] == "\\" else 1
        self._at += 1

    def _repeated(self, atom: _Atom) -> _Atom:
        times = self._quantifier()
        if times is None:
            return atom
        lowest, highest = times
        if highest is None or highest > _FEW:
            if not atom.is_fixed:
                raise PatternError(
                    "it repeats, without end, what can itself be matched in several ways: use items or a fixed number"
                )
            return _Atom(0.0, 0 if lowest == highest else 1)
        choice = 0.0 if lowest == highest else float((highest - lowest).bit_length())
        return _Atom(choice + atom.ways * highest, atom.degree * highest)

    def _quantifier(self) -> tuple[int, int | None] | None:
        """Read what follows an atom, with the mark for lazy or possessive; None where nothing repeats it."""
        mark = self._text[self._at : self._at + 1]
        times: tuple[int, int | None]
        if mark and mark in "*+?":
            times = {"*": (0, None), "+": (1, None), "?": (0, 1)}[mark]
            self._at += 1
        else:
            found = _QUANTIFIER.match(self._text, self._at)
            if found is None or not (found[1] or found[2]):
                return None  # `{` that begins no quantifier is itself
            self._at = found.end()
            times = (int(found[1] or 0), int(found[3]) if found[3] else None if found[2] else int(found[1]))
        if self._text[self._at : self._at + 1] in ("?", "+"):
            self._at += 1
        return times
