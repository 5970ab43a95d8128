"""A session without processes: what a user's test can rely on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from pisub import Child, DialogContext, Question, testing
from pisub.errors import InvalidArgumentError, RefusedError
from pisub.protocol.checkpoint import AskStatus
from pisub.testing import FakeClock, ScriptedAnswer, ScriptedHuman


async def moment(seconds: float) -> None:
    """Let fake time pass: the loop of these tests jumps to the timer."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(seconds, future.set_result, None)
    await future


async def deploy(child: Child) -> str:
    child.log(f"task {child.task}")
    child.write("notes/a.txt", "x")
    asked = await child.ask([Question("Where?", options=["eu", "us"]), Question("Why?")], why="it must lie somewhere")
    return f"{asked.status}: {asked.values}"


def test_an_agent_asks_and_what_it_did_is_there_to_look_at() -> None:
    human = ScriptedHuman(["us", "cheap"])

    async def main() -> tuple[testing.Ended, list[Path]]:
        async with testing.session(human) as host:
            return await host.run(deploy, "t", name="deploy"), list(Path(host._directory).parent.glob("pisub-test-*"))

    ended, directories = testing.run(main())
    assert (ended.text, ended.lines, ended.files) == ("ok: ('us', 'cheap')", ("task t",), {"notes/a.txt": b"x"})
    assert [(each.title, each.context.agent, each.context.number) for each in human.asked] == [
        ("Where?", "deploy", 1),
        ("Why?", "deploy", 2),
    ]
    assert not any(each.exists() for each in directories if ended.run_id in str(each))


@pytest.mark.parametrize(
    ("item", "limits", "status", "waited_s"),
    [
        (ScriptedAnswer(answer="us", delay_ms=179_000), {}, AskStatus.OK, 179),
        (ScriptedAnswer(answer="us", delay_ms=999_000), {}, AskStatus.TIMEOUT_OR_CANCELLED, 180),
        (ScriptedAnswer(answer="us", delay_ms=999_000), {"ask_timeout_s": 60}, AskStatus.TIMEOUT, 60),
        (ScriptedAnswer(dismiss=True), {}, AskStatus.TIMEOUT_OR_CANCELLED, 0),
        (ScriptedAnswer(answer="nowhere"), {}, AskStatus.ERROR, 0),
    ],
)
def test_minutes_of_patience_pass_in_no_time(
    item: ScriptedAnswer, limits: dict[str, float], status: AskStatus, waited_s: float
) -> None:
    async def one(child: Child) -> str:
        return (await child.ask(Question("Where?", options=["eu", "us"]))).status

    clock = FakeClock()

    async def main() -> str:
        async with testing.session(ScriptedHuman([item])) as host:
            return (await host.run(one, **limits)).text  # type: ignore[arg-type]

    before = clock.monotonic()
    assert testing.run(main(), clock=clock) == status
    assert clock.monotonic() - before == pytest.approx(waited_s, abs=3)


def test_an_ask_s_own_time_counts_before_the_session_s() -> None:
    async def one(child: Child) -> str:
        return (await child.ask(Question("Where?", options=["eu", "us"]), question_timeout_s=20)).status

    clock = FakeClock()

    async def main() -> str:
        async with testing.session(ScriptedHuman([ScriptedAnswer(answer="us", delay_ms=999_000)])) as host:
            return (await host.run(one)).text

    before = clock.monotonic()
    assert testing.run(main(), clock=clock) == AskStatus.TIMEOUT_OR_CANCELLED
    assert clock.monotonic() - before == pytest.approx(20, abs=3)


def test_two_agents_never_have_two_dialogs_nor_a_mixed_batch() -> None:
    class Human:
        def __init__(self) -> None:
            self.shown: list[str] = []
            self.open = 0

        async def select(self, title: str, options: Sequence[str], context: DialogContext) -> str | None:
            return await self.input(title, "", context)

        async def input(self, title: str, placeholder: str, context: DialogContext) -> str | None:
            self.open += 1
            assert self.open == 1
            await moment(5)
            self.shown.append(title)
            self.open -= 1
            return f"{title}!"

    human = Human()

    async def asks(child: Child) -> str:
        asked = await child.ask([f"{child.task}{number}" for number in range(3)])
        return ",".join(str(each) for each in asked.values)

    async def main() -> list[str]:
        async with testing.session(human) as host:
            ended = await asyncio.gather(*(host.run(asks, name) for name in "abc"))
            return [each.text for each in ended]

    assert testing.run(main()) == ["a0!,a1!,a2!", "b0!,b1!,b2!", "c0!,c1!,c2!"]
    batches = ["".join(each[0] for each in human.shown[at : at + 3]) for at in (0, 3, 6)]
    assert sorted(batches) == ["aaa", "bbb", "ccc"]


def test_a_cancelled_agent_closes_its_dialog_and_the_next_is_asked() -> None:
    human = ScriptedHuman([ScriptedAnswer(answer="late", delay_ms=100_000), "yes"])

    async def asks(child: Child) -> str:
        return str((await child.ask("?")).values)

    async def main() -> tuple[str, list[AskStatus]]:
        async with testing.session(human) as host:
            first = asyncio.create_task(host.run(asks))
            await moment(1)
            first.cancel()
            ended = await host.run(asks)
            await asyncio.wait({first})
            assert first.cancelled()
            return ended.text, [each.status for each in host.results]

    assert testing.run(main()) == ("('yes',)", [AskStatus.CANCELLED, AskStatus.OK])


def test_without_a_host_or_a_grant_nobody_is_asked() -> None:
    async def asks(child: Child) -> str:
        return (await child.ask("?")).status

    async def main() -> None:
        async with testing.session() as host:
            assert (await host.run(asks)).text == "no-host"
            assert (await host.ask("?")).status is AskStatus.NO_HOST
        human = ScriptedHuman(["yes"])
        async with testing.session(human) as host:
            with pytest.raises(RefusedError):
                await host.run(asks, can_ask=False)
            with pytest.raises(InvalidArgumentError):
                await host.ask([])
            assert (await host.ask("Mine?")).values == ("yes",)

    testing.run(main())


def test_plain_functions_messages_and_errors_are_as_in_a_run() -> None:
    def plain(child: Child) -> str:
        return " ".join(each.text for each in child.take_messages())

    def broken(child: Child) -> str:
        raise ZeroDivisionError

    async def main() -> None:
        async with testing.session() as host:
            assert (await host.run(plain, messages=["go", "on"])).text == "go on"
            with pytest.raises(ZeroDivisionError):
                await host.run(broken)

    testing.run(main())


def test_time_that_nobody_spends_ends_a_test_that_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisub.testing.fake_time._DEADLOCK_S", 0.0)

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="nobody does"):
        testing.run(main())
