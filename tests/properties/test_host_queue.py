"""The host's queue against any order of arrivals, answers, deaths, failures, other clients and time."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pisub.hosting import queue_events as ev
from pisub.hosting.queue import HostQueue
from pisub.protocol.checkpoint import Answer, AskStatus, Question
from pisub.record.model import OutcomeKind, QuestionOutcome


class HostQueueMachine(RuleBasedStateMachine):
    """A shell whose record, screen and humans do what Hypothesis likes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 50.0
        self.queue = HostQueue(self.now, queue_timeout_s=200.0)
        self.asks: dict[str, ev.Ask] = {}
        self.record: dict[tuple[str, int], QuestionOutcome] = {}
        self.writes: list[ev.RecordOutcome] = []
        self.on_screen: dict[int, ev.ShowDialog] = {}
        self.told_to_close: set[int] = set()
        self.abandoned: set[int] = set()
        self.ended: dict[str, ev.EndAsk] = {}
        self.begun: list[str] = []

    def feed(self, event: ev.Event) -> None:
        for effect in self.queue.handle(event, self.now):
            match effect:
                case ev.ShowDialog():
                    left = set(self.on_screen) - self.abandoned
                    assert not left, "a dialog opened while another was on the screen"
                    name = effect.context.ask_id
                    if self.begun and self.begun[-1] != name:
                        assert name not in self.begun, "a batch was interleaved"
                    if not self.begun or self.begun[-1] != name:
                        self.begun.append(name)
                    assert effect.question == self.asks[name].questions[effect.context.number - 1]
                    assert (name, effect.context.number) not in self.record or self.is_unseen(name, effect)
                    self.on_screen[effect.dialog] = effect
                case ev.CloseDialog():
                    assert effect.dialog in self.on_screen
                    self.told_to_close.add(effect.dialog)
                case ev.AbandonDialog():
                    self.abandoned.add(effect.dialog)
                case ev.RecordOutcome():
                    self.writes.append(effect)
                case ev.EndAsk():
                    assert effect.ask_id not in self.ended, "an ask ended twice"
                    self.ended[effect.ask_id] = effect
                    self.check_result(effect)
                case ev.RefuseAnswer():
                    assert effect.dialog not in self.on_screen or effect.dialog in self.told_to_close

    def is_unseen(self, name: str, effect: ev.ShowDialog) -> bool:
        # Another client wrote the answer and the nudge has not come: the dialog may still open.
        return self.record[name, effect.context.number].answer is None or (
            self.record[name, effect.context.number].answer.by == "cli"  # type: ignore[union-attr]  # checked before
        )

    def check_result(self, end: ev.EndAsk) -> None:
        count = len(self.asks[end.ask_id].questions)
        assert len(end.result.answers) == count
        for number, found in enumerate(end.result.answers, start=1):
            if found is not None:
                assert found.value == token(end.ask_id, number), "an answer reached another question"
                assert self.record[end.ask_id, number].answer == found, "an answer that is not on disk"
        assert (end.result.status is AskStatus.OK) == all(end.result.answers)

    @rule(
        run=st.sampled_from("pqr"),
        session=st.sampled_from("xy"),
        count=st.integers(1, 3),
        limit=st.sampled_from([None, 5.0, 30.0]),
        own=st.sampled_from([None, 4.0]),
    )
    def ask(self, run: str, session: str, count: int, limit: float | None, own: float | None) -> None:
        name = f"ask{len(self.asks)}"
        self.asks[name] = ev.Ask(
            ask_id=name,
            run_id=run,
            session_id=session,
            agent="a",
            questions=tuple(Question(f"{name}/{number}") for number in range(1, count + 1)),
            timeout_s=limit,
            question_timeout_s=own,
        )
        self.feed(ev.AskArrived(ask=self.asks[name]))

    @precondition(lambda self: self.queue.open_asks)
    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.queue.open_asks))
        known = tuple(each for (ask_id, _), each in self.record.items() if ask_id == name)
        self.feed(ev.AskArrived(ask=self.asks[name], outcomes=known))

    @precondition(lambda self: self.queue.open_asks)
    @rule(data=st.data())
    def asker_dies(self, data: st.DataObject) -> None:
        self.feed(ev.AskWithdrawn(ask_id=data.draw(st.sampled_from(self.queue.open_asks)), reason="gone"))

    @precondition(lambda self: self.on_screen)
    @rule(data=st.data(), how=st.sampled_from(["answer", "answer", "answer", "dismiss", "fail", "junk"]))
    def screen(self, data: st.DataObject, how: str) -> None:
        dialog = data.draw(st.sampled_from(sorted(self.on_screen)))
        shown = self.on_screen[dialog]
        value = token(shown.context.ask_id, shown.context.number)
        was_closing = dialog in self.told_to_close
        events: dict[str, ev.Event] = {
            "answer": ev.DialogAnswered(dialog=dialog, value=value),
            "dismiss": ev.DialogDismissed(dialog=dialog),
            "fail": ev.DialogFailed(dialog=dialog, message="boom"),
            "junk": ev.DialogAnswered(dialog=dialog, value=None),
        }
        del self.on_screen[dialog]
        before = len(self.writes)
        self.feed(events[how])
        if was_closing:
            assert all(write.kind is not OutcomeKind.ANSWERED for write in self.writes[before:])

    @precondition(lambda self: self.told_to_close & set(self.on_screen))
    @rule()
    def closes(self) -> None:
        for dialog in sorted(self.told_to_close & set(self.on_screen)):
            del self.on_screen[dialog]
            self.feed(ev.DialogClosed(dialog=dialog))

    @precondition(lambda self: self.writes)
    @rule(data=st.data(), fails=st.sampled_from([False, False, False, True]))
    def disk(self, data: st.DataObject, fails: bool) -> None:
        write = self.writes.pop(data.draw(st.integers(0, len(self.writes) - 1)))
        if fails:
            self.feed(ev.RecordFailed(ask_id=write.ask_id, number=write.number, message="full"))
            return
        self.record.setdefault(
            (write.ask_id, write.number), settled(write.ask_id, write.number, write.kind, write.value, "host")
        )
        self.feed(ev.OutcomeSettled(outcome=self.record[write.ask_id, write.number]))

    @precondition(lambda self: self.asks)
    @rule(data=st.data(), kind=st.sampled_from([OutcomeKind.ANSWERED, OutcomeKind.DECLINED]), is_told=st.booleans())
    def another_client(self, data: st.DataObject, kind: OutcomeKind, is_told: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.asks)))
        number = data.draw(st.integers(1, len(self.asks[name].questions)))
        value = token(name, number) if kind is OutcomeKind.ANSWERED else None
        self.record.setdefault((name, number), settled(name, number, kind, value, "cli"))
        if is_told:
            self.feed(ev.OutcomeSettled(outcome=self.record[name, number]))

    @rule(seconds=st.sampled_from([0.1, 0.6, 1.1, 3.0, 40.0]))
    def time(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.queue.next_deadline()) is not None and due <= end:
            assert due >= self.now
            self.now = due
            self.feed(ev.TimePassed())
        self.now = end

    @invariant()
    def every_open_ask_is_one_that_came_and_did_not_end(self) -> None:
        assert set(self.queue.open_asks) == set(self.asks) - set(self.ended)

    def teardown(self) -> None:
        """However it went, humans who dismiss everything and a disk that works end every ask."""
        for _ in range(20 * len(self.asks) + 20):
            if not self.queue.open_asks:
                break
            for dialog in sorted(self.on_screen):
                del self.on_screen[dialog]
                self.feed(ev.DialogDismissed(dialog=dialog))
            while self.writes:
                self.disk_works()
            self.now += 0.6
            self.feed(ev.TimePassed())
        assert self.queue.open_asks == ()
        assert set(self.ended) == set(self.asks)

    def disk_works(self) -> None:
        write = self.writes.pop(0)
        key = (write.ask_id, write.number)
        self.record.setdefault(key, settled(write.ask_id, write.number, write.kind, write.value, "host"))
        self.feed(ev.OutcomeSettled(outcome=self.record[key]))


def token(name: str, number: int) -> str:
    return f"token {name} {number}"


def settled(name: str, number: int, kind: OutcomeKind, value: str | None, by: str) -> QuestionOutcome:
    given = None if value is None else Answer(value=value, by=by, at=1)
    return QuestionOutcome(ask_id=name, number=number, kind=kind, answer=given, reason="", at=1)


HostQueueMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestHostQueue = HostQueueMachine.TestCase
