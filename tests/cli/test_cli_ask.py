"""``pisub ask``: a shell script inside a run asks the human, within what its agent is granted."""

from __future__ import annotations

import asyncio
import os
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pisub
from pisub.cli.exits import Exit
from pisub.client.bus import Bus
from pisub.protocol.session import PeerKind, Status, StatusReport
from pisub.record.layout import Layout
from pisub.record.questions import list_open_asks
from pisub.testing import ScriptedAnswer, ScriptedHuman
from tests.support.eventually import eventually
from tests.support.project import Project, make_project
from tests.support.scripts import add_script

ARMED = 'extensions: [checkpoint-bridge]\ntools: "*, ext:checkpoint-bridge"\n'
UNGRANTED = 'extensions: [checkpoint-bridge]\ntools: "*"\n'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


def result_of(project: Project, agent: str, human: ScriptedHuman) -> str:
    async def main() -> str:
        async with pisub.host("s", human) as host:
            return await (await host.spawn(agent, "x", project.root)).text()

    return asyncio.run(main())


def test_a_script_gets_the_answer_on_its_standard_output(project: Project) -> None:
    add_script(
        project,
        "deploy",
        """
        region=$(pisub ask "Which region?" --option eu --option us --why "to deploy") || exit 1
        both=$(pisub ask "First?" "Second?")
        echo "$region / $both"
        """,
        keys=ARMED,
    )
    human = ScriptedHuman(["us", "a b", "c"])
    assert result_of(project, "deploy", human) == "us / a b\nc\n"
    told = [(each.title, each.options, each.context.why, each.context.number, each.context.count, each.context.agent)
            for each in human.asked]  # fmt: skip
    assert told == [
        ("Which region?", ("eu", "us"), "to deploy", 1, 1, "deploy"),
        ("First?", (), "", 1, 2, "deploy"),
        ("Second?", (), "", 2, 2, "deploy"),
    ]


def test_each_way_in_which_an_ask_ends_has_its_exit_code_and_no_answer_is_printed(project: Project) -> None:
    add_script(
        project,
        "many",
        """
        pisub ask "Yes?" > out.1; a=$?
        pisub ask "No?" > out.2; b=$?
        pisub ask "Slow?" --timeout 0.3 > out.3; c=$?
        pisub ask "One?" --option same > out.4; d=$?
        pisub ask "A?" "B?" --option x --option y > out.5; e=$?
        pisub ask "Half?" "Dismissed?" --json > out.6; f=$?
        echo $a $b $c $d $e $f
        """,
    )
    human = ScriptedHuman(
        [
            ScriptedAnswer(match="Yes?", answer="yes"),
            ScriptedAnswer(match="No?", dismiss=True),
            ScriptedAnswer(match="Slow?", answer="late", delay_ms=60_000),
            ScriptedAnswer(match="Half?", answer="half"),
            ScriptedAnswer(match="Dismissed?", dismiss=True),
        ]
    )
    codes = (Exit.OK, Exit.DECLINED, Exit.WAIT_TIMEOUT, Exit.USAGE, Exit.USAGE, Exit.DECLINED)
    assert result_of(project, "many", human) == " ".join(str(code.value) for code in codes) + "\n"
    assert [(project.root / f"out.{number}").read_text() for number in range(1, 6)] == ["yes\n", "", "", "", ""]
    said: dict[str, Any] = msgspec.json.decode((project.root / "out.6").read_bytes())
    first = said["answers"][0]
    assert (said["status"], first["value"], said["answers"][1]) == ("timeout-or-cancelled", "half", None)
    assert first["by"].startswith("host:")
    assert first["at"] > 0


def test_a_script_says_how_long_it_asks(project: Project) -> None:
    add_script(
        project,
        "timed",
        """
        pisub ask "Usual?"
        pisub ask "Long?" --timeout 900 --question-timeout 800
        pisub ask "Ever?" --timeout 0 --question-timeout 0
        pisub ask "Brief?" --question-timeout 0.2; a=$?
        pisub ask "None?" --question-timeout -1 2> said; echo $a $?
        """,
    )
    human = ScriptedHuman(["1", "2", "3", ScriptedAnswer(match="Brief?", absent=True)])
    assert result_of(project, "timed", human) == f"1\n2\n3\n{Exit.DECLINED.value} {Exit.USAGE.value}\n"
    asks = [read_json(path) for path in sorted(project.settings.home.rglob("ask.json"))]
    assert [(each.get("timeoutMs"), each.get("questionTimeoutMs")) for each in asks] == [
        (300_000, 180_000),
        (900_000, 800_000),
        (None, None),
        (300_000, 200),
    ]


