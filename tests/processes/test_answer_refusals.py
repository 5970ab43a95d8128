"""An answer that comes too late, twice, to nothing, or is none: refused with a reason, whichever way it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import pisub
from pisub.client.open_questions import OpenQuestion, open_question
from pisub.clock import SystemClock
from pisub.errors import PisubError
from pisub.protocol.checkpoint import Answer
from pisub.record.layout import Layout
from pisub.record.model import OutcomeKind, QuestionOutcome
from pisub.record.questions import list_open_asks, read_ask, record_outcome
from pisub.testing import ScriptedHuman
from tests.support.eventually import eventually_async
from tests.support.loops import in_loop
from tests.support.project import Project, make_project
from tests.support.scripts import add_script

#: Says what the refusal was, by its code; '' where there was none.
Way = Callable[[Project, pisub.Client, OpenQuestion, str], object]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


async def by_library(_: Project, client: pisub.Client, question: OpenQuestion, value: str) -> str:
    try:
        await client.questions.answer(question, value)
    except PisubError as error:
        return error.code
    return ""


async def by_command(project: Project, _: pisub.Client, question: OpenQuestion, value: str) -> str:
    outcome = await asyncio.to_thread(project.pisub, "answer", question.id, value, "--json")
    return "" if outcome.code == 0 else str(outcome.json["code"])


async def by_file(_: Project, client: pisub.Client, question: OpenQuestion, value: str) -> str:
    at = SystemClock().wall_ms()
    mine = QuestionOutcome(
        ask_id=question.ask_id,
        number=question.number,
        kind=OutcomeKind.ANSWERED,
        answer=Answer(value=value, by="a program", at=at),
        at=at,
    )
    try:
        stands = await asyncio.to_thread(record_outcome, client.layout, question.run_id, mine)
    except PisubError as error:
        return error.code
    return "" if stands == mine else "question_closed"


WAYS = [by_library, by_command, by_file]


async def asked(client: pisub.Client, run: pisub.Run) -> list[OpenQuestion]:
    def look() -> list[OpenQuestion]:
        asks = [ask for ask in list_open_asks(client.layout) if ask.record.run_id == run.id]
        found = [open_question(ask.record, number) for ask in asks for number in ask.open_numbers]
        return found if len(found) == 2 else []

    return await eventually_async(look, what="it asks")


@pytest.mark.parametrize("way", WAYS)
@in_loop
async def test_a_value_that_is_no_option_is_refused_and_the_question_stays_open(project: Project, way: Way) -> None:
    async with pisub.connect("s") as client:
        run = await client.spawn("ask", "x", project.root, on_no_host=pisub.OnNoHost.WAIT)
        which, _ = await asked(client, run)
        assert await way(project, client, which, "sideways") == "invalid_argument"
        assert which.id in [each.id for each in await client.questions.list()]
        await run.stop()


@pytest.mark.parametrize("way", WAYS)
@in_loop
async def test_the_second_answer_is_refused_and_the_first_stands(project: Project, way: Way) -> None:
    async with pisub.connect("s") as client:
        run = await client.spawn("ask", "x", project.root, on_no_host=pisub.OnNoHost.WAIT)
        which, why = await asked(client, run)
        await client.questions.answer(which, "left", by="the first")
        assert await way(project, client, which, "right") == "question_closed"
        await client.questions.answer(why, "because")
        assert await run.text() == "ok: ('left', 'because')"
        given = read_ask(client.layout, run.id, which.ask_id).outcomes[1].answer
        assert given is not None
        assert (given.value, given.by) == ("left", "the first")


@pytest.mark.parametrize("way", WAYS)
@in_loop
async def test_an_answer_after_the_ask_was_over_is_refused(project: Project, way: Way) -> None:
    async with pisub.connect("s") as client:
        run = await client.spawn("ask", "x", project.root, on_no_host=pisub.OnNoHost.WAIT)
        which, why = await asked(client, run)
        await client.questions.decline(which, "not now")
        await run.result()
        assert await way(project, client, why, "too late") in {"question_closed", "unknown_question"}
        assert read_ask(client.layout, run.id, which.ask_id).outcomes.keys() >= {1}


@pytest.mark.parametrize("way", WAYS)
@in_loop
async def test_an_answer_to_a_question_that_there_is_not_is_refused(project: Project, way: Way) -> None:
    async with pisub.connect("s") as client:
        run = await client.spawn("ask", "x", project.root, on_no_host=pisub.OnNoHost.WAIT)
        which, _ = await asked(client, run)
        for change in ({"number": 7, "id": f"{which.ask_id}.7"}, {"ask_id": run.id, "id": f"{run.id}.1"}):
            nothing = OpenQuestion(**{**{name: getattr(which, name) for name in which.__struct_fields__}, **change})
            assert await way(project, client, nothing, "left") == "unknown_question"
        await run.stop()


@in_loop
async def test_the_dialog_of_a_question_that_was_answered_elsewhere_closes_and_its_late_answer_changes_nothing(
    project: Project,
) -> None:
    shown, let_go = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedHuman):
        async def select(self, title: str, options: list[str], context: pisub.DialogContext) -> str | None:  # type: ignore[override]
            shown.set()
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                let_go.set()  # a face that answers although it was told to close
            return "left"

    async with pisub.host("s", Slow(["because"])) as host, pisub.connect("s") as client:
        run = await host.spawn("ask", "x", project.root)
        await shown.wait()
        which, _ = await asked(client, run)
        await client.questions.answer(which, "right")
        await eventually_async(let_go.is_set, what="the dialog is closed")
        assert await run.text() == "ok: ('right', 'because')"


def test_what_a_run_started_answers_nothing(project: Project) -> None:
    asking = project.launch("ask", "x", "--session", "s")
    layout = Layout.of(project.settings)
    add_script(
        project, "script", 'id=$(pisub questions | head -1 | cut -d" " -f1); pisub answer $id left; echo "code $?"'
    )
    while not project.pisub("questions", "--json").json["questions"]:
        pass
    run_id = project.launch("script")
    assert project.pisub("wait", run_id).code == 0
    assert project.pisub("result", run_id).out == "code 10\n"
    assert {each["runId"] for each in project.pisub("questions", "--json").json["questions"]} == {asking}
    project.pisub("stop", asking)
    assert layout.run(asking).result.exists()
