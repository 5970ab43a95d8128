"""The desk: dialogs as tasks, records in threads, results to whoever waits. The record here is a dict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from pisub.clock import SystemClock
from pisub.errors import OutcomeUnknownError, QuestionClosedError
from pisub.hosting import queue_events as ev
from pisub.hosting.desk import Desk
from pisub.hosting.dialogs import DialogContext, Dialogs
from pisub.hosting.queue import HostQueue
from pisub.protocol.checkpoint import AskStatus, Question
from pisub.record.model import OutcomeKind, QuestionOutcome
from pisub.testing import ScriptedAnswer, ScriptedHuman
from tests.support.eventually import eventually_async
from tests.support.host_project import Absent, Watched


class World:
    """A desk with a record, and what it said outside of calls."""

    def __init__(self, dialogs: Dialogs) -> None:
        self.record: dict[tuple[str, int], QuestionOutcome] = {}
        self.unclaimed: list[tuple[str, AskStatus]] = []
        self.reports: list[str] = []
        self.failing: Exception | None = None
        self.desk = Desk(
            dialogs,
            self.write,
            by="host:1",
            clock=SystemClock(),
            on_unclaimed=lambda end: self.unclaimed.append((end.ask_id, end.result.status)),
            report=lambda what, error: self.reports.append(f"{what} {error!r}"),
            queue=HostQueue(SystemClock().monotonic(), swap_grace_s=0.01, close_bound_s=0.05),
        )

    def write(self, run_id: str, outcome: QuestionOutcome) -> QuestionOutcome:
        if self.failing is not None:
            raise self.failing
        return self.record.setdefault((outcome.ask_id, outcome.number), outcome)


def ask(name: str, *texts: str, options: Sequence[str] = (), **times: float) -> ev.Ask:
    questions = tuple(Question(text, options) for text in texts or (f"{name}?",))
    return ev.Ask(
        ask_id=name,
        run_id=f"run-{name}",
        session_id="s",
        agent="scout",
        questions=questions,
        timeout_s=times.get("timeout_s"),
        question_timeout_s=times.get("question_timeout_s"),
    )


def play(dialogs: Dialogs, scenario: Callable[[World], Awaitable[None]]) -> World:
    async def main() -> World:
        world = World(dialogs)
        async with asyncio.timeout(20):
            await scenario(world)
            await world.desk.stop("The test ends.")
        return world

    return asyncio.run(main())


def test_three_hundred_askers_at_once_get_their_own_answers() -> None:
    human = Watched()

    async def scenario(world: World) -> None:
        names = [f"a{number}" for number in range(300)]
        results = await asyncio.gather(*(world.desk.ask(ask(name)) for name in names))
        assert [result.values for result in results] == [(f"answer to {name}?",) for name in names]
        assert {answer.by for result in results for answer in result.answers if answer} == {"host:1"}

    world = play(human, scenario)
    assert human.most_open == 1
    assert len(world.record) == 300


def test_an_answer_is_on_record_before_the_asker_has_it() -> None:
    async def scenario(world: World) -> None:
        result = await world.desk.ask(ask("a", "1?", "2?"))
        assert result.answers == tuple(world.record["a", number].answer for number in (1, 2))

    play(ScriptedHuman(["x", "y"]), scenario)


def test_an_answer_that_cannot_be_written_is_an_error_and_the_next_ask_works() -> None:
    async def scenario(world: World) -> None:
        world.failing = OSError(28, "no space left")
        failed = await world.desk.ask(ask("a"))
        assert (failed.status, failed.values) == (AskStatus.ERROR, (None,))
        assert "no space left" in failed.reason
        world.failing = None
        assert (await world.desk.ask(ask("b"))).values == ("y",)

    world = play(ScriptedHuman(["x", "y"]), scenario)
    assert world.reports == ["An answer could not be recorded. OSError(28, 'no space left')"]


def test_an_ask_that_ended_elsewhere_takes_no_answer() -> None:
    async def scenario(world: World) -> None:
        world.failing = QuestionClosedError("The ask has ended.")
        result = await world.desk.ask(ask("a"))
        assert (result.status, result.values, result.reason) == (AskStatus.CANCELLED, (None,), "The ask has ended.")

    play(ScriptedHuman(["late"]), scenario)


def test_a_dialog_closes_by_the_hosts_own_timer() -> None:
    human = Absent()

    async def scenario(world: World) -> None:
        result = await world.desk.ask(ask("a", question_timeout_s=0.05))
        assert result.status is AskStatus.TIMEOUT_OR_CANCELLED
        result = await world.desk.ask(ask("b", timeout_s=0.05))
        assert result.status is AskStatus.TIMEOUT

    world = play(human, scenario)
    assert human.closed == ["time is up", "time is up"]
    assert [each.kind for each in world.record.values()] == [OutcomeKind.EXPIRED] * 2


def test_an_ask_without_a_call_is_told_of_and_a_second_call_shares_the_result() -> None:
    async def scenario(world: World) -> None:
        world.desk.feed(ev.AskArrived(ask=ask("a")))
        await eventually_async(lambda: world.unclaimed)
        first, second = await asyncio.gather(world.desk.ask(ask("b")), world.desk.ask(ask("b")))
        assert first == second

    assert play(ScriptedHuman(["x", "y"]), scenario).unclaimed == [("a", AskStatus.OK)]


def test_a_dialog_that_does_not_close_is_left_behind_and_its_late_answer_refused() -> None:
    class Deaf(ScriptedHuman):
        release = asyncio.Event()

        async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:
            if title != "deaf?":
                return await super().input(title, placeholder, context)
            while not self.release.is_set():
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    continue
            return "too late"

    human = Deaf(["next"])

    async def scenario(world: World) -> None:
        human.release = asyncio.Event()
        first = asyncio.create_task(world.desk.ask(ask("deaf")))
        await asyncio.sleep(0)
        second = asyncio.create_task(world.desk.ask(ask("other")))
        await asyncio.sleep(0)
        world.desk.feed(ev.AskWithdrawn(ask_id="deaf", reason="gone"))
        assert (await first).status is AskStatus.CANCELLED
        assert (await second).values == ("next",)
        human.release.set()
        await eventually_async(lambda: world.desk.refused == 1)

    world = play(human, scenario)
    assert world.reports == ["A dialog did not close when it was told to; the queue went on without it. None"]


def test_stopping_closes_the_dialog_and_says_that_the_question_is_open() -> None:
    human = Absent()

    async def scenario(world: World) -> None:
        waiting = asyncio.create_task(world.desk.ask(ask("a")))
        await eventually_async(lambda: human.opened)
        await world.desk.stop("The host ends.")
        with pytest.raises(OutcomeUnknownError, match="still open"):
            await waiting

    world = play(human, scenario)
    assert human.closed == ["The host ends."]
    assert world.record == {}


def test_a_human_that_takes_time_keeps_nobody_from_asking() -> None:
    async def scenario(world: World) -> None:
        results = await asyncio.gather(*(world.desk.ask(ask(name)) for name in "abc"))
        assert [result.values for result in results] == [("x",), (None,), ("z",)]

    play(ScriptedHuman([ScriptedAnswer(answer="x", delay_ms=20), ScriptedAnswer(dismiss=True), "z"]), scenario)


def test_an_ask_that_ended_is_not_shown_again_to_who_brings_it_late() -> None:
    human = Watched()

    async def scenario(world: World) -> None:
        first = await world.desk.ask(ask("a"))
        world.desk.feed(ev.AskArrived(ask=ask("a"), outcomes=()))  # the record was read before the end
        assert await world.desk.ask(ask("a")) == first

    play(human, scenario)
    assert [title for _, title, _ in human.seen] == ["a?"]
