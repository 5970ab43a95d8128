"""Messages to the child, carried out: taken from the inbox, handed to the engine, and every word about them written.

The rules are ``pisub.runs.steering``'s and the engine's. This module owns the files and the ledger of the status; it
runs in the shell's loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol

from pisub.clock import Clock
from pisub.engines.base import Steered, SteeringKnown
from pisub.process import ProcessIdentity
from pisub.protocol.limits import MAX_STEERING_SHOWN, STEER_PREVIEW_CHARS
from pisub.record.layout import RunPaths
from pisub.record.model import SteeringEntry, SteeringLedger
from pisub.record.steering import SteerAck, SteerCapability, SteerRequest, take_requests, write_ack, write_capability
from pisub.runs.preview import preview
from pisub.runs.steering import CLOSED, AckState, SteerMessage

WriteLine = Callable[[str, dict[str, Any]], None]
#: A plain run has one child.
_INDEX: Final = 0


class Steerable(Protocol):
    """The part of an engine that takes messages."""

    def steer(self, message: SteerMessage) -> None:
        """Hand the child a message."""
        ...

    def close_steering(self) -> None:
        """Take no more."""
        ...


class SteerService:
    """All messages of a run.

    Args:
        paths: The run's files.
        process: The runner, for the record.
        clock: For the record's moments.
        write_line: Appends to the journal.
        on_change: Called when the ledger has changed.
    """

    def __init__(
        self,
        paths: RunPaths,
        *,
        process: ProcessIdentity,
        clock: Clock,
        write_line: WriteLine,
        on_change: Callable[[], None],
    ) -> None:
        self._paths = paths
        self._process = process
        self._clock = clock
        self._write_line = write_line
        self._on_change = on_change
        self._unwritten: list[SteerAck | SteerCapability] = []
        self._recent: OrderedDict[str, SteeringEntry] = OrderedDict()
        self._totals: dict[AckState, int] = dict.fromkeys(AckState, 0)
        self._total = 0

    @property
    def ledger(self) -> SteeringLedger | None:
        """What the status says of the messages; None before the first."""
        if not self._total:
            return None
        return SteeringLedger(
            total=self._total,
            delivered=self._totals[AckState.DELIVERED],
            queued=self._totals[AckState.QUEUED],
            failed=self._totals[AckState.FAILED],
            recent=tuple(self._recent.values()),
        )

    def look(self, engine: Steerable, *, is_ending: bool) -> None:
        """Take what is in the inbox, and hand it to the child.

        Args:
            engine: Its engine.
            is_ending: The run's end was asked for: nothing is handed on any more.

        Raises:
            OSError: The inbox cannot be read: look again later.
        """
        for request in take_requests(self._paths):
            self._note_request(request)
            targets = request.target_indexes or (request.target_index or _INDEX,)
            for index in targets:
                if index != _INDEX:
                    text = f"The run has no child {index}: it has one, with index {_INDEX}."
                    self.note(Steered(request.id, AckState.FAILED, text), index=index)
            if _INDEX not in targets:
                continue
            if is_ending:
                self.note(Steered(request.id, AckState.FAILED, CLOSED))
                continue
            message = SteerMessage(
                id=request.id, text=request.message, mode=request.mode, source=request.source, sent_at=request.ts
            )
            engine.steer(message)

    def note(self, event: Steered | SteeringKnown, *, index: int = _INDEX) -> None:
        """Take a word of the child's; it is on disk after ``flush``."""
        now_ms = self._clock.wall_ms()
        if isinstance(event, SteeringKnown):
            capability = SteerCapability(pid=self._process.pid, ready_at=now_ms, supported=event.is_supported)
            self._unwritten.append(capability)
            return
        ack = SteerAck(request_id=event.request_id, index=index, ts=now_ms, state=event.state, message=event.text)
        self._unwritten.append(ack)
        entry = self._recent.get(event.request_id)
        if entry is not None:
            reason = event.text if event.state is AckState.FAILED else None
            self._recent[event.request_id] = SteeringEntry(
                id=entry.id,
                ts=entry.ts,
                mode=entry.mode,
                state=event.state.value,
                source=entry.source,
                preview=entry.preview,
                reason=reason,
            )
        self._totals[event.state] += 1
        data = {"requestId": event.request_id, "index": index}
        if event.state is AckState.FAILED:
            data["reason"] = event.text
        self._write_line(f"subagent.steer.{event.state.value}", data)
        self._on_change()

    def flush(self) -> None:
        """Write down what was said.

        Raises:
            OSError: The disk refuses. Nothing is lost: flush again.
        """
        while self._unwritten:
            word = self._unwritten[0]
            if isinstance(word, SteerAck):
                write_ack(self._paths, word)
            else:
                write_capability(self._paths, word)
            self._unwritten.pop(0)

    def _note_request(self, request: SteerRequest) -> None:
        shown = preview(request.message, width=STEER_PREVIEW_CHARS)
        self._total += 1
        self._recent[request.id] = SteeringEntry(
            id=request.id,
            ts=request.ts,
            mode=request.mode.value,
            state="routed",
            source=request.source,
            preview=shown,
        )
        while len(self._recent) > MAX_STEERING_SHOWN:
            self._recent.popitem(last=False)
        data = {"requestId": request.id, "mode": request.mode.value, "source": request.source, "preview": shown}
        self._write_line("subagent.steer.requested", data)
        self._on_change()
