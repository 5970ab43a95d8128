"""An attached run watches the process that it belongs to, and hears of its death once."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

from pisub.process import Liveness, ProcessIdentity, liveness, open_pidfd


class HostWatch:
    """The watch, by pidfd; where there is none, by ``check`` now and then.

    Args:
        host: Whom to watch; None for a detached run, which watches nobody.
        on_gone: Called once, from the loop.
    """

    def __init__(self, host: ProcessIdentity | None, on_gone: Callable[[], None]) -> None:
        self._host = host
        self._on_gone = on_gone
        self._loop: asyncio.AbstractEventLoop | None = None
        self._descriptor: int | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to watch. A host that is gone already is noticed by the first ``check``."""
        if self._host is None:
            return
        with contextlib.suppress(OSError):  # no pidfd here
            self._descriptor = open_pidfd(self._host)
        if self._descriptor is not None:
            self._loop = loop
            loop.add_reader(self._descriptor, self._tell)

    def check(self) -> None:
        """Look whether the host lives; unknown is not dead."""
        if self._host is not None and liveness(self._host) is Liveness.DEAD:
            self._tell()

    def close(self) -> None:
        """Stop watching; idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None and self._loop is not None:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)

    def _tell(self) -> None:
        self._host = None
        self.close()
        self._on_gone()
