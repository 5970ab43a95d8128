"""The shell of the queue: runs its dialogs as tasks, its records in threads, its timer on the loop.

Decides nothing: every ``if`` about asks is in ``pisub.hosting.queue``.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Final, assert_never

from pisub.clock import Clock
from pisub.errors import OutcomeUnknownError, PisubError, QuestionClosedError, UnknownQuestionError
from pisub.hosting import queue_events as ev
from pisub.hosting.dialogs import Dialogs, show_waiting
from pisub.hosting.queue import HostQueue
from pisub.protocol.checkpoint import Answer, AskResult
from pisub.record.model import OutcomeKind, QuestionOutcome

#: Writes an outcome of a run's ask, create-once, and returns the one that the record holds then. Called in a thread.
WriteOutcome = Callable[[str, QuestionOutcome], QuestionOutcome]
#: Told of what went wrong outside of any call: a sentence, and the exception where there is one.
Report = Callable[[str, BaseException | None], None]
#: Told of each batch that needs a human: the batch, and how many are open.
CallHuman = Callable[[ev.Ask, int], None]
#: Ended asks that are remembered, with their results: what was read before the end may still be on its way.
_MAX_ENDED: Final = 1_024


class Desk:
    """Where asks are brought and answered. Use it on one loop; ``stop`` it.

    Args:
        dialogs: The face.
        write_outcome: The record.
        by: Who answers here, for the answers' provenance.
        clock: Time.
        on_unclaimed: Told of an ask that ended with no call waiting for it.
        report: See ``Report``.
        call_human: See ``CallHuman``; None calls nobody.
        queue: A queue with other times than the usual ones.
    """

    def __init__(
        self,
        dialogs: Dialogs,
        write_outcome: WriteOutcome,
        *,
        by: str,
        clock: Clock,
        on_unclaimed: Callable[[ev.EndAsk], None],
        report: Report,
        call_human: CallHuman | None = None,
        queue: HostQueue | None = None,
    ) -> None:
        self._dialogs = dialogs
        self._write_outcome = write_outcome
        self._by = by
        self._clock = clock
        self._on_unclaimed = on_unclaimed
        self._report = report
        self._call_human = call_human
        self._queue = queue or HostQueue(clock.monotonic())
        self._calls: dict[str, list[asyncio.Future[AskResult]]] = {}
        self._ended: dict[str, AskResult] = {}
        self._screen: dict[int, asyncio.Task[str | None]] = {}
        self._closing: set[int] = set()
        self._writes: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        #: Answers that came too late, or for no open dialog.
        self.refused = 0

    @property
    def open_asks(self) -> tuple[str, ...]:
        """The ids of the asks that have not ended."""
        return self._queue.open_asks

    async def ask(self, ask: ev.Ask, outcomes: tuple[QuestionOutcome, ...] = ()) -> AskResult:
        """Bring an ask and wait for its end. Cancelling the wait does not take the ask back: ``withdraw`` does.

        Raises:
            OutcomeUnknownError: The desk was stopped first. The ask is still open in the record.
        """
        ended = self._ended.get(ask.ask_id)
        if ended is not None:
            return ended
        future: asyncio.Future[AskResult] = asyncio.get_running_loop().create_future()
        self._calls.setdefault(ask.ask_id, []).append(future)
        self.feed(ev.AskArrived(ask=ask, outcomes=outcomes))
        return await future

    def feed(self, event: ev.Event) -> None:
        """Tell the queue what happened, and do what it wants.

        An ask that ended here is not shown again: whoever brings it read the record before the end.
        """
        if isinstance(event, ev.AskArrived) and event.ask.ask_id in self._ended:
            return
        for effect in self._queue.handle(event, self._clock.monotonic()):
            self._carry_out(effect)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._queue.next_deadline()
        if due is not None:
            delay = max(0.0, due - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self.feed, ev.TimePassed())

    async def stop(self, reason: str) -> None:
        """Close the dialog and let every waiting call go; the asks stay open in the record."""
        self.feed(ev.HostStopped(reason=reason))
        for futures in self._calls.values():
            for future in futures:
                if not future.done():
                    future.set_exception(OutcomeUnknownError(f"{reason} The question is still open."))
        self._calls.clear()
        left: set[asyncio.Task[Any]] = {*self._screen.values(), *self._writes}
        if left:
            await asyncio.wait(left, timeout=1.0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _carry_out(self, effect: ev.Effect) -> None:
        match effect:
            case ev.ShowDialog():
                self._show(effect)
            case ev.CloseDialog():
                self._closing.add(effect.dialog)
                self._screen[effect.dialog].cancel(effect.reason)
            case ev.AbandonDialog():
                self._report("A dialog did not close when it was told to; the queue went on without it.", None)
            case ev.RecordOutcome():
                task = asyncio.get_running_loop().create_task(self._write(effect))
                self._writes.add(task)
                task.add_done_callback(self._writes.discard)
            case ev.EndAsk():
                self._reply(effect)
            case ev.RefuseAnswer():
                self.refused += 1
            case ev.ShowWaiting():
                # Not from here: what a face raises must not reach whoever has brought a question.
                asyncio.get_running_loop().call_soon(show_waiting, self._dialogs, effect.waiting)
            case ev.CallHuman():
                if self._call_human is not None:
                    self._call_human(effect.ask, effect.open_asks)
            case _:
                assert_never(effect)

    def _show(self, effect: ev.ShowDialog) -> None:
        question, context = effect.question, effect.context
        if question.options:
            shown: Coroutine[Any, Any, str | None] = self._dialogs.select(
                question.text, tuple(question.options), context
            )
        else:
            shown = self._dialogs.input(question.text, question.placeholder, context)
        task = asyncio.get_running_loop().create_task(shown, name=f"pisub-dialog-{effect.dialog}")
        self._screen[effect.dialog] = task
        task.add_done_callback(functools.partial(self._dialog_over, effect.dialog))

    def _dialog_over(self, dialog: int, task: asyncio.Task[str | None]) -> None:
        del self._screen[dialog]
        was_closing = dialog in self._closing
        self._closing.discard(dialog)
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            self.feed(ev.DialogClosed(dialog=dialog))
        elif error is not None:
            if isinstance(error, PisubError):  # it says in a sentence what is wrong, so no traceback is needed
                self._report(f"A dialog failed: {error.message}", None)
            else:
                self._report("A dialog failed.", error)
            message = f"{type(error).__name__}: {error}"
            self.feed(
                ev.DialogClosed(dialog=dialog) if was_closing else ev.DialogFailed(dialog=dialog, message=message)
            )
        elif task.result() is None:
            self.feed(ev.DialogDismissed(dialog=dialog))
        else:
            self.feed(ev.DialogAnswered(dialog=dialog, value=task.result()))

    async def _write(self, effect: ev.RecordOutcome) -> None:
        at = self._clock.wall_ms()
        answer = None
        if effect.kind is OutcomeKind.ANSWERED and effect.value is not None:
            answer = Answer(value=effect.value, by=self._by, at=at)
        outcome = QuestionOutcome(
            ask_id=effect.ask_id,
            number=effect.number,
            kind=effect.kind,
            answer=answer,
            reason=effect.reason,
            at=at,
        )
        try:
            winner = await asyncio.to_thread(self._write_outcome, effect.run_id, outcome)
        except (QuestionClosedError, UnknownQuestionError) as error:
            self.feed(ev.AskWithdrawn(ask_id=effect.ask_id, reason=error.message))
        except (PisubError, OSError) as error:
            self._report("An answer could not be recorded.", error)
            self.feed(ev.RecordFailed(ask_id=effect.ask_id, number=effect.number, message=str(error)))
        else:
            self.feed(ev.OutcomeSettled(outcome=winner))

    def _reply(self, effect: ev.EndAsk) -> None:
        self._ended[effect.ask_id] = effect.result
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        futures = [each for each in self._calls.pop(effect.ask_id, []) if not each.done()]
        for future in futures:
            future.set_result(effect.result)
        if not futures:
            self._on_unclaimed(effect)
