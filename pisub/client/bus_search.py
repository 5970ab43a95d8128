"""Looking for a broker beside the event loop, which it would block for up to ten seconds."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from pisub.config import Settings
from pisub.errors import BrokerUnavailableError, PisubError
from pisub.launch import ensure_broker, find_broker


def locator(settings: Settings, *, start_broker: bool) -> Callable[[], str]:
    """Return the function that finds the broker of a runtime directory, and with ``start_broker`` starts a missing one.

    It blocks; it raises ``BrokerUnavailableError``.
    """

    def locate() -> str:
        if start_broker:
            return ensure_broker(settings).address
        found = find_broker(settings)
        if found is None:
            raise BrokerUnavailableError("No broker runs for this runtime directory; start one: pisub broker start")
        return found.address

    return locate


class BrokerSearch:
    """Runs ``locate`` in a thread and hands its outcome to ``on_ended`` on the loop.

    The thread is a daemon: neither the end of the loop nor that of the interpreter waits for it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        locate: Callable[[], str],
        on_ended: Callable[[str | PisubError], None],
    ) -> None:
        self._loop = loop
        self._locate = locate
        self._on_ended = on_ended

    def begin(self) -> None:
        """Start a search. The caller sees to it that there is one at a time."""
        threading.Thread(target=self._run, name="pisub-find-broker", daemon=True).start()

    def _run(self) -> None:
        outcome: str | PisubError = BrokerUnavailableError("Looking for a broker failed: a bug, see the traceback.")
        try:
            outcome = self._locate()
        except PisubError as error:
            outcome = error
        except OSError as error:
            outcome = BrokerUnavailableError(f"Looking for a broker failed: {error}.")
        finally:
            with contextlib.suppress(RuntimeError):  # the loop was closed in the meantime
                self._loop.call_soon_threadsafe(self._on_ended, outcome)
