import asyncio

import msgspec
import pytest

import pisub
from pisub.config import Settings
from pisub.errors import InvalidArgumentError
from pisub.hosting.completions import CompletionGroup
from pisub.protocol.runs import RunState
from pisub.record.layout import Layout
from pisub.record.sessions import Outbox, completion_of, post_completion
from pisub.testing import ScriptedHuman
from tests.support.eventually import eventually_async
from tests.support.record_samples import make_result, make_spec

SESSION = "grouped"


def post(layout: Layout, state: RunState, ended_at: int) -> str:
    result = make_result(make_spec(session_id=SESSION), state=state)
    completion = completion_of(msgspec.structs.replace(result, ended_at=ended_at))
    post_completion(layout, completion)
    return completion.run_id


def test_a_failure_comes_after_the_successes_that_it_sends_off_and_all_are_done(settings: Settings) -> None:
    async def scenario() -> None:
        layout = Layout.of(settings)
        layout.prepare()
        groups: list[CompletionGroup] = []
        good = [post(layout, RunState.COMPLETE, at) for at in (1, 2)]
        bad = post(layout, RunState.FAILED, 3)
        late = post(layout, RunState.COMPLETE, 4)
        async with pisub.host(SESSION, ScriptedHuman([]), on_completions=groups.append, settings=settings):
            await eventually_async(lambda: len(groups) == 3, what="three groups")
        told = [([each.completion.run_id for each in group.deliveries], group.is_quiet) for group in groups]
        assert told == [(good, True), ([bad], False), ([late], True)]
        assert Outbox(layout, SESSION).pending() == []

    asyncio.run(scenario())


def test_what_is_held_when_a_host_stops_was_never_taken(settings: Settings) -> None:
    async def scenario() -> None:
        layout = Layout.of(settings)
        layout.prepare()
        groups: list[CompletionGroup] = []
        calls: list[str] = []
        began = asyncio.Event()

        async def hang(group: CompletionGroup) -> None:
            calls.append(group.deliveries[0].completion.run_id)
            began.set()
            await asyncio.Event().wait()

        bad = post(layout, RunState.FAILED, 1)
        good = post(layout, RunState.COMPLETE, 2)
        async with pisub.host(SESSION, ScriptedHuman([]), on_completions=hang, settings=settings):
            await began.wait()
        async with pisub.host(SESSION, ScriptedHuman([]), on_completions=groups.append, settings=settings):
            await eventually_async(lambda: len(groups) == 2, what="both ends")
        assert calls == [bad]
        told = [(each.completion.run_id, each.redelivered) for group in groups for each in group.deliveries]
        assert told == [(bad, True), (good, False)]

    asyncio.run(scenario())


def test_a_host_has_one_way_to_hear_of_ends(settings: Settings) -> None:
    async def scenario() -> None:
        with pytest.raises(InvalidArgumentError, match="not both"):
            async with pisub.host(
                SESSION, ScriptedHuman([]), print, on_completions=print, settings=settings
            ):  # pragma: no cover
                pass

    asyncio.run(scenario())
