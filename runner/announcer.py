"""What a run tells the session's views by message: that it began, and that its journal grew. Files have it all."""

from __future__ import annotations

from typing import Any

import msgspec

from pisub.process import ProcessIdentity
from pisub.protocol.delivery import Priority
from pisub.protocol.limits import MAX_BODY_BYTES
from pisub.protocol.runs import ASYNC_STARTED_TOPIC, AsyncStarted, RunProgress, progress_topic
from pisub.record.layout import RunPaths
from pisub.record.model import JournalEvent
from pisub.runs.spec import RunSpec

from .link import Link

#: An event with more data than this is read from the journal: a message must fit into a frame.
MAX_ANNOUNCED_BYTES = MAX_BODY_BYTES // 2


class Announcer:
    """One run's messages to whoever looks."""

    def __init__(
        self, link: Link, spec: RunSpec, paths: RunPaths, *, process: ProcessIdentity, started_at: int
    ) -> None:
        self._link = link
        self._spec = spec
        self._paths = paths
        self._process = process
        self._started_at = started_at
        self._has_begun = False

    def begin(self) -> None:
        """Say that the run began, once, with the first connection."""
        if self._has_begun:
            return
        self._has_begun = True
        self._link.publish(
            ASYNC_STARTED_TOPIC,
            AsyncStarted(
                run_id=self._spec.run_id,
                session_id=self._spec.session_id,
                agent=self._spec.agent.name,
                pid=self._process.pid,
                run_dir=str(self._paths.dir),
                started_at=self._started_at,
            ),
        )

    def progress(self, newest: JournalEvent) -> None:
        """Say that the journal grew up to this event. May be dropped."""
        event: dict[str, Any] = {"type": newest.type, "seq": newest.seq, "ts": newest.ts, "data": newest.data}
        if len(msgspec.msgpack.encode(newest.data)) > MAX_ANNOUNCED_BYTES:
            event = {}
        message = RunProgress(run_id=self._spec.run_id, seq=newest.seq, event=event)
        self._link.publish(progress_topic(self._spec.run_id), message, priority=Priority.DROPPABLE)
