"""The host's queue of questions as a pure machine: one dialog at a time, batches whole, every ask one end.

Owns the order, the clocks of dialogs and calls, and the status of an ask. Knows no socket, file, task or terminal: it
is told what happened (``pisub.hosting.queue_events``) and says what to do. Time is an argument.

Time is counted as work: a gap between two events in which the whole process stood still counts at most two seconds, so
a suspended machine closes no dialog. The shell calls ``handle(TimePassed(), now)`` when ``next_deadline`` is reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, assert_never

from pisub.clock import WorkClock
from pisub.hosting import queue_events as ev
from pisub.hosting.dialogs import DialogContext
from pisub.hosting.rotation import Rotation
from pisub.protocol.checkpoint import AskResult, AskStatus
from pisub.protocol.limits import MAX_ANSWER_CHARS
from pisub.record.model import OutcomeKind, QuestionOutcome

#: After a dialog was closed under the human's hands, nothing is shown for this long: a key that was meant for it must
#: not answer the next. Half a second is more than a person needs to see the change and stop typing.
SWAP_GRACE_S: Final = 0.5
#: A dialog that was told to close and has not is left behind after this long (field-faults: within a second).
CLOSE_BOUND_S: Final = 1.0
#: While a deadline is ahead the clock is looked at this often, to tell work from suspension (WorkClock.MAX_TICK_S).
TICK_S: Final = 1.0
#: A deadline is at least this far ahead: what rounding left of a time must not become a wait of nothing, for ever.
_MIN_WAIT_S: Final = 0.001

_STATUS_OF: Final[Mapping[OutcomeKind, AskStatus]] = {
    OutcomeKind.DECLINED: AskStatus.TIMEOUT_OR_CANCELLED,
    OutcomeKind.EXPIRED: AskStatus.TIMEOUT_OR_CANCELLED,
    OutcomeKind.CANCELLED: AskStatus.CANCELLED,
    OutcomeKind.FAILED: AskStatus.ERROR,
}
_ELSEWHERE: Final[Mapping[OutcomeKind, str]] = {
    OutcomeKind.ANSWERED: "answered elsewhere",
    OutcomeKind.DECLINED: "declined elsewhere",
    OutcomeKind.EXPIRED: "expired",
    OutcomeKind.CANCELLED: "taken back",
    OutcomeKind.FAILED: "failed elsewhere",
}


class _OpenAsk:
    """An ask between its arrival and its end."""

    def __init__(self, ask: ev.Ask, arrived_at: float) -> None:
        self.ask = ask
        self.run_id = ask.run_id
        self.tree_id = ask.root_run_id or ask.run_id
        self.session_id = ask.session_id
        self.arrived_at = arrived_at
        self.outcomes: dict[int, QuestionOutcome] = {}
        #: Questions whose outcome is being written.
        self.recording: set[int] = set()
        #: Status and reason of an ask that ends without all its answers.
        self.ending: tuple[AskStatus, str] | None = None
        #: When the call's time is over; None before its first dialog, and where it has no limit.
        self.due: float | None = None
        self.was_shown = False

    def open_numbers(self) -> list[int]:
        """Return the questions without an outcome, none on its way either."""
        numbers = range(1, len(self.ask.questions) + 1)
        return [number for number in numbers if number not in self.outcomes and number not in self.recording]

    @property
    def is_settled(self) -> bool:
        return len(self.outcomes) == len(self.ask.questions)

    def result(self) -> AskResult:
        found = [self.outcomes.get(number + 1) for number in range(len(self.ask.questions))]
        answers = tuple(None if outcome is None else outcome.answer for outcome in found)
        status, reason = (AskStatus.OK, "") if all(answers) else self.ending or (AskStatus.ERROR, "not answered")
        return AskResult(status=status, answers=answers, reason=reason, ask_id=self.ask.ask_id)


class _Shown:
    """The one dialog on the screen."""

    def __init__(self, dialog: int, item: _OpenAsk, number: int, due: float | None) -> None:
        self.dialog = dialog
        self.item = item
        self.number = number
        self.due = due
        #: How many batches it was told to wait behind it.
        self.waiting = 0


class HostQueue:
    """The queue of one host.

    Args:
        now: Monotonic time, in seconds, at which it begins.
        swap_grace_s: See ``SWAP_GRACE_S``.
        close_bound_s: See ``CLOSE_BOUND_S``.
        queue_timeout_s: How long a batch may wait for its first dialog, after which it ends as ``timeout``; None is no
            limit.
    """

    def __init__(
        self,
        now: float,
        *,
        swap_grace_s: float = SWAP_GRACE_S,
        close_bound_s: float = CLOSE_BOUND_S,
        queue_timeout_s: float | None = None,
    ) -> None:
        self._clock = WorkClock(now)
        self._now = now
        self._swap_grace_s = swap_grace_s
        self._close_bound_s = close_bound_s
        self._queue_timeout_s = queue_timeout_s
        self._asks: dict[str, _OpenAsk] = {}
        self._waiting: Rotation[_OpenAsk] = Rotation()
        self._active: _OpenAsk | None = None
        self._shown: _Shown | None = None
        #: A dialog on its way off the screen, and when it is left behind.
        self._closing: tuple[int, float] | None = None
        self._not_before = 0.0
        self._last_dialog = 0
        self._effects: list[ev.Effect] = []

    @property
    def open_asks(self) -> tuple[str, ...]:
        """The ids of the asks that have not ended, in the order of their arrival."""
        return tuple(self._asks)

    def handle(self, event: ev.Event, now: float) -> list[ev.Effect]:
        """Take one event and return what is to be done, in order. ``now`` is monotonic, in seconds."""
        self._clock.tick(now)
        self._now = now
        self._effects = []
        self._apply(event)
        self._expire()
        self._show_next()
        shown = self._shown
        if shown is not None and shown.waiting != len(self._waiting):
            shown.waiting = len(self._waiting)
            self._effects.append(ev.ShowWaiting(waiting=shown.waiting))
        return self._effects

    def next_deadline(self) -> float | None:
        """Return the monotonic time at which ``TimePassed`` is due; None while nothing depends on time."""
        dues = [self._not_before] if self._not_before > self._time and (self._active or len(self._waiting)) else []
        if self._closing is not None:
            dues.append(self._closing[1])
        if self._shown is not None and self._shown.due is not None:
            dues.append(self._shown.due)
        if self._queue_timeout_s is not None:
            dues.extend(i.arrived_at + self._queue_timeout_s for i in self._asks.values() if self._is_overdue_able(i))
        return self._now + min(max(min(dues) - self._time, _MIN_WAIT_S), TICK_S) if dues else None

    @property
    def _time(self) -> float:
        return self._clock.worked_s

    def _apply(self, event: ev.Event) -> None:
        match event:
            case ev.AskArrived():
                self._arrive(event)
            case ev.AskWithdrawn():
                self._withdraw(event)
            case ev.OutcomeSettled():
                item = self._asks.get(event.outcome.ask_id)
                if item is not None:
                    self._settle(item, (event.outcome,))
            case ev.RecordFailed():
                self._fail_record(event)
            case ev.DialogAnswered():
                self._answer(event)
            case ev.DialogDismissed():
                self._leave_dialog(event.dialog, OutcomeKind.DECLINED, "The human dismissed the question.")
            case ev.DialogFailed():
                self._leave_dialog(event.dialog, OutcomeKind.FAILED, f"The host's dialog failed: {event.message}")
            case ev.DialogClosed():
                self._leave_dialog(event.dialog, OutcomeKind.FAILED, "The host's dialog ended without an answer.")
            case ev.TimePassed():
                pass
            case ev.HostStopped():
                self._stop(event.reason)
            case _:
                assert_never(event)

    # Asks. -------------------------------------------------------------------------------------------------------

    def _arrive(self, event: ev.AskArrived) -> None:
        item = self._asks.get(event.ask.ask_id)
        if item is None:
            item = self._asks[event.ask.ask_id] = _OpenAsk(event.ask, self._time)
            self._waiting.add(item)
            self._settle(item, event.outcomes)
            if event.ask.ask_id in self._asks and item.ending is None:
                self._effects.append(ev.CallHuman(ask=event.ask, open_asks=len(self._asks)))
        else:
            self._settle(item, event.outcomes)

    def _withdraw(self, event: ev.AskWithdrawn) -> None:
        item = self._asks.get(event.ask_id)
        if item is not None:
            item.ending = (AskStatus.CANCELLED, event.reason)
            self._end(item, event.reason)

    def _settle(self, item: _OpenAsk, outcomes: Sequence[QuestionOutcome]) -> None:
        for outcome in outcomes:
            if 1 <= outcome.number <= len(item.ask.questions):
                item.recording.discard(outcome.number)
                item.outcomes.setdefault(outcome.number, outcome)
        shown = self._shown
        if shown is not None and shown.item is item and shown.number in item.outcomes:
            self._close(_ELSEWHERE[item.outcomes[shown.number].kind])
        if item.ending is None:
            lost = next((each for each in item.outcomes.values() if each.kind is not OutcomeKind.ANSWERED), None)
            if lost is not None:
                self._give_up(item, _STATUS_OF[lost.kind], lost.reason or _ELSEWHERE[lost.kind])
        if item.is_settled:
            self._end(item, "answered elsewhere")

    def _fail_record(self, event: ev.RecordFailed) -> None:
        item = self._asks.get(event.ask_id)
        if item is not None and event.number in item.recording:
            item.ending = (AskStatus.ERROR, f"The answer could not be recorded: {event.message}")
            self._end(item, "the record cannot be written")

    def _record(self, item: _OpenAsk, number: int, kind: OutcomeKind, reason: str, value: str | None = None) -> None:
        item.recording.add(number)
        self._effects.append(
            ev.RecordOutcome(
                ask_id=item.ask.ask_id, run_id=item.run_id, number=number, kind=kind, value=value, reason=reason
            )
        )

    def _give_up(self, item: _OpenAsk, status: AskStatus, reason: str) -> None:
        """Show no more of this batch; it ends when the record has an outcome for every question."""
        item.ending = (status, reason)
        self._vacate(item, reason)
        for number in item.open_numbers():
            self._record(item, number, OutcomeKind.CANCELLED, "An earlier question of the batch got no answer.")

    def _end(self, item: _OpenAsk, reason: str) -> None:
        self._vacate(item, reason)
        del self._asks[item.ask.ask_id]
        self._effects.append(ev.EndAsk(ask_id=item.ask.ask_id, run_id=item.run_id, result=item.result()))

    def _vacate(self, item: _OpenAsk, reason: str) -> None:
        if self._shown is not None and self._shown.item is item:
            self._close(reason)
        if self._active is item:
            self._active = None
        else:
            self._waiting.discard(item)

    def _stop(self, reason: str) -> None:
        if self._shown is not None:
            self._close(reason)
        self._asks.clear()
        self._waiting.clear()
        self._active = None

    # Dialogs. ----------------------------------------------------------------------------------------------------

    def _answer(self, event: ev.DialogAnswered) -> None:
        shown = self._take_dialog(event.dialog, is_answer=True)
        if shown is None:
            return
        question = shown.item.ask.questions[shown.number - 1]
        problem = _problem_of(event.value, question.options)
        if isinstance(event.value, str) and not problem:
            self._record(shown.item, shown.number, OutcomeKind.ANSWERED, "", event.value)
        else:
            self._conclude(shown, OutcomeKind.FAILED, f"The host's dialog failed: {problem}")

    def _leave_dialog(self, dialog: int, kind: OutcomeKind, reason: str) -> None:
        shown = self._take_dialog(dialog, is_answer=False)
        if shown is not None:
            self._conclude(shown, kind, reason)

    def _conclude(self, shown: _Shown, kind: OutcomeKind, reason: str, status: AskStatus | None = None) -> None:
        self._record(shown.item, shown.number, kind, reason)
        self._give_up(shown.item, status or _STATUS_OF[kind], reason)

    def _take_dialog(self, dialog: int, *, is_answer: bool) -> _Shown | None:
        """Account for a dialog that has left the screen; return it if it was the one that is open."""
        if self._shown is not None and self._shown.dialog == dialog:
            shown, self._shown = self._shown, None
            return shown
        if self._closing is not None and self._closing[0] == dialog:
            self._closing = None
            self._not_before = self._time + self._swap_grace_s
        if is_answer:
            self._effects.append(ev.RefuseAnswer(dialog=dialog, reason="The question was closed before this answer."))
        return None

    def _close(self, reason: str) -> None:
        if self._shown is not None:
            self._effects.append(ev.CloseDialog(dialog=self._shown.dialog, reason=reason))
            self._closing = (self._shown.dialog, self._time + self._close_bound_s)
            self._shown = None
            self._not_before = self._time + self._swap_grace_s

    def _show_next(self) -> None:
        while self._shown is None and self._closing is None and self._time >= self._not_before:
            if self._active is None:
                if not len(self._waiting):
                    return
                self._active = self._waiting.take()
            item = self._active
            if item.recording:  # the next dialog of a batch opens when the answer before it is safe
                return
            if not item.was_shown and item.ask.timeout_s is not None:
                item.due = self._time + item.ask.timeout_s
            item.was_shown = True
            number = item.open_numbers()[0]
            if item.due is not None and self._time >= item.due:
                self._conclude(_Shown(0, item, number, None), OutcomeKind.EXPIRED, _CALL_OVER, AskStatus.TIMEOUT)
                continue
            self._show(item, number)

    def _show(self, item: _OpenAsk, number: int) -> None:
        ask = item.ask
        own_due = None if ask.question_timeout_s is None else self._time + ask.question_timeout_s
        dues = [due for due in (own_due, item.due) if due is not None]
        due = min(dues) if dues else None
        self._last_dialog += 1
        self._shown = _Shown(self._last_dialog, item, number, due)
        self._shown.waiting = len(self._waiting)
        context = DialogContext(
            ask_id=ask.ask_id,
            run_id=ask.run_id,
            agent=ask.agent,
            label=ask.label,
            depth=ask.depth,
            why=ask.why,
            number=number,
            count=len(ask.questions),
            waiting=len(self._waiting),
            remaining_s=None if due is None else due - self._time,
            session_id=ask.session_id,
            asked_at=ask.asked_at,
        )
        question = ask.questions[number - 1]
        self._effects.append(ev.ShowDialog(dialog=self._last_dialog, question=question, context=context))

    # Time. -------------------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        shown = self._shown
        if shown is not None and shown.due is not None and self._time >= shown.due:
            is_call_over = shown.item.due is not None and self._time >= shown.item.due
            self._close("time is up")
            if is_call_over:
                self._conclude(shown, OutcomeKind.EXPIRED, _CALL_OVER, AskStatus.TIMEOUT)
            else:
                self._conclude(shown, OutcomeKind.EXPIRED, "Nobody answered within the question's time.")
        if self._closing is not None and self._time >= self._closing[1]:
            self._effects.append(ev.AbandonDialog(dialog=self._closing[0]))
            self._closing = None
        if self._queue_timeout_s is not None:
            for item in [each for each in self._asks.values() if self._is_overdue_able(each)]:
                if self._time >= item.arrived_at + self._queue_timeout_s:
                    number = item.open_numbers()[0]
                    self._conclude(_Shown(0, item, number, None), OutcomeKind.EXPIRED, _QUEUE_OVER, AskStatus.TIMEOUT)

    def _is_overdue_able(self, item: _OpenAsk) -> bool:
        return item is not self._active and item.ending is None and not item.was_shown


_CALL_OVER: Final = "The time of the whole call is over."
_QUEUE_OVER: Final = "The batch waited too long for its turn."


def _problem_of(value: object, options: Sequence[str]) -> str:
    """Say what is wrong with a dialog's value, or ''."""
    if not isinstance(value, str):
        return f"it returned {type(value).__name__}, not a text."
    if options and value not in options:
        return "it returned a text that is none of the options."
    if len(value) > MAX_ANSWER_CHARS:
        return f"its answer has {len(value)} characters, more than {MAX_ANSWER_CHARS}."
    if any("\ud800" <= character <= "\udfff" for character in value):
        return "its answer holds half of a surrogate pair, which is no text."
    return ""
