"""The library: steer, interrupt, resume. Real broker, nursery and runners."""

import asyncio
from pathlib import Path

import pytest

import pisub
from pisub.errors import InvalidArgumentError, RefusedError
from pisub.protocol.runs import RunState
from pisub.record.reader import read_run
from pisub.runs.receipts import DeliveryStatus, RequestState, TargetState
from tests.support.project import Project
from tests.support.steered_project import make_steered_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_steered_project(tmp_path / "project")


async def until_it_says(run: pisub.Run, text: str) -> None:
    async for event in run.events():
        if event.data.get("text") == text:
            return


def test_a_message_is_delivered_and_its_receipt_says_so(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            run = await client.spawn("listen", "x", project.root)
            await until_it_says(run, "listening")
            receipt = await run.steer("one", request_id="once")
            assert (receipt.request_id, receipt.state, receipt.delivery_status, receipt.source_run_id) == (
                "once",
                RequestState.DELIVERED,
                DeliveryStatus.DELIVERED,
                run.id,
            )
            assert [target.state for target in receipt.targets] == [TargetState.DELIVERED]
            assert (await run.steer("one", request_id="once")).state is RequestState.DELIVERED
            assert (await run.steer("two", "auto")).state is RequestState.DELIVERED
            follow_up = await run.steer("three", "follow_up")  # queued first, and then at once delivered
            assert follow_up.targets[0].state in (TargetState.QUEUED, TargetState.DELIVERED)
            await run.steer("end")
            assert await run.text() == "one | two | three"
            with pytest.raises(RefusedError, match="is complete: it takes no messages") as refused:
                await run.steer("more")
            assert refused.value.code == "inbox_closed"

    asyncio.run(scenario())


def test_an_agent_that_does_not_look_leaves_the_message_pending_and_no_error(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            run = await client.spawn("deaf", "x", project.root)
            await until_it_says(run, "working")
            receipt = await run.steer("hello", patience_s=0.2)
            assert (receipt.state, receipt.delivery_status) == (RequestState.PENDING, DeliveryStatus.QUEUED)
            assert (await run.steer("later", "follow_up")).targets[0].state is TargetState.QUEUED
            await run.stop()

    asyncio.run(scenario())


def test_an_interrupted_run_is_paused_and_goes_on_where_it_was(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            run = await client.spawn("listen", "x", project.root, timeout_ms=100_000)
            await until_it_says(run, "listening")
            await run.steer("first")
            paused = await run.interrupt("let me think")
            assert (paused.state, paused.success, paused.exit_code, paused.reason) == (
                RunState.PAUSED,
                False,
                0,
                "interrupt",
            )
            again = await run.resume("go on")
            await until_it_says(again, "listening")
            view = read_run(client.layout, again.id)
            assert (view.spec.resumed_from, view.spec.task, view.spec.session_id) == (run.id, "x", client.session_id)
            assert view.spec.timeout_ms is not None
            assert 0 < view.spec.timeout_ms < 100_000
            with pytest.raises(RefusedError) as running:
                await again.resume("too early")
            assert running.value.code == "run_not_ended"
            with pytest.raises(RefusedError, match=f"is being gone on with by run {again.id}") as in_use:
                await run.resume("me too")
            assert in_use.value.code == "session_in_use"
            await again.steer("end")
            assert await again.text() == "first | resumed: go on"
            third = await again.resume("and once more")
            await until_it_says(third, "listening")
            assert (await third.stop()).state is RunState.STOPPED
            with pytest.raises(RefusedError) as stopped:
                await third.resume("never")
            assert stopped.value.code == "run_stopped"
            assert read_run(client.layout, run.id).state is RunState.PAUSED

    asyncio.run(scenario())


def test_of_two_that_resume_at_once_one_wins_and_the_other_is_told_who(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            run = await client.spawn("listen", "x", project.root)
            await until_it_says(run, "listening")
            await run.interrupt()
            outcomes = await asyncio.gather(*(run.resume(f"n{n}") for n in range(4)), return_exceptions=True)
            winners = [each for each in outcomes if isinstance(each, pisub.Run)]
            losers = [each for each in outcomes if isinstance(each, RefusedError)]
            assert (len(winners), len(losers)) == (1, 3)
            assert {(each.code, winners[0].id in each.message) for each in losers} == {("session_in_use", True)}
            await winners[0].stop()

    asyncio.run(scenario())


def test_a_run_that_got_no_answer_is_resumed_with_one_and_asks_nobody(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            run = await client.spawn("choose", "x", project.root)
            assert (await run.text()).startswith("no-host")
            with pytest.raises(InvalidArgumentError, match="names none of the run's questions"):
                await run.resume("here", answers={"What?": "left"})
            with pytest.raises(InvalidArgumentError, match="is no option"):
                await run.resume("here", answers={"Which?": "up"})
            again = await run.resume("here", answers={"Which?": "left", "Why?": "because"})
            assert await again.text() == "ok: ('left', 'because')"
            third = await again.resume("once more")
            assert await third.text() == "ok: ('left', 'because')"

    asyncio.run(scenario())


def test_a_message_without_an_answer_may_pause_the_run_and_go_on_with_it_in_a_new_one(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            run = await client.spawn("deaf", "x", project.root)
            await until_it_says(run, "working")
            receipt = await run.steer("wake up", recover=True, patience_s=0.2)
            assert (receipt.state, receipt.delivery_status) == (RequestState.RECOVERED, DeliveryStatus.DELIVERED)
            assert receipt.replacement_run_id is not None
            assert (await run.result()).state is RunState.PAUSED
            assert await client.run(receipt.replacement_run_id).text() == "revived: wake up"

    asyncio.run(scenario())


def test_a_program_is_neither_steered_nor_interrupted_nor_resumed(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            run = await client.spawn("script", "x", project.root)
            codes: list[str] = []
            with pytest.raises(RefusedError) as steered:
                await run.steer("hello")
            async for event in run.events():
                if event.type == "subagent.step.started":
                    break
            with pytest.raises(RefusedError) as interrupted:
                await run.interrupt()
            await run.stop()
            codes += [steered.value.code, interrupted.value.code]
            assert codes == ["steering_unsupported", "interrupt_unsupported"]

    asyncio.run(scenario())
