"""Looking for a broker beside the event loop, which it would block for up to ten seconds."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from pisub.config import Settings
from pisub.errors import BrokerUnavailableError, PisubError
from pisub.launch import BrokerInfo, ensure_broker, find_broker, silent_broker
from pisub.process import is_stopped

#: A broker that is seen stopped at so many looks in a row is not waited for.
_STOPPED_LOOKS: Final = 4
_STOPPED_LOOK_S: Final = 0.25


class Locator:
    """Finds the broker of a runtime directory, and with ``start_broker`` starts a missing one.

    Calling it blocks; it raises ``BrokerUnavailableError``.
    """

    def __init__(self, settings: Settings, *, start_broker: bool) -> None:
        self._settings = settings
        self._start_broker = start_broker
        self._given_up = threading.Event()

    def __call__(self) -> str:
        """Return the broker's address."""
        if self._start_broker:
            found = ensure_broker(self._settings, is_given_up=self._given_up.is_set)
        elif (there := find_broker(self._settings)) is not None:
            found = there
        else:
            raise BrokerUnavailableError("No broker runs for this runtime directory; start one: pisub broker start")
        self._check_going(found)
        return found.address

    def glance(self) -> str | None:
        """Return the address of a broker that is there and goes, without waiting for anything; None to look closer."""
        found = find_broker(self._settings)
        return None if found is None or is_stopped(found.process) else found.address

    def silence(self) -> BrokerUnavailableError | None:
        """Return the error for a broker that was found and sent nothing; None where none is there."""
        found = find_broker(self._settings)
        return None if found is None else silent_broker(found)

    def _check_going(self, found: BrokerInfo) -> None:
        """See that the broker was not stopped by a signal: one that is for long answers nobody."""
        for _ in range(_STOPPED_LOOKS):
            if not is_stopped(found.process) or self._given_up.wait(_STOPPED_LOOK_S):
                return
        raise silent_broker(found)

    def give_up(self) -> None:
        """Let a call that another thread is in end soon, with an error. There is none afterwards that takes long."""
        self._given_up.set()


@runtime_checkable
class Glancing(Protocol):
    """Can say at once where the broker is, if it is there."""

    def glance(self) -> str | None:
        """Return its address, or None: then look closer."""
        ...


class BrokerSearch:
    """Looks for a broker and hands the outcome to ``on_ended`` on the loop.

    Where a glance does not do, ``locate`` runs in a thread. It is a daemon: the interpreter does not wait for it at its
    end. ``stop`` does, in bounds.
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
        self._running: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Start a search. The caller sees to it that there is one at a time."""
        self._running = self._loop.create_future()
        if isinstance(self._locate, Glancing) and (address := self._locate.glance()) is not None:
            self._loop.call_soon(self._end, address)
            return
        threading.Thread(target=self._run, name="pisub-find-broker", daemon=True).start()

    async def stop(self, within_s: float) -> None:
        """Wait until no search is under way: it holds files, and may be starting a broker. No longer than asked."""
        if isinstance(self._locate, Locator):
            self._locate.give_up()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=within_s)

    def _end(self, outcome: str | PisubError) -> None:
        if self._running is not None and not self._running.done():
            self._running.set_result(None)
        self._on_ended(outcome)

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
                self._loop.call_soon_threadsafe(self._end, outcome)
