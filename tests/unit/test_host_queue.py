"""The host's queue, told as transcripts: what happens, and what it wants done."""

from __future__ import annotations

import pytest

from pisub.hosting import queue_events as ev
from pisub.hosting.dialogs import DialogContext
from pisub.hosting.queue import HostQueue
from pisub.protocol.checkpoint import Answer, AskResult, AskStatus, Question
from pisub.record.model import OutcomeKind, QuestionOutcome

START = 1_000.0


def ask(name: str, *texts: str, run: str = "", session: str = "s", **fields: object) -> ev.Ask:
    questions = tuple(Question(text) for text in texts or ("Why?",))
    return ev.Ask(ask_id=name, run_id=run or name, session_id=session, agent="scout", questions=questions, **fields)  # type: ignore[arg-type]  # **fields


def answer(value: str) -> Answer:
    return Answer(value=value, by="host", at=7)


def outcome(name: str, number: int, value: str | None, kind: OutcomeKind = OutcomeKind.ANSWERED) -> QuestionOutcome:
    return QuestionOutcome(
        ask_id=name, number=number, kind=kind, answer=None if value is None else answer(value), reason="", at=7
    )


class Table:
    """Drives a queue as a shell does, with a record that is a dict and a screen that is a list."""

    def __init__(self, **options: float) -> None:
        self.queue = HostQueue(START, **options)
        self.now = START
        self.record: dict[tuple[str, int], QuestionOutcome] = {}
        self.is_recording = True

    def happens(self, event: ev.Event) -> list[ev.Effect]:
        """Feed an event and everything that follows from it; return what the queue wanted, in order."""
        wanted = self.queue.handle(event, self.now)
        for effect in list(wanted):
            if isinstance(effect, ev.RecordOutcome) and self.is_recording:
                key = (effect.ask_id, effect.number)
                self.record.setdefault(key, outcome(effect.ask_id, effect.number, effect.value, effect.kind))
                wanted += self.happens(ev.OutcomeSettled(outcome=self.record[key]))
        return wanted

    def arrives(self, *asks: ev.Ask) -> list[ev.Effect]:
        return [effect for each in asks for effect in self.happens(ev.AskArrived(ask=each))]

    def passes(self, seconds: float) -> list[ev.Effect]:
        """Let time pass, waking the queue whenever it wants to be woken."""
        end, wanted = self.now + seconds, list[ev.Effect]()
        while (due := self.queue.next_deadline()) is not None and due <= end:
            self.now = due
            wanted += self.happens(ev.TimePassed())
        self.now = end
        return wanted + self.happens(ev.TimePassed())


def shows(effects: list[ev.Effect]) -> list[tuple[int, str]]:
    return [(each.dialog, each.question.text) for each in effects if isinstance(each, ev.ShowDialog)]


def closes(effects: list[ev.Effect]) -> list[tuple[int, str]]:
    return [(each.dialog, each.reason) for each in effects if isinstance(each, ev.CloseDialog)]


def ends(effects: list[ev.Effect]) -> list[tuple[str, str, tuple[str | None, ...]]]:
    return [
        (each.ask_id, each.result.status.value, each.result.values) for each in effects if isinstance(each, ev.EndAsk)
    ]


def test_a_batch_is_asked_in_order_and_ends_ok() -> None:
    table = Table()
    assert shows(table.arrives(ask("a", "One?", "Two?"))) == [(1, "One?")]
    assert table.happens(ev.DialogAnswered(dialog=1, value="1")) == [
        ev.RecordOutcome(ask_id="a", run_id="a", number=1, kind=OutcomeKind.ANSWERED, value="1"),
        ev.ShowDialog(
            dialog=2,
            question=Question("Two?"),
            context=DialogContext(ask_id="a", run_id="a", agent="scout", number=2, count=2, session_id="s"),
        ),
    ]
    assert table.happens(ev.DialogAnswered(dialog=2, value="2")) == [
        ev.RecordOutcome(ask_id="a", run_id="a", number=2, kind=OutcomeKind.ANSWERED, value="2"),
        ev.EndAsk(
            ask_id="a",
            run_id="a",
            result=AskResult(status=AskStatus.OK, answers=(answer("1"), answer("2")), ask_id="a"),
        ),
    ]
    assert table.queue.next_deadline() is None


