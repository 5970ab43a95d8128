"""Runs below runs: whose questions they are, who controls them, and what the end of one above means for them."""

from __future__ import annotations

import asyncio
import signal
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

import pisub
from pisub.agents.trust import trust
from pisub.cli.exits import Exit
from pisub.errors import RefusedError
from pisub.process import send_signal
from pisub.protocol.runs import RunState
from pisub.record.journal_reader import JournalReader
from pisub.record.layout import Layout
from pisub.record.model import RunStatus
from pisub.record.reader import read_run
from pisub.testing import ScriptedHuman
from tests.support.eventually import eventually_async
from tests.support.nesting import as_task, children_of, end_of, make_family, plan, started_below_async
from tests.support.project import Project
from tests.support.scripts import add_script

ASKING = plan(("ask", "x"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_family(tmp_path / "project")


async def kill(run: pisub.Run) -> None:
    process = await run.process()
    assert process is not None
    assert send_signal(process, signal.SIGKILL)


def test_a_nested_childs_question_goes_to_the_host_of_the_first_run(project: Project) -> None:
    shown: list[pisub.DialogContext] = []

    class Human(ScriptedHuman):
        async def select(self, title: str, options: list[str], context: pisub.DialogContext) -> str | None:  # type: ignore[override]
            shown.append(context)
            return await super().select(title, options, context)

    async def main() -> None:
        async with pisub.host("s", Human(["left", "because"])) as host:
            run = await host.spawn("parent", as_task(plan(("ask", "x"))), project.root)
            (child,) = await started_below_async(host.client.layout, run.id, 1)
            assert msgspec.json.decode(await run.text()) == [["complete", None, "ok: ('left', 'because')"]]
            assert [(each.run_id, each.depth) for each in shown] == [(child, 1)]

    asyncio.run(main())


@pytest.mark.parametrize("way", ["library", "command line"])
def test_the_clock_of_a_run_that_awaits_a_question_below_stands_still_and_goes_on_after(
    project: Project, way: str
) -> None:
    add_script(project, "script", "pisub wait $(pisub run -d ask x)")
    answered = asyncio.Event()

    class Human(ScriptedHuman):
        async def select(self, title: str, options: list[str], context: pisub.DialogContext) -> str | None:  # type: ignore[override]
            await answered.wait()
            return await super().select(title, options, context)

    async def main() -> None:
        async with pisub.host("s", Human(["left", "because"])) as host:
            layout = host.client.layout
            # By the library two levels: the one in the middle waits, and is waited for.
            agent, task = ("script", "x") if way == "command line" else ("parent", as_task(plan(("parent", ASKING))))
            settings = msgspec.structs.replace(project.settings, max_depth=3)
            async with pisub.connect("s", settings) as client:
                run = host.run((await client.spawn(agent, task, project.root, timeout_ms=60_000)).id)

            def standing() -> RunStatus | None:
                status = read_run(layout, run.id).status
                return None if status is None or status.activity_reason != "waiting_for_human" else status

            status = await eventually_async(standing, what="its clock stands still")
            assert status is not None
            assert (status.deadline_at, status.timeout_ms) == (None, 60_000)
            answered.set()
            result = await run.result()
            assert result.state is RunState.COMPLETE
            assert result.waiting_for_human_ms > 0
            assert list(layout.run(run.id).awaits.iterdir()) == []

    asyncio.run(main())


def test_a_run_below_is_steered_interrupted_resumed_and_stopped_by_its_id_from_outside(project: Project) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            layout = host.client.layout
            run = await host.spawn("parent", as_task(plan(("listen", "x"), ("sleep", "x"))), project.root)
            first, second = await started_below_async(layout, run.id, 2)
            receipt = await host.run(first).steer("turn left")
            assert receipt.state == "delivered"
            await eventually_async((project.root / "heard").exists, what="the message is heard")
            assert (await host.run(first).interrupt()).state is RunState.PAUSED
            resumed = await host.run(first).resume("go on")
            assert await resumed.text() == "resumed with go on"
            assert (await host.run(second).stop()).state is RunState.STOPPED
            assert msgspec.json.decode(await run.text()) == [["paused", "interrupt", ""], ["stopped", "stop", ""]]
            spec = (await resumed.view()).spec
            assert (spec.depth, spec.parent_run_id, spec.root_run_id) == (1, run.id, run.id)

    asyncio.run(main())


def test_a_run_controls_what_it_started_and_neither_itself_nor_a_strangers(project: Project) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            stranger = await host.spawn("sleep", "x", project.root)
            task = plan(
                ("listen", "x"),
                do="control",
                others={"stranger": stranger.id},
                verbs=["steer", "interrupt", "resume", "stop"],
            )
            run = await host.spawn("parent", as_task(task), project.root)
            said = msgspec.json.decode(await run.text())
            verbs = ("steer", "interrupt", "resume", "stop")
            assert said == {
                **{f"{verb} {name}": "child_refused" for name in ("stranger", "self") for verb in verbs},
                "steer child": "delivered",
                "interrupt child": "paused",
                "resume child": "complete",
                "stop child": "paused",
            }
            assert (await stranger.view()).state is RunState.RUNNING
            await stranger.stop()

    asyncio.run(main())


def test_a_run_below_may_not_stop_the_one_above_by_the_command_line_either(project: Project) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            victim = await host.spawn("sleep", "x", project.root)
            task = plan(("command", f"stop {victim.id}"), ("command", "stop {run_id}"))
            run = await host.spawn("parent", as_task(task), project.root)
            for state, _, output in msgspec.json.decode(await run.text()):
                assert state == "complete"
                assert output.startswith(f"{Exit.REFUSED:d} "), output
                assert "may not stop this run" in output
            await victim.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "own", "below"),
    [
        ("stop", ("stopped", "stop"), ("stopped", "ancestor-stop")),
        ("interrupt", ("paused", "interrupt"), ("paused", "ancestor-interrupt")),
        ("timeout", ("failed", "timeout"), ("failed", "ancestor-timeout")),
    ],
)
def test_the_end_of_a_run_is_passed_on_to_all_below_it(
    project: Project, kind: str, own: tuple[str, str], below: tuple[str, str]
) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            layout = host.client.layout
            task = as_task(plan(("parent", plan(("sleep", "x"))), ("sleep", "x"), do="sleep"))
            settings = msgspec.structs.replace(project.settings, max_depth=3)
            async with pisub.connect("s", settings) as client:
                run = host.run((await client.spawn("parent", task, project.root)).id)
            ids = await started_below_async(layout, run.id, 3)
            if kind == "timeout":
                from pisub.process import own_identity  # noqa: PLC0415
                from pisub.record.control import request_control  # noqa: PLC0415
                from pisub.record.model import ControlRequest  # noqa: PLC0415

                request = ControlRequest(type="timeout", requested_at=1, by=own_identity())
                request_control(layout.run(run.id), request)
                await run.wake(await run.view())
                await run.result()
            else:
                await (run.stop() if kind == "stop" else run.interrupt())
            assert end_of(layout, run.id) == own
            for each in ids:
                await eventually_async(lambda each=each: end_of(layout, each) is not None, what="the end below")
            assert [end_of(layout, each) for each in ids] == [below] * 3
            timed_out = [read_run(layout, each).status.timed_out for each in ids]  # type: ignore[union-attr]
            assert timed_out == [kind == "timeout"] * 3

    asyncio.run(main())


