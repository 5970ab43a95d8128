"""The child's asks, carried out: their files, the calls to the host, and the one result of each.

The rules are in ``asks``; this module reads and writes the files that they name, and sends the messages. It runs in the
shell's loop and hands the result to the child's own thread through its callback.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, assert_never

import msgspec

from pisub.clock import Clock
from pisub.errors import DeliveryError, InvalidArgumentError, PisubError
from pisub.ids import new_id
from pisub.process import ProcessIdentity
from pisub.protocol.checkpoint import HOST_ROLE, AskCancelled, AskRequest, AskResult, AskStatus
from pisub.protocol.session import FindRole, RoleHolder
from pisub.record.layout import Layout
from pisub.record.model import AskOutcome, AskRecord, OutcomeKind, QuestionOutcome
from pisub.record.questions import close_ask, open_ask, read_ask, record_outcome
from pisub.runs.spec import RunSpec

from . import asks
from .child_asks import ChildAsks
from .intake import AskPosted
from .link import Link

WriteLine = Callable[[str, dict[str, Any]], None]


class _Ask:
    """One open ask and what runs for it."""

    def __init__(self, posted: AskPosted, record: AskRecord, machine: asks.AskMachine) -> None:
        self.posted = posted
        self.record = record
        self.machine = machine
        self.call: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many questions."""
        return len(self.record.questions)


