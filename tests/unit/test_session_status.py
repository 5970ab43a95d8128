"""A session's status from its record, and when a host answers from memory."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pisub.client.status import Projection, SessionStatus, StatusQuery, StatusReader, check_query
from pisub.config import load_settings
from pisub.errors import InvalidArgumentError, UnknownRunError
from pisub.hosting.live import FRESH_S, LiveStatus
from pisub.ids import new_id
from pisub.process import own_identity
from pisub.protocol.fleet import Capacity
from pisub.protocol.runs import RunState
from pisub.record.commit import commit_end
from pisub.record.ends import end_status, initial_status
from pisub.record.journal import Journal
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.subscriptions import WaitSubscription, subscribe
from pisub.runs.spec import LaunchFacts, RunSpec
from pisub.testing import FakeClock
from tests.support.eventually import eventually_async
from tests.support.fleet_jobs import job, step
from tests.support.record_samples import NOW_MS, SESSION, make_layout, make_result, start, submit


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_layout(tmp_path)


def reader(layout: Layout, session_id: str = SESSION) -> StatusReader:
    settings = load_settings(max_active_async_runs_per_session=7)
    return StatusReader(layout, session_id, settings, clock=FakeClock(wall_ms=NOW_MS + 5_000))


def ask(layout: Layout, **query: object) -> SessionStatus:
    source = reader(layout)
    wanted = msgspec.convert(query, StatusQuery)
    check_query(wanted)
    return source.answer(wanted, source.read())


def test_runs_of_the_session_that_go_on_are_in_the_fleet(layout: Layout) -> None:
    facts = LaunchFacts(definition_digest="", launch_contract_digest="", contract_digest="", thinking="high")
    one = submit(layout, run_id=new_id(at_ms=1), label="the goal", launch=facts)
    start(layout, one, own_identity())
    submit(layout, run_id=new_id(at_ms=2))
    start(layout, submit(layout, run_id=new_id(at_ms=3), session_id="another"), own_identity())
    fleet = reader(layout).fleet(reader(layout).read())
    assert [(each.key, each.agent, each.effort, each.goal, each.started_at) for each in fleet.entries] == [
        ("fleet-1", "tester", msgspec.UNSET, msgspec.UNSET, NOW_MS),
        ("fleet-2", "tester", "high", "the goal", NOW_MS + 1),
    ]
    assert (fleet.total_active, fleet.top_level_async_capacity) == (2, Capacity(used=2, limit=7))


def test_a_run_is_below_the_one_that_started_it_and_by_itself_when_that_has_ended(layout: Layout) -> None:
    parent = submit(layout, run_id=new_id(at_ms=1))
    child = submit(layout, run_id=new_id(at_ms=2), parent_run_id=parent.run_id, root_run_id=parent.run_id, depth=1)
    start(layout, parent, own_identity())
    start(layout, child, own_identity())
    assert [(each.id, [below.id for below in each.children]) for each in reader(layout).read().jobs] == [
        (parent.run_id, [child.run_id])
    ]
    finish(layout, parent)
    assert sorted((each.id, each.children) for each in reader(layout).read().jobs) == [
        (parent.run_id, ()),
        (child.run_id, ()),
    ]


def finish(layout: Layout, spec: RunSpec) -> None:
    lock = RunLock.acquire(layout.run(spec.run_id).lock)
    assert lock is not None
    result = make_result(spec)
    status = end_status(initial_status(spec, own_identity(), started_at=NOW_MS + 1), result)
    with lock:
        commit_end(layout, lock, status, result)


def test_what_ended_is_in_the_snapshot_and_not_in_the_fleet(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, own_identity())
    finish(layout, spec)
    found = ask(layout)
    assert (found.fleet.total_active, [(each.id, each.state) for each in found.snapshot.runs]) == (
        0,
        [(spec.run_id, RunState.COMPLETE)],
    )
    assert found.snapshot.runs[0].ended_at == NOW_MS + 1_000
    assert found.text.startswith("No active runs in this session.")


def test_nothing_that_is_private_is_in_the_fleet_or_the_snapshot(layout: Layout) -> None:
    spec = submit(layout, task="SECRET task", cwd="/SECRET/cwd")
    start(layout, spec, own_identity())
    found = ask(layout)
    both = msgspec.json.encode([found.fleet, found.snapshot])
    assert b"SECRET" not in both
    assert str(layout.root).encode() not in both


def test_a_damaged_run_hides_no_other_and_is_said(layout: Layout) -> None:
    good, bad = submit(layout), submit(layout)
    layout.run(bad.run_id).spec.write_text("{")
    found = ask(layout)
    assert [each.id for each in found.snapshot.runs] == [good.run_id]
    assert "Problem: " in found.text


def test_a_plain_answer_by_reading_says_places_and_waits(layout: Layout) -> None:
    spec = submit(layout)
    wait = WaitSubscription(
        token=new_id(), session_id=SESSION, run_id=spec.run_id, requested_id="x", created_at=1, expires_at=2
    )
    assert subscribe(layout, wait)
    found = ask(layout)
    lines = found.text.splitlines()
    assert lines == [
        "1 active run in this session:",
        f"- {spec.run_id} tester queued, 5 s",
        f"Record: {layout.runs}",
        "Waits in the background: 1",
    ]
    assert found.details == {
        "runs": [
            {
                "runId": spec.run_id,
                "state": "queued",
                "mode": "single",
                "agents": ["tester"],
                "asyncDir": str(layout.run(spec.run_id).dir),
            }
        ]
    }


def test_the_short_answer_says_no_place(layout: Layout) -> None:
    spec = submit(layout)
    source = reader(layout)
    found = source.short(source.read())
    assert found.text == f"1 active run in this session:\n- {spec.run_id} tester queued, 5 s"
    assert found.details is None
    assert (found.fleet.total_active, len(found.snapshot.runs)) == (1, 1)


def test_the_fleet_in_words(layout: Layout) -> None:
    submit(layout, label="look\x1b[2J around")
    assert ask(layout, view="fleet").text == "1 child at work:\n- fleet-1 tester, 5 s: look around"


def test_one_run_in_words(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, own_identity())
    found = ask(layout, run_id=spec.run_id[:20])
    assert found.text == (
        f"Run {spec.run_id}: running\nAgent: tester\nStep 0: tester running\nDir: {layout.run(spec.run_id).dir}"
    )
    assert found.fleet.total_active == 1
    assert ask(layout, run_id=spec.run_id, index=0).text == found.text


def test_a_step_that_is_not_there_is_an_error(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, own_identity())
    with pytest.raises(UnknownRunError, match="has no step 1"):
        ask(layout, run_id=spec.run_id, index=1)


def test_a_transcript_is_the_last_lines(layout: Layout) -> None:
    spec = submit(layout)
    start(layout, spec, own_identity())
    with Journal.open(layout.run(spec.run_id), spec.run_id) as journal:
        for number in range(200):
            journal.append("subagent.child.stdout", {"text": f"line {number}"}, ts=NOW_MS)
        journal.flush()
    assert ask(layout, run_id=spec.run_id, view="transcript", lines=2).text == "line 198\nline 199"
    assert len(ask(layout, run_id=spec.run_id, view="transcript").text.splitlines()) == 80


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"view": "tree"}, "view"),
        ({"lines": 0}, "lines"),
        ({"lines": 501}, "lines"),
        ({"lines": True}, "lines"),
        ({"run_id": "abcd", "index": -1}, "index"),
        ({"index": 0}, "run_id"),
        ({"view": "transcript"}, "run_id"),
    ],
    ids=str,
)
def test_a_query_that_cannot_be_answered_names_its_field(query: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_query(StatusQuery(**query))  # type: ignore[arg-type]
    assert caught.value.field == field


class Counted(StatusReader):
    """Counts how often the record is read, and lets a test hold a reading up."""

    def __init__(self) -> None:
        super().__init__(Layout(Path("/nowhere")), SESSION, load_settings(), clock=FakeClock())
        self.reads = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def read(self) -> Projection:
        self.reads += 1
        assert self.go_on.wait(30)
        return Projection(
            session_id=SESSION, jobs=(job("r", step(), session_id=SESSION),), capacity=Capacity(used=1, limit=0)
        )


def live(counted: Counted, is_ready: Callable[[], bool] = lambda: True) -> tuple[LiveStatus, FakeClock]:
    clock = FakeClock()
    return LiveStatus(counted, clock=clock, is_ready=is_ready), clock


FLEET = StatusQuery(view="fleet")


def test_a_plain_query_is_answered_from_memory_while_that_is_fresh() -> None:
    async def scenario() -> None:
        counted = Counted()
        status, clock = live(counted)
        await status.status(FLEET)
        for _ in range(100):
            assert (await status.status()).details is None
        assert counted.reads == 1
        clock.advance(FRESH_S)
        await status.status(FLEET)
        assert counted.reads == 2
        status.forget()
        await status.status(FLEET)
        assert counted.reads == 3

    asyncio.run(scenario())


def test_what_asks_for_something_is_never_answered_from_memory() -> None:
    async def scenario() -> None:
        counted = Counted()
        status, _ = live(counted)
        await status.status(FLEET)
        await status.status(FLEET)
        assert counted.reads == 2

    asyncio.run(scenario())


def test_a_host_that_hears_of_nothing_reads() -> None:
    async def scenario() -> None:
        counted = Counted()
        status, _ = live(counted, lambda: False)
        for _ in range(3):
            await status.status(FLEET)
        assert counted.reads == 3

    asyncio.run(scenario())


def test_however_many_ask_at_once_the_record_is_read_once() -> None:
    async def scenario() -> None:
        counted = Counted()
        status, _ = live(counted)
        counted.go_on.clear()
        asking = [asyncio.create_task(status.status(FLEET)) for _ in range(50)]
        await asyncio.sleep(0)
        asking[0].cancel()
        counted.go_on.set()
        answers = await asyncio.gather(*asking[1:])
        assert counted.reads == 1
        assert {each.fleet.entries[0].key for each in answers} == {"fleet-1"}

    asyncio.run(scenario())


def test_what_was_read_before_news_is_not_remembered() -> None:
    async def scenario() -> None:
        counted = Counted()
        status, _ = live(counted)
        counted.go_on.clear()
        asking = asyncio.create_task(status.status(FLEET))
        await eventually_async(lambda: counted.reads, what="the record is being read")
        status.forget()
        counted.go_on.set()
        await asking
        await status.status(FLEET)
        assert counted.reads == 2

    asyncio.run(scenario())
