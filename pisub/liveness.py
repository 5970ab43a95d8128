"""For a program that hosts sessions and reclaims idle ones: who says that a session is still live.

Owns the registry and its rules: either form of a session's id finds it, and a provider that fails, or says anything but
yes or no, counts as active. A shutdown that somebody asked for asks nobody. What pisub itself answers is
``Host.announce_liveness``'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from pisub.errors import InvalidArgumentError

#: The contract's name of the registry, and its version.
REGISTRY_KEY: Final = "@agegr/pi-web/session-liveness/v1"
VERSION: Final = 1

Release = Callable[[], None]
Report = Callable[[str, BaseException | None], None]


class LivenessProvider(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who knows whether a session is live.

    Attributes:
        name: Who it is.
        session_id: The session's bare id.
        is_active: Asked whenever the host wants to know; returns at once.
        session_file: The session's file, where it has one.
    """

    name: str
    session_id: str
    is_active: Callable[[], bool]
    session_file: str | None = None


class LivenessRegistry:
    """The providers that a host of sessions knows. Not thread-safe."""

    version: Final = VERSION

    def __init__(self) -> None:
        self._providers: dict[int, LivenessProvider] = {}
        self._next = 0

    def register(self, provider: LivenessProvider) -> Release:
        """Add a provider, and return what takes it back; that may be called twice.

        Raises:
            InvalidArgumentError: Its name or its session's id is blank, or ``is_active`` cannot be called.
        """
        for field in ("name", "session_id"):
            value: object = getattr(provider, field, None)
            if not isinstance(value, str) or not value.strip():
                raise InvalidArgumentError(f"A liveness provider needs a {field} that is not blank.", field=field)
        if not callable(provider.is_active):
            raise InvalidArgumentError("is_active must be a function.", field="is_active")
        self._next += 1
        number = self._next
        self._providers[number] = provider

        def release() -> None:
            self._providers.pop(number, None)

        return release

    def has_active_provider(self, *, session_id: str | None = None, session_file: str | None = None) -> bool:
        """Tell whether a session must be kept. It is named by its id, its file, or both; either finds a provider."""
        wanted = {form for form in (session_id, session_file) if form}
        return any(
            _is_active(each)
            for each in tuple(self._providers.values())
            if wanted & {each.session_id, each.session_file}
        )


def announce(registry: Any, provider: LivenessProvider, report: Report) -> Release:
    """Register a provider in a host's registry. Whatever is wrong with that registry, the caller goes on.

    Args:
        registry: Anything; one of another version or shape is left alone.
        provider: Who is registered.
        report: Told what went wrong.

    Returns:
        Takes it back; does nothing where nothing was registered.
    """
    try:
        version: object = getattr(registry, "version", None)
        register: object = getattr(registry, "register", None)
        if isinstance(version, bool) or version != VERSION or not callable(register):
            return _nothing
        release: object = register(provider)
    except Exception as error:  # noqa: BLE001  # somebody else's code
        report("The host's liveness registry could not be used.", error)
        return _nothing
    if not callable(release):
        report("The host's liveness registry gave nothing to release by.", None)
        return _nothing

    def take_back() -> None:
        try:
            release()
        except Exception as error:  # noqa: BLE001  # somebody else's code
            report("The host's liveness registry did not release.", error)

    return take_back


def _is_active(provider: LivenessProvider) -> bool:
    try:
        answer: object = provider.is_active()
    except Exception:  # noqa: BLE001  # somebody else's code: whatever it raises, the session is kept
        return True
    return answer is not False


def _nothing() -> None:
    """Release nothing."""