def read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return found


def test_without_a_host_the_script_is_told_so(project: Project) -> None:
    add_script(project, "alone", 'pisub ask "Anybody?" 2>said; echo $?')
    run_id = project.launch("alone", "x", "--ask", "fail")
    assert project.pisub("wait", run_id).code == 0
    said = (project.root / "said").read_text()
    assert project.pisub("result", run_id).out == f"{Exit.NO_HOST.value}\n", said


def test_a_script_without_the_grant_is_refused_and_nobody_is_asked(project: Project) -> None:
    add_script(project, "quiet", 'pisub ask "May I?" 2> said; echo $?', keys=UNGRANTED)
    human = ScriptedHuman(["no"])
    assert result_of(project, "quiet", human) == f"{Exit.REFUSED.value}\n"
    assert "does not grant ext:checkpoint-bridge" in (project.root / "said").read_text()
    assert human.asked == []


def test_a_killed_script_takes_its_question_back(project: Project) -> None:
    add_script(project, "killed", 'pisub ask "Still there?" --timeout 60 & read x < go; kill $!; wait; echo ok')

    os.mkfifo(project.root / "go")
    run_id = project.launch("killed")
    layout = Layout.of(project.settings)
    eventually(lambda: list_open_asks(layout), what="it asks")
    (project.root / "go").write_text("x\n")
    eventually(lambda: not list_open_asks(layout), what="the question is taken back")
    project.pisub("stop", run_id)


def test_outside_of_a_run_it_is_refused(project: Project) -> None:
    outcome = project.pisub("ask", "Anybody?", "--json", environ={"PISUB_RUN_ID": "a" * 26})
    assert (outcome.code, outcome.json["code"]) == (Exit.REFUSED, "not_in_a_run")


RAW = """
import asyncio
import os
from pisub.client.bus import Bus
from pisub.config import load_settings
from pisub.errors import PisubError
from pisub.protocol.checkpoint import AskRequest, AskResult, ChildAsk, Question
from pisub.protocol.session import PeerKind


async def main():
    said = []
    for kind, to in ((PeerKind.HOST, "role:host"), (PeerKind.CLIENT, "ADDRESS")):
        async with await Bus.connect(load_settings(), kind=kind, session="s", authority=255) as bus:
            code = "not_delivered"  # the runner is connecting still, beside its run: it is no runner yet
            while code == "not_delivered":
                try:
                    await bus.call("run:OWN_RUN", ChildAsk(questions=(Question("Forged?"),)), AskResult, timeout_s=10)
                except PisubError as error:
                    code = error.code
            said.append(code)
            try:
                message = AskRequest(ask_id="a" * 26, run_id="OWN_RUN", agent="raw", questions=(Question("Forged?"),))
                await bus.call(to, message, AskResult, timeout_s=10, scope="s")
            except PisubError as error:
                said.append(error.code)
    return " ".join(said)
"""


@pytest.mark.parametrize("place", ["in the agent's own process", "in a process that it started"])
def test_without_the_grant_a_raw_message_is_refused_by_the_broker_and_counted(project: Project, place: str) -> None:
    from pisub.agents.trust import trust  # noqa: PLC0415

    (project.root / "raw_agent.py").write_text(
        textwrap.dedent("""
            import asyncio, pathlib, sys

            async def agent(child):
                code = pathlib.Path("raw.txt").read_text()
                code = code.replace("OWN_RUN", child.run_id).replace("ADDRESS", child.task)
                if "own" in pathlib.Path("place").read_text():
                    names = {}
                    exec(code, names)
                    return await names["main"]()
                code += "\\nprint(asyncio.run(main()))"
                process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=-1)
                out, _ = await process.communicate()
                return out.decode().strip()
        """)
    )
    (project.root / "raw.txt").write_text(RAW)
    (project.root / "place").write_text(place)
    front = f"name: raw\ndescription: Goes past.\nrunner:\n  type: python\n  target: raw_agent:agent\n{UNGRANTED}"
    (project.root / ".pisub" / "agents" / "raw.md").write_text(f"---\n{front}---\n")
    trust(project.settings, project.root)
    human = ScriptedHuman(["no"])

    async def main() -> None:
        async with pisub.host("s", human) as host:
            run = await host.spawn("raw", host.client.bus.address, project.root)
            assert await run.text() == "refused refused refused refused"
            async with await Bus.connect(project.settings, kind=PeerKind.OBSERVER) as bus:
                report = await bus.control(Status(), StatusReport)
            assert report.counters["refused_asks"] == 1
            assert human.asked == []

    asyncio.run(main())
