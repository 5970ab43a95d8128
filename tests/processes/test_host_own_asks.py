"""A host asks its own human: in the queue of its children, with the same ends, and never by an exception."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import pisub
from pisub import AskStatus, Question
from pisub.errors import InvalidArgumentError
from pisub.testing import ScriptedAnswer, ScriptedHuman
from tests.support.eventually import HANG_S, eventually_async
from tests.support.host_project import Absent, Watched, make_asking_project


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(3 * HANG_S):
            await scenario()

    asyncio.run(main())


def test_its_questions_and_its_childrens_are_one_queue_of_whole_batches(tmp_path: Path) -> None:
    project = make_asking_project(tmp_path / "project")

    async def scenario() -> None:
        human = Watched()
        async with pisub.host(dialogs=human) as host:
            run = await host.spawn("three", "token", project)
            own = await asyncio.gather(*(host.ask([f"own{n}/1", f"own{n}/2"], why="to test") for n in range(4)))
            assert await run.text() == "ok:answer to token/1,answer to token/2,answer to token/3"
        assert [result.values for result in own] == [(f"answer to own{n}/1", f"answer to own{n}/2") for n in range(4)]
        assert {answer.by for result in own for answer in result.answers if answer} == {host.client.bus.address}
        assert human.most_open == 1
        titles = [title.partition("/")[0] for _, title, _ in human.seen]
        assert len([1 for before, after in itertools.pairwise(titles) if before != after]) == 4

    play(scenario)


def test_what_the_human_does_is_a_status_with_the_answers_so_far() -> None:
    async def scenario() -> None:
        human = ScriptedHuman(
            [
                ScriptedAnswer(match="Which", option=2),
                ScriptedAnswer(match="Dismissed", dismiss=True),
                ScriptedAnswer(match="Broken", answer="none of them"),
                ScriptedAnswer(match="Slow", absent=True),
                ScriptedAnswer(match="Over", absent=True),
            ]
        )
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
        async with pisub.host(dialogs=human) as host:
            choice = Question("Which?", options=["left", "right"])
            dismissed = await host.ask([choice, "Dismissed?"])
            assert (dismissed.status, dismissed.values) == (AskStatus.TIMEOUT_OR_CANCELLED, ("right", None))
            broken = await host.ask(Question("Broken?", options=["left", "right"]))
            assert (broken.status, broken.values) == (AskStatus.ERROR, (None,))
            assert len(reported) == 1
            slow = await host.ask("Slow?", question_timeout_ms=20)
            assert (slow.status, slow.values) == (AskStatus.TIMEOUT_OR_CANCELLED, (None,))
            over = await host.ask("Over?", timeout_ms=20, question_timeout_ms=0)
            assert (over.status, over.values) == (AskStatus.TIMEOUT, (None,))

    play(scenario)


def test_abort_cancellation_and_the_hosts_end_close_the_dialog_and_the_queue_moves() -> None:
    async def scenario() -> None:
        human = Absent()
        abort = asyncio.Event()
        async with pisub.host(dialogs=human) as host:
            first = asyncio.create_task(host.ask("first?", abort=abort))
            await eventually_async(lambda: human.opened == ["first?"])
            second = asyncio.create_task(host.ask("second?"))
            abort.set()
            aborted = await first
            assert (aborted.status, aborted.reason) == (AskStatus.CANCELLED, "The asker took it back.")
            await eventually_async(lambda: human.opened == ["first?", "second?"])
            second.cancel()
            await asyncio.wait([second])
            assert second.cancelled()
            third = asyncio.create_task(host.ask("third?"))
            await eventually_async(lambda: len(human.opened) == 3)
        ended = await third
        assert (ended.status, ended.reason) == (AskStatus.CANCELLED, "The host ended before the question was answered.")
        assert human.closed == ["The asker took it back.", "The asker took it back.", "The host ends."]
        assert (await host.ask("after its end?")).status is AskStatus.NO_HOST

    play(scenario)


def test_one_that_waits_for_its_turn_shows_nothing() -> None:
    async def scenario() -> None:
        async with pisub.host("one", Watched()), pisub.host("one", Absent(), wait=True) as second:
            assert (await second.ask("anybody?")).status is AskStatus.NO_HOST

    play(scenario)


def test_a_batch_that_waits_too_long_for_its_turn_ends_as_timeout() -> None:
    async def scenario() -> None:
        human = Absent()
        async with pisub.host(dialogs=human, queue_timeout_ms=50) as host:
            shown = asyncio.create_task(host.ask("shown?"))
            await eventually_async(lambda: human.opened)
            waited = await host.ask("waiting?")
            assert (waited.status, waited.reason) == (AskStatus.TIMEOUT, "The batch waited too long for its turn.")
            assert human.opened == ["shown?"]
            assert not shown.done()
        assert (await shown).status is AskStatus.CANCELLED

    play(scenario)


def test_what_cannot_be_asked_is_refused_by_the_fields_name() -> None:
    async def scenario() -> None:
        async with pisub.host(dialogs=Watched()) as host:
            for arguments, field in (
                ({"questions": []}, "questions"),
                ({"questions": "x", "why": "y" * 9_000}, "why"),
                ({"questions": "x", "timeout_ms": -1}, "timeout_ms"),
            ):
                with pytest.raises(InvalidArgumentError) as caught:
                    await host.ask(**arguments)  # type: ignore[arg-type]  # what a program may pass
                assert caught.value.field == field

    play(scenario)
