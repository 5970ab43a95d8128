"""The seam between those who launch and the ways to do it. Knows no way itself."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from pisub.process import ProcessIdentity
from pisub.runs.spec import LaunchMessage


class Launched(msgspec.Struct, frozen=True):
    """A runner's process exists. Whether it has claimed its run says ``started.json``.

    Attributes:
        process: The process that carries the run.
        via: ``nursery`` (forked from a preloaded process) or ``exec`` (a new interpreter).
    """

    process: ProcessIdentity
    via: Literal["nursery", "exec"]


class Launcher(Protocol):
    """One way to start runners."""

    async def launch(self, message: LaunchMessage) -> Launched:
        """Start a runner for a run that was submitted.

        Idempotent by run id: a second process for the same run sees that it has begun, and leaves. Cancelling the
        call does not undo a launch that was already asked for.

        Raises:
            LaunchError: No runner was started, or none is known to have been: reconcile the run.
            InvalidArgumentError: The directory or a variable's name cannot be used.
            EnvironmentTooLargeError: The environment exceeds ``limits.MAX_ENVIRONMENT_BYTES``.
        """
        ...