def test_a_dialog_says_who_asks_and_how_many_wait() -> None:
    table = Table()
    table.arrives(ask("a"), ask("b", label="left", depth=2, why="to know", asked_at=9, timeout_s=60.0), ask("c"))
    (shown,) = [e for e in table.happens(ev.DialogAnswered(dialog=1, value="x")) if isinstance(e, ev.ShowDialog)]
    assert shown.context == DialogContext(
        ask_id="b",
        run_id="b",
        agent="scout",
        label="left",
        depth=2,
        why="to know",
        waiting=1,
        remaining_s=60.0,
        session_id="s",
        asked_at=9,
    )


def test_an_answer_is_given_only_when_it_is_on_disk() -> None:
    table = Table()
    table.is_recording = False
    table.arrives(ask("a"))
    assert ends(table.happens(ev.DialogAnswered(dialog=1, value="x"))) == []
    assert ends(table.happens(ev.RecordFailed(ask_id="a", number=1, message="disk full"))) == [("a", "error", (None,))]


def test_batches_are_whole_and_one_dialog_is_open_at_a_time() -> None:
    table = Table()
    seen = shows(table.arrives(ask("a", "a1", "a2"), ask("b", "b1", "b2"), ask("c", "c1")))
    for dialog in range(1, 6):
        seen += shows(table.happens(ev.DialogAnswered(dialog=dialog, value="x")))
    assert seen == [(1, "a1"), (2, "a2"), (3, "b1"), (4, "b2"), (5, "c1")]


def test_a_run_that_asks_much_delays_only_itself() -> None:
    table = Table()
    seen = shows(table.arrives(*(ask(f"a{n}", f"a{n}", run="a") for n in range(4)), ask("b", "b", run="b")))
    seen += shows(table.arrives(ask("c", "c", run="c", session="other")))
    for dialog in range(1, 7):
        seen += shows(table.happens(ev.DialogAnswered(dialog=dialog, value="x")))
    assert [text for _, text in seen] == ["a0", "a1", "c", "b", "a2", "a3"]


@pytest.mark.parametrize(
    ("event", "status", "kind"),
    [
        (ev.DialogDismissed(dialog=1), "timeout-or-cancelled", OutcomeKind.DECLINED),
        (ev.DialogFailed(dialog=1, message="boom"), "error", OutcomeKind.FAILED),
        (ev.DialogClosed(dialog=1), "error", OutcomeKind.FAILED),
        (ev.DialogAnswered(dialog=1, value=3), "error", OutcomeKind.FAILED),
        (ev.DialogAnswered(dialog=1, value="x" * 32_001), "error", OutcomeKind.FAILED),
        (ev.DialogAnswered(dialog=1, value="\ud800"), "error", OutcomeKind.FAILED),
    ],
)
def test_a_question_without_an_answer_ends_its_batch_and_the_queue_goes_on(
    event: ev.Event, status: str, kind: OutcomeKind
) -> None:
    table = Table()
    table.arrives(ask("a", "a1", "a2", "a3"), ask("b", "b1"))
    wanted = table.happens(event)
    assert ends(wanted) == [("a", status, (None, None, None))]
    assert shows(wanted) == [(2, "b1")]
    assert [table.record["a", number].kind for number in (1, 2, 3)] == [
        kind,
        OutcomeKind.CANCELLED,
        OutcomeKind.CANCELLED,
    ]


def test_a_choice_that_was_not_offered_is_an_error_not_an_answer() -> None:
    table = Table()
    table.arrives(ev.Ask(ask_id="a", run_id="a", session_id="s", agent="x", questions=(Question("?", ("l", "r")),)))
    assert ends(table.happens(ev.DialogAnswered(dialog=1, value="up"))) == [("a", "error", (None,))]


def test_answers_so_far_are_kept_when_a_later_question_is_dismissed() -> None:
    table = Table()
    table.arrives(ask("a", "a1", "a2"))
    table.happens(ev.DialogAnswered(dialog=1, value="one"))
    assert ends(table.happens(ev.DialogDismissed(dialog=2))) == [("a", "timeout-or-cancelled", ("one", None))]


