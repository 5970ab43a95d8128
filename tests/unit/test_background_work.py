"""Providers of work that is no run: what may be registered, what may be said, and that one wrong word is no word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pisub.client.background_work import BackgroundWork, WorkContext, WorkItem, WorkSnapshot
from pisub.errors import InvalidArgumentError
from pisub.protocol.limits import MAX_PROVIDERS, MAX_WORK_ITEMS
from pisub.testing import fake_time

SESSION = "a session"


def nothing(_: WorkContext) -> list[WorkItem]:
    return []


def ask(work: BackgroundWork, **options: Any) -> WorkSnapshot:
    return fake_time.run(work.snapshot(SESSION, now_ms=7, **options))


def item(number: object = 1, session: object = SESSION, **more: object) -> dict[str, object]:
    return {"id": f"job {number}", "sessionId": session, **more}


@pytest.mark.parametrize(
    ("field", "arguments", "says"),
    [
        ("name", {"name": ""}, "name is empty."),
        ("name", {"name": " queue"}, "white space around it"),
        ("name", {"name": "que\0ue"}, "a NUL in it"),
        ("name", {"name": "q" * 129}, "at most 128"),
        ("name", {"name": 7}, "must be a text, not int"),
        ("list_active_work", {"list_active_work": []}, "must be a function, not list"),
        ("list_active_work", {"list_active_work": None}, "must be a function, not NoneType"),
        ("reconcile", {"reconcile": "now"}, "must be a function, not str"),
        ("wake_channels", {"wake_channels": "jobs"}, "must be a list of topics, not str"),
        ("wake_channels", {"wake_channels": ["jobs", "jobs"]}, "names a topic twice"),
        ("wake_channels", {"wake_channels": ["jobs "]}, "white space around it"),
        ("wake_channels", {"wake_channels": ["j" * 257]}, "at most 256"),
        ("wake_channels", {"wake_channels": [3]}, "must be a text, not int"),
    ],
)
def test_what_cannot_be_a_provider_is_refused_by_its_field_and_registers_nothing(
    field: str, arguments: dict[str, Any], says: str
) -> None:
    work = BackgroundWork()
    with pytest.raises(InvalidArgumentError, match=says) as refused:
        work.register(**{"name": "queue", "list_active_work": nothing, **arguments})
    assert (refused.value.field, work.names) == (field, ())


def test_a_field_that_no_provider_has_is_refused() -> None:
    with pytest.raises(TypeError, match="kind"):
        BackgroundWork().register("queue", nothing, kind="x")  # type: ignore[call-arg]  # that is the test


def test_the_longest_names_are_taken() -> None:
    work = BackgroundWork()
    work.register("q" * 128, nothing, wake_channels=["j" * 256])
    assert (work.names, work.wake_channels) == (("q" * 128,), ("j" * 256,))


def test_a_hundred_providers_are_the_most_and_one_of_them_can_still_be_taken_over() -> None:
    work = BackgroundWork()
    for number in range(MAX_PROVIDERS):
        work.register(f"p{number}", nothing)
    with pytest.raises(InvalidArgumentError, match="that is the most"):
        work.register("one more", nothing)
    unregister = work.register("p0", nothing)
    unregister()
    work.register("one more", nothing)
    assert len(work.names) == MAX_PROVIDERS


def test_who_takes_a_name_over_is_not_taken_back_by_the_old_owner() -> None:
    work = BackgroundWork()
    old = work.register("queue", nothing)
    new = work.register("queue", lambda _: [item()])
    old()
    old()
    assert ask(work) == WorkSnapshot(items={"queue": ("job 1",)})
    new()
    assert ask(work) == WorkSnapshot()


def test_a_provider_reconciles_before_it_lists_and_is_told_which_session_and_when() -> None:
    calls: list[tuple[str, WorkContext]] = []

    async def reconcile(context: WorkContext) -> None:
        await asyncio.sleep(0)
        calls.append(("reconcile", context))

    async def listing(context: WorkContext) -> list[dict[str, object]]:
        await asyncio.sleep(0)
        calls.append(("list", context))
        return [item(1), item(1, "another"), item(2)]

    work = BackgroundWork()
    work.register("queue", listing, reconcile=reconcile)
    assert ask(work) == WorkSnapshot(items={"queue": ("job 1", "job 2")})
    context = WorkContext(session_id=SESSION, now_ms=7)
    assert calls == [("reconcile", context), ("list", context)]


def test_topics_are_listed_once_each_and_nobody_is_asked_for_them() -> None:
    def asked(_: WorkContext) -> list[WorkItem]:
        raise AssertionError("asked")

    work = BackgroundWork()
    work.register("one", asked, reconcile=asked, wake_channels=["a", "b"])  # type: ignore[arg-type]  # it only raises
    work.register("two", asked, wake_channels=["b", "c"])
    assert work.wake_channels == ("a", "b", "c")


@pytest.mark.parametrize(
    ("listed", "says"),
    [
        (None, "it is no list but of type NoneType"),
        ("jobs", "it is no list but of type str"),
        ({"id": "a"}, "it is no list but of type dict"),
        ([item(note="x")], "unknown field `note`"),
        ([{"id": "a"}], "missing required field `sessionId`"),
        ([{"id": "", "sessionId": SESSION}], "length >= 1"),
        ([{"id": "a" * 257, "sessionId": SESSION}], "length <= 256"),
        ([{"id": 3, "sessionId": SESSION}], "Expected `str`, got `int`"),
        ([item(1, "s" * 257)], "length <= 256"),
        ([WorkItem(id="", session_id=SESSION)], "length >= 1"),
        ([WorkItem(id=3, session_id=SESSION)], "Expected `str`, got `int`"),  # type: ignore[arg-type]  # the test
        ([item(), item()], "it has 'job 1' of session 'a session' twice"),
        ([item(1, "another"), item(1, "another")], "it has 'job 1' of session 'another' twice"),
        ([item(n) for n in range(MAX_WORK_ITEMS + 1)], "10001 items; 10000 are the most"),
    ],
)
def test_one_wrong_item_makes_a_problem_of_all_that_its_provider_said_and_of_no_other(listed: Any, says: str) -> None:
    work = BackgroundWork()
    work.register("wrong", lambda _: listed)
    work.register("right", lambda _: [item()])
    snapshot = ask(work)
    assert snapshot.items == {"right": ("job 1",)}
    assert list(snapshot.problems) == ["wrong"]
    assert snapshot.problems["wrong"].startswith("list_active_work returned what cannot be used: ")
    assert says in snapshot.problems["wrong"]


def test_ten_thousand_items_are_taken() -> None:
    work = BackgroundWork()
    work.register("queue", lambda _: [item(n) for n in range(MAX_WORK_ITEMS)])
    assert len(ask(work).items["queue"]) == MAX_WORK_ITEMS


def _raises(error: Exception) -> Callable[[WorkContext], Any]:
    def function(_: WorkContext) -> None:
        raise error

    return function


async def _hangs(_: WorkContext) -> list[WorkItem]:
    await asyncio.Event().wait()
    return []


@pytest.mark.parametrize(
    ("listing", "reconcile", "problem"),
    [
        (_raises(ValueError("no database")), None, "list_active_work failed: no database"),
        (_raises(ValueError()), None, "list_active_work failed: ValueError"),
        (nothing, _raises(KeyError("x")), "reconcile failed: 'x'"),
        (_hangs, None, "list_active_work failed: it did not return within 10 s"),
        (nothing, _hangs, "reconcile failed: it did not return within 10 s"),
    ],
)
def test_a_provider_that_raises_or_hangs_is_a_problem_that_says_where(
    listing: Any, reconcile: Any, problem: str
) -> None:
    work = BackgroundWork()
    work.register("queue", listing, reconcile=reconcile)
    assert ask(work) == WorkSnapshot(problems={"queue": problem})


def test_only_who_is_asked_for_is_asked_and_who_is_not_there_is_a_problem() -> None:
    work = BackgroundWork()
    work.register("one", lambda _: [item()])
    work.register("two", _raises(AssertionError("asked")))
    assert ask(work, names=["one", "gone"]) == WorkSnapshot(
        items={"one": ("job 1",)},
        problems={"gone": "it is not registered any more, so the end of its work cannot be confirmed"},
    )