def test_a_program_below_is_not_interrupted_and_the_journal_says_so(project: Project) -> None:
    front = f"""\
        ---
        name: program
        description: A program that reads and waits.
        runner:
          type: external-cli
          argv: ["{sys.executable}", "-c", "import sys, time; sys.stdin.read(); time.sleep(600)"]
        ---
        """
    (project.root / ".pisub" / "agents" / "program.md").write_text(textwrap.dedent(front))
    trust(project.settings, project.root)

    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            layout = host.client.layout
            run = await host.spawn("parent", as_task(plan(("program", "x"))), project.root)
            (child,) = await started_below_async(layout, run.id, 1)
            assert (await run.interrupt()).state is RunState.PAUSED
            [line] = [
                each.data
                for each in JournalReader(layout.run(run.id).events).read_new()
                if each.type == "subagent.nested.interrupt_failed"
            ]
            assert line["runId"] == child
            assert (await host.run(child).view()).state is RunState.RUNNING
            await run.stop(tree=True)
            assert end_of(layout, child) == ("stopped", "ancestor-stop")

    asyncio.run(main())


def test_what_a_killed_run_started_goes_on_unless_it_was_attached(project: Project) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            layout = host.client.layout
            detached = await host.spawn("parent", as_task(plan(("release", "x"))), project.root)
            attached = await host.spawn("parent", as_task(plan(("sleep", "x"), attached=True)), project.root)
            (goes_on,) = await started_below_async(layout, detached.id, 1)
            (ends,) = await started_below_async(layout, attached.id, 1)
            await kill(detached)
            await kill(attached)
            assert (await detached.result()).reason == "runner-died"
            await eventually_async(
                lambda: end_of(layout, ends) == ("stopped", "host-gone"), what="the attached one ends"
            )
            assert (await host.run(goes_on).view()).state is RunState.RUNNING
            (project.root / "go").touch()
            assert await host.run(goes_on).text() == "released"

    asyncio.run(main())