def test_a_dialogs_clock_starts_when_it_is_shown() -> None:
    table = Table()
    table.arrives(ask("a"), ask("b", "b1", question_timeout_s=10.0))
    assert table.passes(1_000.0) == []
    assert shows(table.happens(ev.DialogAnswered(dialog=1, value="x"))) == [(2, "b1")]
    assert table.passes(9.9) == []
    wanted = table.passes(0.2)
    assert closes(wanted) == [(2, "time is up")]
    assert ends(wanted) == [("b", "timeout-or-cancelled", (None,))]


def test_the_calls_clock_runs_from_its_first_dialog_over_all_of_them() -> None:
    table = Table()
    table.arrives(ask("a", "a1", "a2", timeout_s=10.0, question_timeout_s=8.0))
    table.passes(6.0)
    (shown,) = [e for e in table.happens(ev.DialogAnswered(dialog=1, value="x")) if isinstance(e, ev.ShowDialog)]
    assert shown.context.remaining_s == pytest.approx(4.0)
    assert ends(table.passes(4.1)) == [("a", "timeout", ("x", None))]


def test_without_limits_nothing_expires() -> None:
    table = Table()
    table.arrives(ask("a"))
    assert table.queue.next_deadline() is None
    assert table.passes(1e6) == []


def test_a_suspended_machine_closes_no_dialog() -> None:
    table = Table()
    table.arrives(ask("a", question_timeout_s=10.0))
    table.now += 3_600.0
    assert table.happens(ev.TimePassed()) == []
    assert ends(table.passes(8.1)) == [("a", "timeout-or-cancelled", (None,))]


def test_waiting_in_the_queue_has_its_own_bound() -> None:
    table = Table(queue_timeout_s=5.0)
    table.arrives(ask("a"), ask("b", "b1", "b2"))
    assert ends(table.passes(5.1)) == [("b", "timeout", (None, None))]
    assert table.queue.open_asks == ("a",)


def test_after_a_dialog_was_closed_nothing_is_shown_for_the_grace() -> None:
    table = Table()
    table.arrives(ask("a"), ask("b", "b1"))
    assert closes(table.happens(ev.AskWithdrawn(ask_id="a", reason="the asker is gone"))) == [(1, "the asker is gone")]
    assert table.happens(ev.DialogClosed(dialog=1)) == []
    assert shows(table.passes(0.4)) == []
    assert shows(table.passes(0.2)) == [(2, "b1")]


def test_a_key_for_a_closed_question_never_answers_the_next() -> None:
    table = Table()
    table.arrives(ask("a"), ask("b", "b1"))
    table.happens(ev.AskWithdrawn(ask_id="a", reason="stopped"))
    refusal = ev.RefuseAnswer(dialog=1, reason="The question was closed before this answer.")
    assert table.happens(ev.DialogAnswered(dialog=1, value="yes")) == [refusal]
    assert shows(table.passes(0.6)) == [(2, "b1")]
    assert table.happens(ev.DialogAnswered(dialog=1, value="yes")) == [refusal]
    assert table.happens(ev.DialogAnswered(dialog=99, value="yes")) == [
        ev.RefuseAnswer(dialog=99, reason=refusal.reason)
    ]
    assert ends(table.happens(ev.DialogAnswered(dialog=2, value="no"))) == [("b", "ok", ("no",))]


def test_no_dialog_opens_while_another_is_still_closing_and_a_stuck_one_is_left_behind() -> None:
    table = Table()
    table.arrives(ask("a"), ask("b", "b1"))
    table.happens(ev.AskWithdrawn(ask_id="a", reason="stopped"))
    assert table.passes(0.9) == []
    wanted = table.passes(0.2)
    assert wanted[0] == ev.AbandonDialog(dialog=1)
    assert shows(wanted) == [(2, "b1")]


def test_an_asker_that_is_gone_gives_its_place_up_and_nothing_is_recorded_for_it() -> None:
    table = Table()
    table.arrives(ask("a"), ask("b"))
    assert ends(table.happens(ev.AskWithdrawn(ask_id="b", reason="gone"))) == [("b", "cancelled", (None,))]
    assert ends(table.happens(ev.AskWithdrawn(ask_id="a", reason="gone"))) == [("a", "cancelled", (None,))]
    assert table.record == {}
    assert table.happens(ev.AskWithdrawn(ask_id="a", reason="gone")) == []