class AskService:
    """All asks of a run.

    Args:
        layout: The state root.
        spec: The run.
        link: The way to the host.
        process: The runner, for the record.
        clock: For the loop's time and the record's.
        write_line: Appends to the journal.
        on_waiting: Called with True when an ask begins, and with False when it has ended.
    """

    def __init__(
        self,
        layout: Layout,
        spec: RunSpec,
        link: Link,
        write_line: WriteLine,
        on_waiting: Callable[[bool], None],
        *,
        process: ProcessIdentity,
        clock: Clock,
    ) -> None:
        self._layout = layout
        self._spec = spec
        self._link = link
        self._process = process
        self._clock = clock
        self._write_line = write_line
        self._on_waiting = on_waiting
        self._open: dict[int, _Ask] = {}
        self._searches: set[asyncio.Task[None]] = set()
        self._children = ChildAsks(spec, self, lambda: link.bus)
        link.serve_children(self._children.serve)

    def post(self, posted: AskPosted) -> None:
        """Open an ask: file first, then the host."""
        now_ms = self._clock.wall_ms()
        spec = self._spec
        record = AskRecord(
            ask_id=new_id(at_ms=now_ms),
            run_id=spec.run_id,
            session_id=spec.session_id,
            agent=spec.agent.name,
            questions=posted.questions,
            asked_at=now_ms,
            asker=self._process,
            depth=spec.depth,
            root_run_id=spec.root_run_id or "",
            label=spec.label,
            why=posted.why,
            timeout_ms=_chosen(posted.times.timeout_ms, spec.ask_timeout_ms),
            question_timeout_ms=_chosen(posted.times.question_timeout_ms, spec.question_timeout_ms),
        )
        try:
            open_ask(self._layout, record)
        except (PisubError, OSError) as error:
            nothing = (None,) * len(posted.questions)
            reason = f"The question could not be written down: {error}"
            posted.callback(AskResult(status=AskStatus.ERROR, answers=nothing, reason=reason, ask_id=record.ask_id))
            return
        ask = _Ask(posted, record, asks.AskMachine(len(posted.questions), spec.on_no_host))
        self._open[posted.number] = ask
        self._on_waiting(True)
        self._write_line("subagent.ask.opened", {"askId": record.ask_id, "count": ask.count})
        self._feed(ask, asks.Opened())

    def withdraw(self, number: int, reason: str) -> None:
        """The child takes an ask back; one that has ended is no longer known."""
        if number in self._open:
            self._feed(self._open[number], asks.TakenBack(reason))

    def give_up(self, number: int) -> None:
        """The child wanted to wait no longer than until now; an ask that has ended is no longer known."""
        if number in self._open:
            self._feed(self._open[number], asks.WaitedEnough())

    def withdraw_all(self, reason: str) -> None:
        """Take every open ask back: the run is being ended."""
        self._children.refuse_more()
        self._feed_all(asks.TakenBack(reason))

    def look(self, ask_id: str = "") -> None:
        """Read the outcome files of one ask, or of all."""
        for ask in list(self._open.values()):
            if ask_id in ("", ask.record.ask_id):
                self._read(ask)

    def note_host(self) -> None:
        """A host took the role, or the connection came back."""
        self._feed_all(asks.HostAppeared())
        self.look()

    def note_lost(self) -> None:
        """The connection is gone."""
        self._feed_all(asks.BrokerLost())

    def tick(self, now: float) -> None:
        """Time passed."""
        due = self.next_deadline()
        if due is not None and now >= due:
            self._feed_all(asks.AskTick())

    def next_deadline(self) -> float | None:
        """Return when to call ``tick`` at the latest."""
        deadlines = (ask.machine.next_deadline() for ask in self._open.values())
        return min((at for at in deadlines if at is not None), default=None)

    def _feed_all(self, event: asks.AnyAskEvent) -> None:
        for ask in list(self._open.values()):
            self._feed(ask, event)

    def _feed(self, ask: _Ask, event: asks.AnyAskEvent) -> None:
        for effect in ask.machine.handle(event, self._clock.monotonic()):
            match effect:
                case asks.CallHost():
                    if ask.call is None:  # else the bus carries the open call over to the next broker
                        ask.call = asyncio.create_task(self._call(ask))
                case asks.FindHost():
                    search = asyncio.create_task(self._find(ask))
                    self._searches.add(search)
                    search.add_done_callback(self._searches.discard)
                case asks.ReadOutcomes():
                    self._read(ask)
                case asks.SaveAnswers(result):
                    self._save(ask, result)
                    self._read(ask)
                case asks.Finish():
                    self._finish(ask, effect)
                case _:
                    assert_never(effect)

    async def _call(self, ask: _Ask) -> None:
        event = await self._call_host(ask)
        ask.call = None
        self._feed(ask, event)

    async def _call_host(self, ask: _Ask) -> asks.AnyAskEvent:
        if self._link.bus is None:
            return asks.BrokerLost() if self._link.is_connecting else asks.HostUnreached()
        record = ask.record
        request = AskRequest(
            ask_id=record.ask_id,
            run_id=record.run_id,
            agent=record.agent,
            questions=record.questions,
            depth=record.depth,
            label=record.label,
            why=record.why,
            asked_at=record.asked_at,
            timeout_ms=record.timeout_ms,
            question_timeout_ms=record.question_timeout_ms,
        )
        try:
            result = await self._link.bus.call(
                f"role:{HOST_ROLE}", request, AskResult, timeout_s=None, scope=record.session_id, idempotent=True
            )
        except DeliveryError:
            return asks.HostUnreached()
        except PisubError as error:
            return asks.HostFailed(error.message)
        return asks.HostReplied(result)

    async def _find(self, ask: _Ask) -> None:
        bus = self._link.bus
        if bus is None:
            self._feed(ask, asks.RoleFound(is_held=False))
            return
        try:
            holder = await bus.control(FindRole(role=HOST_ROLE, scope=self._spec.session_id), RoleHolder)
        except PisubError:
            self._feed(ask, asks.BrokerLost())
            return
        ago = None if holder.vacated_ms_ago is None else holder.vacated_ms_ago / 1000
        self._feed(ask, asks.RoleFound(bool(holder.address), ago))

    def _read(self, ask: _Ask) -> None:
        try:
            view = read_ask(self._layout, ask.record.run_id, ask.record.ask_id)
        except (PisubError, OSError):
            return  # unreadable for now: the next look is seconds away
        self._feed(ask, asks.OutcomesRead(view.outcomes))

    def _save(self, ask: _Ask, result: AskResult) -> None:
        """Write the answers of a host that did not write them itself."""
        for number, answer in zip(range(1, ask.count + 1), result.answers, strict=False):
            if answer is not None:
                self._record(ask, number, OutcomeKind.ANSWERED, "", answer_from=result)

    def _finish(self, ask: _Ask, effect: asks.Finish) -> None:
        del self._open[ask.posted.number]
        if ask.call is not None and ask.call is not asyncio.current_task():
            ask.call.cancel()
        outcomes = {
            number: outcome
            for number in range(1, ask.count + 1)
            if (outcome := self._record(ask, number, effect.missing, effect.reason)) is not None
        }
        result = asks.compute_result(ask.record.ask_id, ask.count, outcomes, status=effect.status, reason=effect.reason)
        with contextlib.suppress(PisubError, OSError):  # the child gets its result; reconciling closes the file
            closing = AskOutcome(ask_id=ask.record.ask_id, result=result, at=self._clock.wall_ms())
            result = close_ask(self._layout, ask.record.run_id, closing).result
        if effect.must_tell_host and self._link.bus is not None:
            reason = "answered elsewhere" if result.is_ok else result.reason
            with contextlib.suppress(PisubError):
                message = AskCancelled(ask_id=ask.record.ask_id, reason=reason)
                self._link.bus.tell(f"role:{HOST_ROLE}", message, scope=ask.record.session_id)
        self._write_line("subagent.ask.closed", {"askId": ask.record.ask_id, "status": str(result.status)})
        self._on_waiting(False)
        ask.posted.callback(result)

    def _record(
        self, ask: _Ask, number: int, kind: OutcomeKind, reason: str, *, answer_from: AskResult | None = None
    ) -> QuestionOutcome | None:
        """Write one question's outcome unless it has one; return the one that it has."""
        outcome = QuestionOutcome(
            ask_id=ask.record.ask_id,
            number=number,
            kind=kind,
            answer=None if answer_from is None else answer_from.answers[number - 1],
            reason=reason,
            at=self._clock.wall_ms(),
        )
        try:
            return record_outcome(self._layout, ask.record.run_id, outcome)
        except InvalidArgumentError:
            return None  # the host's answer is none of the options: no answer
        except (PisubError, OSError):
            return outcome  # the disk refuses: the child still gets its result


def _chosen(wanted: int | msgspec.UnsetType | None, configured: int | None) -> int | None:
    return configured if isinstance(wanted, msgspec.UnsetType) else wanted