def test_a_stop_whose_runner_was_killed_first_is_passed_on_by_whoever_finishes_its_record(project: Project) -> None:
    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            layout = host.client.layout
            run = await host.spawn("parent", as_task(plan(("sleep", "x"))), project.root)
            (child,) = await started_below_async(layout, run.id, 1)
            process = await run.process()
            assert process is not None
            assert send_signal(process, signal.SIGSTOP)
            from pisub.client.stopping import request_stop  # noqa: PLC0415

            request_stop(layout, run.id, source="a test", reason="", now_ms=1)
            assert send_signal(process, signal.SIGKILL)
            assert (await run.result()).state is RunState.STOPPED
            await eventually_async(
                lambda: end_of(layout, child) == ("stopped", "ancestor-stop"), what="it is passed on"
            )

    asyncio.run(main())


def test_two_levels_below_a_person_is_as_deep_as_it_goes_unless_a_setting_says_more(project: Project) -> None:
    deep = plan(("parent", plan(("parent", plan(("echo", "x"))))))

    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            layout = host.client.layout
            run = await host.spawn("parent", as_task(deep), project.root)
            [[state, _, output]] = msgspec.json.decode(await run.text())
            assert state == "complete"
            assert msgspec.json.decode(output)["code"] == "depth_exceeded"
            assert "PISUB_MAX_DEPTH" in msgspec.json.decode(output)["message"]
            (child,) = children_of(layout, run.id)
            assert children_of(layout, child) == []
            off = msgspec.structs.replace(project.settings, max_depth=0)
            async with pisub.connect("s", off) as client:
                with pytest.raises(RefusedError, match="turned off") as refused:
                    await client.spawn("echo", "x", project.root)
                assert refused.value.code == "depth_exceeded"

    asyncio.run(main())


def test_an_agent_tightens_the_depth_of_what_it_starts_and_of_nothing_else(project: Project) -> None:
    file = project.root / ".pisub" / "agents" / "parent.md"
    file.write_text(file.read_text().replace("name: parent\n", "name: parent\nmaxSubagentDepth: 1\n"))
    trust(project.settings, project.root)

    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            run = await host.spawn("parent", as_task(plan(("echo", "x"))), project.root)
            assert msgspec.json.decode(await run.text())["code"] == "depth_exceeded"
            assert await (await host.spawn("echo", "y", project.root)).text() == "y"
            view = await run.view()
            assert (view.spec.depth, view.spec.max_depth) == (0, 1)

    asyncio.run(main())