def test_an_answer_from_elsewhere_closes_the_dialog_and_counts() -> None:
    table = Table()
    table.arrives(ask("a", "a1", "a2"))
    wanted = table.happens(ev.OutcomeSettled(outcome=outcome("a", 1, "cli")))
    assert closes(wanted) == [(1, "answered elsewhere")]
    table.happens(ev.DialogClosed(dialog=1))
    assert shows(table.passes(0.6)) == [(2, "a2")]
    assert ends(table.happens(ev.DialogAnswered(dialog=2, value="tty"))) == [("a", "ok", ("cli", "tty"))]


def test_a_refusal_from_elsewhere_ends_the_batch() -> None:
    table = Table()
    table.arrives(ask("a", "a1", "a2"))
    wanted = table.happens(ev.OutcomeSettled(outcome=outcome("a", 2, None, OutcomeKind.DECLINED)))
    assert closes(wanted) == [(1, "declined elsewhere")]
    assert ends(wanted) == [("a", "timeout-or-cancelled", (None, None))]


def test_whoever_was_first_on_disk_wins() -> None:
    table = Table()
    table.arrives(ask("a"))
    table.record["a", 1] = outcome("a", 1, "cli")
    assert ends(table.happens(ev.DialogAnswered(dialog=1, value="tty"))) == [("a", "ok", ("cli",))]


def test_a_batch_that_is_asked_again_has_one_dialog_and_one_end() -> None:
    table = Table()
    table.arrives(ask("a", "a1", "a2"))
    assert table.arrives(ask("a", "a1", "a2")) == []
    news = table.happens(ev.AskArrived(ask=ask("a", "a1", "a2"), outcomes=(outcome("a", 2, "cli"),)))
    assert news == []
    assert ends(table.happens(ev.DialogAnswered(dialog=1, value="tty"))) == [("a", "ok", ("tty", "cli"))]


def test_a_batch_that_is_already_answered_ends_without_a_dialog() -> None:
    table = Table()
    wanted = table.happens(ev.AskArrived(ask=ask("a"), outcomes=(outcome("a", 1, "cli"),)))
    assert (shows(wanted), ends(wanted)) == ([], [("a", "ok", ("cli",))])


def test_a_host_that_stops_leaves_its_asks_open_for_the_next() -> None:
    table = Table()
    table.arrives(ask("a"), ask("b"))
    wanted = table.happens(ev.HostStopped(reason="the host ends"))
    assert wanted == [ev.CloseDialog(dialog=1, reason="the host ends")]
    assert table.record == {}
    assert table.queue.open_asks == ()


def test_an_open_dialog_is_told_how_many_wait_whenever_that_changes() -> None:
    table = Table()
    told = [each.waiting for each in table.arrives(ask("a"), ask("b"), ask("c")) if isinstance(each, ev.ShowWaiting)]
    told += [
        each.waiting
        for each in table.happens(ev.AskWithdrawn(ask_id="b", reason="gone"))
        if isinstance(each, ev.ShowWaiting)
    ]
    assert told == [1, 2, 1]
    assert not [each for each in table.happens(ev.TimePassed()) if isinstance(each, ev.ShowWaiting)]


def test_a_human_is_called_once_for_each_batch_that_comes_open() -> None:
    def calls(effects: list[ev.Effect]) -> list[tuple[str, int]]:
        return [(each.ask.ask_id, each.open_asks) for each in effects if isinstance(each, ev.CallHuman)]

    table = Table()
    assert calls(table.arrives(ask("a", "One?", "Two?"), ask("b"))) == [("a", 1), ("b", 2)]
    assert calls(table.happens(ev.DialogAnswered(dialog=1, value="x"))) == []
    assert calls(table.arrives(ask("a", "One?", "Two?"))) == []
    answered = ev.AskArrived(ask=ask("c"), outcomes=(outcome("c", 1, "known"),))
    assert calls(table.happens(answered)) == []
