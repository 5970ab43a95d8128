"""The whole way of a question: child, runner, broker, host, human, and back. Real processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import pisub
from pisub.errors import RoleTakenError
from pisub.hosting.dialogs import DialogContext
from pisub.process import identify, send_signal
from pisub.protocol.runs import RunState
from pisub.record.sessions import Delivery
from pisub.runs.spec import OnNoHost
from pisub.testing import ScriptedAnswer, ScriptedHuman
from tests.support.eventually import eventually, eventually_async
from tests.support.host_project import Absent, Watched, make_asking_project
from tests.support.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_asking_project(tmp_path / "project")


def test_eight_askers_of_three_questions_each_get_their_own_answers(project: Path) -> None:
    async def scenario() -> None:
        human = Watched()
        async with pisub.host(dialogs=human) as host:
            runs = [await host.spawn("three", f"token{number}", project) for number in range(8)]
            texts = [await run.text() for run in runs]
        assert texts == [
            f"ok:answer to token{number}/1,answer to token{number}/2,answer to token{number}/3" for number in range(8)
        ]
        assert human.most_open == 1
        assert len(human.seen) == 24
        batches = [human.seen[first : first + 3] for first in range(0, 24, 3)]
        assert all(len({run_id for run_id, _, _ in batch}) == 1 for batch in batches)
        assert all([number for _, _, number in batch] == [1, 2, 3] for batch in batches)

    asyncio.run(scenario())


def test_a_dismissed_question_ends_its_batch_with_the_answers_so_far(project: Path) -> None:
    async def scenario() -> None:
        async with pisub.host(dialogs=ScriptedHuman(["first", ScriptedAnswer(dismiss=True)])) as host:
            run = await host.spawn("three", "t", project)
            assert await run.text() == "timeout-or-cancelled:first,None,None"

    asyncio.run(scenario())


def test_dialog_code_that_raises_is_an_error_and_the_queue_goes_on(project: Path) -> None:
    class Faulty(Watched):
        async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
            if title == "bad":
                raise RuntimeError("no such widget")
            return await super().select(title, options, context)

    async def scenario() -> None:
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
        async with pisub.host(dialogs=Faulty()) as host:
            bad = await host.spawn("one", "bad", project)
            assert await bad.text() == "error:None"
            good = await host.spawn("one", "good", project)
            assert await good.text() == "ok:left"
        assert reported == ["pisub host: A dialog failed."]

    asyncio.run(scenario())


def test_the_dialog_of_an_asker_that_is_killed_closes_within_a_second_and_the_queue_moves(project: Path) -> None:
    async def scenario() -> None:
        human = Absent()
        ends: list[Delivery] = []
        async with pisub.host(dialogs=human, on_completion=ends.append) as host:
            first = await host.spawn("one", "first?", project)
            await eventually_async(lambda: human.opened == ["first?"])
            second = await host.spawn("one", "second?", project)
            process = await first.process()
            assert process is not None
            assert send_signal(process, signal.SIGKILL)
            killed_at = time.monotonic()
            await eventually_async(lambda: human.closed)
            assert time.monotonic() - killed_at < 1.0
            assert human.closed == ["the asker is gone"]
            await eventually_async(lambda: human.opened == ["first?", "second?"])
            assert (await first.result()).state is RunState.FAILED
            await eventually_async(lambda: [end.completion.run_id for end in ends] == [first.id])
            assert (await second.stop()).state is RunState.STOPPED
            await eventually_async(lambda: len(human.closed) == 2)

    asyncio.run(scenario())


def test_an_answer_from_another_client_closes_the_dialog(project: Path) -> None:
    async def scenario() -> None:
        human = Absent()
        async with pisub.host(dialogs=human) as host:
            run = await host.spawn("one", "which?", project)
            await eventually_async(lambda: human.opened)
            listed = await asyncio.to_thread(Project(project).pisub, "questions", "--json")
            question = listed.json_lines[0] if listed.out.count("\n") > 1 else listed.json
            ask_id = str(question).partition("'askId': '")[2][:26]
            answered = await asyncio.to_thread(Project(project).pisub, "answer", ask_id, "right")
            assert answered.code == 0, answered.err
            assert await run.text() == "ok:right"
            await eventually_async(lambda: human.closed)

    asyncio.run(scenario())


_HOST = """
import asyncio, sys
import pisub
from tests.support.host_project import Absent