def test_the_environment_of_a_child_widens_nothing(project: Project) -> None:
    """A child that says that it is nobody's is known by its process, and its limits by its record."""
    (project.root / "sly.py").write_text(
        textwrap.dedent("""\
            import os, pisub

            async def sly(child):
                for name in ("PISUB_RUN_ID", "PISUB_DEPTH"):
                    del os.environ[name]
                os.environ["PISUB_MAX_DEPTH"] = "50"
                async with pisub.connect() as client:
                    try:
                        run = await client.spawn("sly", "deeper")
                    except pisub.PisubError as error:
                        return error.code
                    return await run.text()
            """)
    )
    front = "---\nname: sly\ndescription: Wants more.\nrunner:\n  type: python\n  target: sly:sly\n---\n"
    (project.root / ".pisub" / "agents" / "sly.md").write_text(front)
    trust(project.settings, project.root)

    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            run = await host.spawn("sly", "x", project.root)
            assert await run.text() == "depth_exceeded"
            layout = Layout.of(project.settings)
            (child,) = children_of(layout, run.id)
            assert children_of(layout, child) == []

    asyncio.run(main())


def test_the_host_is_told_of_ends_below_only_where_the_run_above_could_not_take_them(project: Project) -> None:
    told: list[tuple[str, str]] = []

    async def main() -> None:
        def note(delivery: pisub.Delivery) -> None:
            told.append((delivery.completion.run_id, delivery.completion.state.value))

        async with pisub.host("s", ScriptedHuman(), note) as host:
            layout = host.client.layout
            waited = await host.spawn("parent", as_task(plan(("echo", "x"))), project.root)
            await waited.text()
            left = await host.spawn("parent", as_task(plan(("release", "x"), do="leave")), project.root)
            await left.text()
            killed = await host.spawn("parent", as_task(plan(("echo", "x"), ("sleep", "x"))), project.root)
            first, second = await started_below_async(layout, killed.id, 2)
            await eventually_async(lambda: end_of(layout, first), what="the first child ends")
            await kill(killed)
            await killed.result()
            await host.run(second).stop()
            (project.root / "go").touch()
            (outlived,) = children_of(layout, left.id)
            expected = {
                (waited.id, "complete"),
                (left.id, "complete"),
                (outlived, "complete"),
                (killed.id, "failed"),
                (first, "complete"),
                (second, "stopped"),
            }
            await eventually_async(lambda: set(told) == expected, what="the host is told of all that is its own")
            assert len(told) == len(expected)
        assert read_run(layout, children_of(layout, waited.id)[0]).state is RunState.COMPLETE

    asyncio.run(main())


def test_inside_a_run_a_wait_is_for_what_it_started(project: Project) -> None:
    (project.root / "waiting.py").write_text(
        textwrap.dedent("""\
            import pisub

            async def waiting(child):
                async with pisub.connect() as client:
                    run = await client.spawn("echo", "from below")
                    outcome = await client.wait(is_all=True)
                    assert [view.run_id for view in outcome.views] in ([run.id], []), outcome
                    return str(len((await client.runs(include_finished=True))))
            """)
    )
    front = "---\nname: waiting\ndescription: Waits.\nrunner:\n  type: python\n  target: waiting:waiting\n---\n"
    (project.root / ".pisub" / "agents" / "waiting.md").write_text(front)
    trust(project.settings, project.root)

    async def main() -> None:
        async with pisub.host("s", ScriptedHuman()) as host:
            run = await host.spawn("waiting", "x", project.root)
            assert await run.text() == "2"

    asyncio.run(main())
