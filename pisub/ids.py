"""Identifiers: how they are made, and how a text from outside is checked before it names anything.

A run id is 26 characters of Crockford base32 in lower case: 48 bits of milliseconds, then 80 random bits. It sorts
by time, is safe as a file name on every platform, and has no character that can be mistaken for another.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time

from pisub.errors import InvalidArgumentError, InvalidIdError

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
ID_LENGTH = 26
#: The shortest prefix of an id that a command line accepts (decisions.md): 4 characters are 20 bits of time.
MIN_PREFIX = 4
MAX_SESSION_ID_BYTES = 256

_ID = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}", re.ASCII)
_PREFIX = re.compile(r"[0-9a-hjkmnp-tv-z]{4,26}", re.ASCII)
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
_ROLE = re.compile(r"[a-z][a-z0-9._-]{0,63}", re.ASCII)
_LIFE = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


def new_id(*, at_ms: int | None = None) -> str:
    """Make an id that sorts after those made a millisecond earlier.

    Args:
        at_ms: Unix time in milliseconds to use instead of the clock.
    """
    stamp = time.time_ns() // 1_000_000 if at_ms is None else at_ms
    number = (stamp & ((1 << 48) - 1)) << 80 | secrets.randbits(80)
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -5, -5))


def time_of(checked_id: str) -> int:
    """Return the Unix time in milliseconds at which an id says that it was made."""
    number = 0
    for character in checked_id[:10]:
        number = number << 5 | _ALPHABET.index(character)
    return number


def is_id(text: str) -> bool:
    """Tell whether a text is a whole, well-formed id."""
    return _ID.fullmatch(text) is not None


def check_id(text: str, *, what: str = "run id") -> str:
    """Return ``text`` if it is a well-formed id.

    Raises:
        InvalidIdError: It is not; the text is quoted, cut to 40 characters.
    """
    if not is_id(text):
        raise InvalidIdError(f"{_quote(text)} is not a {what}: expected {ID_LENGTH} characters of 0-9 and a-z.")
    return text


def check_prefix(text: str, *, what: str = "run id") -> str:
    """Return ``text``, lower-cased, if it can be the beginning of an id.

    Raises:
        InvalidIdError: Too short, too long, or a character that no id has.
    """
    folded = text.lower()
    if _PREFIX.fullmatch(folded) is None:
        raise InvalidIdError(
            f"{_quote(text)} cannot begin a {what}: give at least {MIN_PREFIX} of its characters (see `pisub ps`)."
        )
    return folded


def is_address(text: str) -> bool:
    """Tell whether a text can be a peer's address: letters, digits and ``. _ : -``, at most 128 of them."""
    return _ADDRESS.fullmatch(text) is not None


def parse_life(text: str) -> tuple[str, int] | None:
    """Take ``<address>`` or ``<address>@<incarnation>`` apart; 0 where it names none. None if it is neither."""
    address, at, life = text.partition("@")
    if not is_address(address) or (at and not _LIFE.fullmatch(life)):
        return None
    return address, int(life or 0)


def is_role(text: str) -> bool:
    """Tell whether a text can name a role: lower-case letters, digits and ``. _ -``, at most 64 of them."""
    return _ROLE.fullmatch(text) is not None


def check_session_id(text: str) -> str:
    """Return ``text`` if it can be a session id: 1 to 256 UTF-8 bytes, printable, no surrounding white space.

    Raises:
        InvalidArgumentError: It cannot; ``field`` is ``session``.
    """
    encoded = text.encode("utf-8", "surrogatepass")
    if not 1 <= len(encoded) <= MAX_SESSION_ID_BYTES or not text.isprintable() or text != text.strip():
        raise InvalidArgumentError(
            f"{_quote(text)} is not a session id: use 1 to {MAX_SESSION_ID_BYTES} printable characters.",
            field="session",
        )
    return text


def session_key(session_id: str) -> str:
    """Return the directory name of a session: 32 hex digits of the SHA-256 of its id, so no id can be a path."""
    return hashlib.sha256(check_session_id(session_id).encode()).hexdigest()[:32]


def _quote(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:40] + "…")
