from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pisub.client.waiting import Identity, Item, Snapshot, Verdict, WaitCore, WaitEnd, WaitMode, pick_id
from pisub.errors import AmbiguousIdError, UnknownRunError

A, B, C = (Identity(name, "s") for name in "abc")
JOB = Identity("job", "s", "queue")


def there(*items: Identity, ended: tuple[Identity, ...] = (), problems: dict[str, str] | None = None) -> Snapshot:
    active = [Item(identity=each, is_active=True) for each in items]
    return Snapshot(items=(*active, *(Item(identity=each, is_active=False) for each in ended)), problems=problems or {})


def quiet(identity: Identity, **fields: Any) -> Item:
    return Item(**({"identity": identity, "is_active": True, "attention": "quiet"} | fields))


def begun(mode: WaitMode, *items: Identity, **fields: Any) -> WaitCore:
    core = WaitCore(mode, **fields)
    assert core.begin(there(*items)) is None
    return core


def test_one_that_ends_while_another_begins_ends_a_wait_for_the_first() -> None:
    core = begun(WaitMode.FIRST, A)
    assert core.look(there(A, B)) is None
    assert core.look(there(B, ended=(A,))) == Verdict(end=WaitEnd.COMPLETED, finished=(A,))


def test_all_is_all_who_were_there_and_nobody_who_came_later() -> None:
    core = begun(WaitMode.ALL, A, B)
    assert core.look(there(B, C, ended=(A,))) is None
    assert core.look(there(C, ended=(A, B))) == Verdict(end=WaitEnd.COMPLETED, finished=(A, B))


def test_the_first_leaves_the_others_and_says_who_is_active_still() -> None:
    core = begun(WaitMode.FIRST, A, B)
    assert core.look(there(A, ended=(B,))) == Verdict(end=WaitEnd.COMPLETED, finished=(B,), active=(A,))


def test_nothing_to_wait_for_is_no_error() -> None:
    assert WaitCore(WaitMode.FIRST).begin(there(ended=(A,))) == Verdict(end=WaitEnd.NOTHING)
    assert WaitCore(WaitMode.ID).begin(there(ended=(A,)), named=A) == Verdict(end=WaitEnd.NOTHING, finished=(A,))
    assert not WaitEnd.NOTHING.is_error


def test_the_end_of_time_and_an_abort_are_errors_that_list_who_is_active() -> None:
    core = begun(WaitMode.ALL, A, B)
    for end in (WaitEnd.TIMEOUT, WaitEnd.ABORTED):
        verdict = core.give_up(end, there(A, ended=(B,)))
        assert (verdict.end.is_error, verdict.active, verdict.finished) == (True, (A,), (B,))


@pytest.mark.parametrize("is_first", [True, False], ids=["at the call", "later"])
def test_attention_ends_a_wait(is_first: bool) -> None:
    snapshot = Snapshot(items=(quiet(A),))
    core = WaitCore(WaitMode.ALL)
    verdict = core.begin(snapshot if is_first else there(A))
    verdict = verdict if is_first else core.look(snapshot)
    assert verdict == Verdict(end=WaitEnd.ATTENTION, active=(A,), reason="a: quiet")


def test_quiet_is_waited_through_where_asked_and_a_question_is_not() -> None:
    core = begun(WaitMode.FIRST, A, stop_on_attention=False)
    assert core.look(Snapshot(items=(quiet(A),))) is None
    verdict = core.look(Snapshot(items=(quiet(A, attention="asks", must_stop=True),)))
    assert verdict is not None
    assert verdict.end is WaitEnd.ATTENTION


def test_attention_of_one_who_is_not_waited_for_changes_nothing() -> None:
    core = begun(WaitMode.ALL, A)
    assert core.look(Snapshot(items=(Item(identity=A, is_active=True), quiet(B)))) is None


def test_who_vanishes_or_whose_provider_fails_is_not_said_to_have_ended() -> None:
    core = begun(WaitMode.ALL, A, JOB)
    for snapshot in (there(A), there(JOB), there(A, problems={"queue": "broken"})):
        verdict = core.look(snapshot)
        assert verdict is not None
        assert verdict.end is WaitEnd.UNCONFIRMED
        assert verdict.end.is_error


def test_a_provider_that_fails_at_the_begin_ends_the_wait_and_one_that_is_not_waited_for_does_not() -> None:
    verdict = WaitCore(WaitMode.ALL).begin(there(A, problems={"queue": "broken"}))
    assert verdict is not None
    assert verdict.reason == "provider queue: broken"
    core = begun(WaitMode.ALL, A)
    assert core.look(there(A, problems={"queue": "broken"})) is None


def test_a_provider_of_a_named_run_is_not_looked_at() -> None:
    core = WaitCore(WaitMode.ID)
    assert core.begin(there(A, problems={"queue": "broken"}), named=A) is None


def test_an_exact_id_wins_over_a_longer_one_that_begins_so() -> None:
    assert pick_id("ab", ["abc", "ab", "abd"]) == "ab"
    assert pick_id("abc", ["abcd", "abx"]) == "abcd"
    with pytest.raises(AmbiguousIdError) as caught:
        pick_id("ab", ["abd", "abc"])
    assert caught.value.candidates == ("abc", "abd")
    for text in ("x", "", "../a"):
        with pytest.raises(UnknownRunError):
            pick_id(text, ["abc"])


def test_a_verdict_is_a_value() -> None:
    assert msgspec.structs.asdict(Verdict(end=WaitEnd.NOTHING))["end"] == "nothing"
