"""What the run's processes want to know from the session that started it, as its runner sees it in the files.

Owns the journal's lines about it, and whether somebody waits. Requests and replies are written by others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pisub.record.layout import Layout
from pisub.record.supervisor import read_end, requests_of
from pisub.runs.supervision import SupervisorRequest

WriteLine = Callable[[str, dict[str, Any]], None]


class Contacts:
    """The requests of one run. Used by the shell's thread alone.

    Args:
        layout: The record.
        run_id: The run.
        write_line: Appends to the journal.
        on_waiting: Told when the first begins to wait for a reply, and when none does any more.
    """

    def __init__(
        self, layout: Layout, run_id: str, *, write_line: WriteLine, on_waiting: Callable[[bool], None]
    ) -> None:
        self._layout = layout
        self._run_id = run_id
        self._write_line = write_line
        self._on_waiting = on_waiting
        self._seen: set[str] = set()
        self._open: dict[str, SupervisorRequest] = {}

    def look(self) -> None:
        """Look at the files.

        Raises:
            OSError: They cannot be read.
            PisubError: One of them does not parse.
        """
        was_waiting = bool(self._open)
        for request in requests_of(self._layout, self._run_id, but=self._seen):
            self._seen.add(request.id)
            data = {"requestId": request.id, "reason": request.reason.value, "expectsReply": request.expects_reply}
            self._write_line("subagent.supervisor.requested", data)
            if request.expects_reply:
                self._open[request.id] = request
        for request in list(self._open.values()):
            end = read_end(self._layout, request)
            if end is not None:
                del self._open[request.id]
                self._write_line("subagent.supervisor.ended", {"requestId": request.id, "kind": end.kind.value})
        if bool(self._open) is not was_waiting:
            self._on_waiting(not was_waiting)