async def main():
    human = Absent()
    async with pisub.host(sys.argv[1], human, wait=False) as host:
        print("host", flush=True)
        while not human.opened:
            await asyncio.sleep(0.01)
        print("asked", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_host_that_is_killed_with_its_dialog_open_hands_the_question_to_the_next(project: Path) -> None:
    async def scenario() -> None:
        dying = await asyncio.create_subprocess_exec(
            sys.executable, "-c", textwrap.dedent(_HOST), "shared", stdout=asyncio.subprocess.PIPE
        )
        assert dying.stdout is not None
        assert await dying.stdout.readline() == b"host\n"
        async with pisub.connect("shared") as client:
            run = await client.spawn("one", "which?", project)
            assert await dying.stdout.readline() == b"asked\n"
            dying.kill()
            await dying.wait()
            async with pisub.host("shared", dialogs=ScriptedHuman(["right"])):
                assert await run.text() == "ok:right"

    asyncio.run(scenario())


def test_a_question_that_waits_for_a_host_finds_the_one_that_comes(project: Path) -> None:
    async def scenario() -> None:
        async with pisub.connect("later") as client:
            run = await client.spawn("one", "which?", project, on_no_host=OnNoHost.WAIT)
            async for event in run.events():
                if event.type == "subagent.ask.opened":
                    break
            async with pisub.host("later", dialogs=ScriptedHuman(["right"])):
                assert await run.text() == "ok:right"

    asyncio.run(scenario())


_CLAIMANT = """
import asyncio, sys
import pisub
from pisub.errors import RoleTakenError
from pisub.testing import ScriptedHuman

async def main():
    try:
        async with pisub.host("one-session", ScriptedHuman()) as host:
            print("host" if host.is_host else "waiting", flush=True)
            await asyncio.to_thread(sys.stdin.read)
    except RoleTakenError:
        print("taken", flush=True)

asyncio.run(main())
"""


def test_of_twenty_processes_that_claim_at_once_one_is_the_host_and_after_its_death_the_next_claim_works() -> None:
    claimants = [
        subprocess.Popen([sys.executable, "-c", _CLAIMANT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(20)
    ]
    try:
        said = {each: each.stdout.readline().strip() for each in claimants if each.stdout is not None}
        assert sorted(said.values()) == ["host"] + ["taken"] * 19
        (holder,) = [each for each, text in said.items() if text == "host"]

        async def scenario() -> None:
            with pytest.raises(RoleTakenError):
                async with pisub.host("one-session", ScriptedHuman()):
                    pass
            async with pisub.host("one-session", ScriptedHuman(), wait=True) as waiting:
                assert not waiting.is_host
                holder.kill()
                await eventually_async(lambda: waiting.is_host)

        asyncio.run(scenario())
        eventually(lambda: identify(holder.pid) is None)
    finally:
        for each in claimants:
            each.kill()
            each.communicate()


def test_a_new_host_finds_what_happened_while_there_was_none(project: Path) -> None:
    async def scenario() -> None:
        async with pisub.host("s", dialogs=ScriptedHuman()) as host:
            dies = await host.spawn("sleep", "x", project)
            goes_on = await host.spawn("sleep", "x", project)
            for run in (dies, goes_on):
                async for event in run.events():
                    if event.data.get("text") == "asleep":
                        break
            process = await dies.process()
        async with pisub.connect("s") as client:
            completes = await client.spawn("quiet", "x", project)
            await completes.result()
        assert process is not None
        assert send_signal(process, signal.SIGKILL)
        ends: list[Delivery] = []
        async with pisub.host("s", dialogs=ScriptedHuman(), on_completion=ends.append) as host:
            await eventually_async(lambda: len(ends) == 2)
            assert {(end.completion.run_id, end.completion.state, end.redelivered) for end in ends} == {
                (dies.id, RunState.FAILED, False),
                (completes.id, RunState.COMPLETE, False),
            }
            assert (await host.run(goes_on.id).view()).state is RunState.RUNNING
            assert (await host.run(goes_on.id).stop()).state is RunState.STOPPED
            await eventually_async(lambda: len(ends) == 3)
        async with pisub.host("s", dialogs=ScriptedHuman(), on_completion=ends.append) as host:
            marker = await host.spawn("quiet", "x", project)
            await eventually_async(lambda: ends[-1].completion.run_id == marker.id)
        assert len(ends) == 4

    asyncio.run(scenario())


def test_a_failing_handler_leaves_the_end_to_the_next_host_which_says_so(project: Path) -> None:
    async def scenario() -> None:
        seen: list[tuple[str, bool]] = []
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))

        def fail(delivery: Delivery) -> None:
            seen.append((delivery.delivery_key, delivery.redelivered))
            raise RuntimeError("cannot now")

        async with pisub.host("s", dialogs=ScriptedHuman(), on_completion=fail) as host:
            run = await host.spawn("quiet", "x", project)
            await run.result()
            await eventually_async(lambda: reported)
        async with pisub.host(
            "s", dialogs=ScriptedHuman(), on_completion=lambda each: seen.append((each.delivery_key, each.redelivered))
        ):
            await eventually_async(lambda: len(seen) == 2)
        key = f"{run.id}:complete"
        assert seen == [(key, False), (key, True)]
        assert reported == [f"pisub host: The handler of completions failed for {key}; the next host gets it."]

    asyncio.run(scenario())
