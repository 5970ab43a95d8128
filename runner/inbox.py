"""Control requests: files first. Reads what was asked, takes it, and says it as events, strongest first."""

from __future__ import annotations

from pisub.record.control import consume, read_requests
from pisub.record.layout import RunPaths
from pisub.record.model import ControlRequest
from pisub.runs.cascade import ANCESTOR_REASONS

from .events import Cause, EndRequested

_REASONS = {Cause.STOP: "stop", Cause.TIMEOUT: "timeout", Cause.INTERRUPT: "interrupt"}
_VERBS = {Cause.STOP: "Stopped", Cause.TIMEOUT: "Ended as timed out", Cause.INTERRUPT: "Interrupted"}


class Inbox:
    """The inbox of one run. A request counts once, also when its file cannot be taken away or read."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._seen: set[tuple[str, int]] = set()

    def read(self) -> list[EndRequested]:
        """Take what is there; blocks for a few file operations.

        Raises:
            OSError: The directory cannot be read: look again later.
        """
        events: list[EndRequested] = []
        for kind, request in read_requests(self._paths).items():
            key = (kind, request.requested_at)
            if key not in self._seen:
                events.append(_event(Cause(kind), request))
            try:
                consume(self._paths, kind)
            except OSError:
                self._seen.add(key)
            else:
                self._seen.discard(key)
        return events


def ended_by_ancestor(kind: str, why: str) -> EndRequested:
    """Return the event of an end that comes from a run above.

    Args:
        kind: ``stop``, ``timeout`` or ``interrupt``.
        why: Half a sentence for people.
    """
    cause = Cause(kind)
    return EndRequested(cause, ANCESTOR_REASONS[kind], f"{_VERBS[cause]}: {why}.")


def _event(cause: Cause, request: ControlRequest) -> EndRequested:
    if request.source == ANCESTOR_REASONS[cause.value]:
        return ended_by_ancestor(cause.value, request.reason)
    by = f" by {request.source}" if request.source else ""
    why = f": {request.reason.removesuffix('.')}" if request.reason else by
    return EndRequested(cause, _REASONS[cause], f"{_VERBS[cause]}{why}.")
