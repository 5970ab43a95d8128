"""What a host accepts, how it makes text safe to show, and in which order batches get their turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest

from pisub.errors import InvalidArgumentError, InvalidIdError
from pisub.hosting.queue_events import Ask
from pisub.hosting.requests import to_ask
from pisub.hosting.rotation import Rotation
from pisub.hosting.text import short_time, visible
from pisub.ids import new_id
from pisub.protocol.checkpoint import AskRequest, Question

REQUEST = AskRequest(
    ask_id=new_id(at_ms=1),
    run_id=new_id(at_ms=2),
    agent="scout",
    questions=(Question("Which?", ("l", "r")), Question("Why?", placeholder="a reason")),
    depth=1,
    label="left",
    why="to know",
    asked_at=7,
    timeout_ms=300_000,
    question_timeout_ms=0,
)


def changed(**fields: object) -> AskRequest:
    return msgspec.structs.replace(REQUEST, **fields)


def test_a_good_request_becomes_an_ask_with_times_in_seconds_and_nought_for_ever() -> None:
    assert to_ask(REQUEST, "s") == Ask(
        ask_id=REQUEST.ask_id,
        run_id=REQUEST.run_id,
        session_id="s",
        agent="scout",
        questions=REQUEST.questions,
        label="left",
        depth=1,
        why="to know",
        asked_at=7,
        timeout_s=300.0,
        question_timeout_s=None,
    )


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (changed(questions=()), "questions"),
        (changed(questions=(Question("x"),) * 33), "questions"),
        (changed(questions=(Question(" "),)), "text"),
        (changed(questions=(Question("x" * 8_001),)), "text"),
        (changed(questions=(Question("x", ("a",)),)), "options"),
        (changed(questions=(Question("x", ("a", "a")),)), "options"),
        (changed(questions=(Question("x", ("a", "")),)), "options"),
        (changed(questions=(Question("x", ("a", "b" * 501)),)), "options"),
        (changed(questions=(Question("x", tuple(map(str, range(65)))),)), "options"),
        (changed(questions=(Question("x", placeholder="p" * 501),)), "placeholder"),
        (changed(agent="a" * 501), "agent"),
        (changed(label="a" * 501), "label"),
        (changed(why="a" * 8_001), "why"),
        (changed(timeout_ms=-1), "timeoutMs"),
        (changed(question_timeout_ms=2**31), "questionTimeoutMs"),
    ],
)
def test_what_is_out_of_bounds_is_refused_with_the_fields_name(request_: AskRequest, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        to_ask(request_, "s")
    assert caught.value.field == field


@pytest.mark.parametrize("bad", ["../x", "", "x" * 26, "\0"])
def test_ids_that_are_none_are_refused(bad: str) -> None:
    for request in (changed(ask_id=bad), changed(run_id=bad)):
        with pytest.raises(InvalidIdError):
            to_ask(request, "s")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("grün 漢字 😀", "grün 漢字 😀"),
        ("a\x1b[2Jb\x00\x7f", "a␛[2Jb␀␡"),
        ("a\x9bb", "a<U+009B>b"),
        ("user\u202eexe.txt", "user<U+202E>exe.txt"),
        ("a\u200bb\u2066c", "a<U+200B>b<U+2066>c"),
        ("a\ud800b", "a<U+D800>b"),
        ("a\tb\r\nc\rd", "a    b\nc␍d"),
    ],
)
def test_nothing_is_shown_that_a_terminal_obeys_or_hides(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown, is_multiline=False) == shown.replace("\n", "␊")


def test_long_text_is_cut_and_short_time_is_minutes_and_seconds() -> None:
    assert visible("x" * 10, max_chars=4) == "xxx…"
    assert [short_time(each) for each in (-3, 9.9, 65, 3_600)] == ["0:00", "0:09", "1:05", "60:00"]


class Item(NamedTuple):
    session_id: str
    run_id: str
    number: int
    root: str = ""

    @property
    def tree_id(self) -> str:
        return self.root or self.run_id


def test_sessions_take_turns_and_in_them_runs() -> None:
    rotation: Rotation[Item] = Rotation()
    items = [Item("s", "a", 1), Item("s", "a", 2), Item("s", "b", 1), Item("t", "c", 1), Item("t", "c", 2)]
    for item in items:
        rotation.add(item)
    rotation.discard(Item("s", "z", 1))
    rotation.discard(Item("t", "c", 2))
    rotation.discard(Item("t", "c", 2))
    assert len(rotation) == 4
    take: Callable[[], Item] = rotation.take
    assert [take() for _ in range(4)] == [Item("s", "a", 1), Item("t", "c", 1), Item("s", "b", 1), Item("s", "a", 2)]
    with pytest.raises(LookupError):
        rotation.take()


def test_in_a_session_trees_take_turns_and_in_them_runs() -> None:
    rotation: Rotation[Item] = Rotation()
    crowd = [Item("s", f"child{number}", number, "root") for number in range(3)]
    lone = [Item("s", "lone", number) for number in range(3)]
    for item in (*crowd, *lone):
        rotation.add(item)
    assert [rotation.take() for _ in range(6)] == [crowd[0], lone[0], crowd[1], lone[1], crowd[2], lone[2]]
