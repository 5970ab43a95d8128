"""The scripted human, the file it reads, and the clock that is set by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from pisub.clock import Clock
from pisub.errors import InvalidArgumentError
from pisub.hosting.dialogs import DialogContext, Dialogs
from pisub.testing import Asked, FakeClock, ScriptedAnswer, ScriptedHuman, load_answers

CONTEXT = DialogContext(ask_id="a", run_id="r", agent="scout")


def answers(human: ScriptedHuman, *questions: tuple[str, Sequence[str]]) -> list[str | None]:
    async def ask() -> list[str | None]:
        dialogs: Dialogs = human
        return [
            await (dialogs.select(title, options, CONTEXT) if options else dialogs.input(title, "", CONTEXT))
            for title, options in questions
        ]

    return asyncio.run(ask())


def test_texts_answer_in_order_and_a_matching_item_goes_first() -> None:
    human = ScriptedHuman(["one", ScriptedAnswer(match="colour", answer="red"), "two"])
    assert answers(human, ("First?", ()), ("Which colour?", ("blue", "red")), ("Last?", ())) == ["one", "red", "two"]
    assert human.asked[1] == Asked(title="Which colour?", options=("blue", "red"), context=CONTEXT, answer="red")


def test_a_question_without_an_item_is_dismissed_and_kept() -> None:
    human = ScriptedHuman([ScriptedAnswer(match="colour", answer="red")])
    assert answers(human, ("Size?", ()), ("What colour?", ()), ("What colour?", ())) == [None, "red", None]
    assert human.unmatched == ["Size?", "What colour?"]


def test_an_item_can_choose_by_number_dismiss_and_take_its_time() -> None:
    human = ScriptedHuman([ScriptedAnswer(option=2, delay_ms=1), ScriptedAnswer(dismiss=True)])
    assert answers(human, ("Which?", ("l", "r")), ("Which?", ("l", "r"))) == ["r", None]
    assert human.unmatched == []


@pytest.mark.parametrize("item", ["up", ScriptedAnswer(option=3)])
def test_an_answer_that_is_no_option_is_an_error_of_the_script(item: str | ScriptedAnswer) -> None:
    with pytest.raises(InvalidArgumentError, match="the options are l, r"):
        answers(ScriptedHuman([item]), ("Which?", ("l", "r")))


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    expected = ["x", ScriptedAnswer(match="m", answer="a", delay_ms=5), ScriptedAnswer(dismiss=True)]
    (tmp_path / "a.yaml").write_text("- x\n- {match: m, answer: a, delayMs: 5}\n- dismiss: true\n", encoding="utf-8")
    (tmp_path / "a.json").write_text(
        json.dumps(["x", {"match": "m", "answer": "a", "delayMs": 5}, {"dismiss": True}]), encoding="utf-8"
    )
    assert load_answers(tmp_path / "a.yaml") == expected
    assert load_answers(tmp_path / "a.json") == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: b", "a list of answers is expected"),
        ("- [", "neither YAML nor JSON"),
        ("- x\n- {anser: y}", "item 2: Object contains unknown field `anser`"),
        ("- 2025", "item 1: put 2025 in quotes"),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match=complaint) as caught:
        load_answers(path)
    assert str(path) in caught.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        load_answers(tmp_path / "nowhere")


def test_fake_time_passes_when_the_test_says_so() -> None:
    clock = FakeClock(monotonic=5.0, wall_ms=1_000)
    shared: Clock = clock
    clock.advance(1.5)
    clock.step_wall(-600)
    assert (shared.monotonic(), shared.wall_ms()) == (6.5, 1_900)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


def test_a_script_without_an_end_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="has more than 1048576 bytes"):
        load_answers("/dev/zero")
