"""A bug in the broker becomes a test: what it was told is kept, written down without bodies, and played again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from broker.crash import CrashReport, write_report
from broker.history import MAX_BATCH_BYTES, RING, Frames, Ticked
from broker.peers import Peer
from broker.topics import Topics
from pisub.protocol import codec
from pisub.protocol.delivery import Header, Kind, Priority
from pisub.protocol.limits import MAX_FRAME_BYTES
from pisub.protocol.session import Claim, Release, Shutdown, Subscribe, Watch
from tests.support.broker_world import EPOCH, World, process
from tests.support.crash_replay import load, replay


def report_of(world: World, error: str = "a bug") -> CrashReport:
    state = world.core.state
    return CrashReport(
        epoch=EPOCH,
        error=error,
        broker=state.broker,
        started_at=state.started_at,
        limits=state.limits,
        entries=world.core.history.entries(),
        counters=dict(state.counters),
    )


def tables(world_or_core: World | object) -> object:
    core = world_or_core.core if isinstance(world_or_core, World) else world_or_core
    state = core.state  # type: ignore[attr-defined]
    return (
        sorted((each.address, each.incarnation, each.route, each.authority) for each in state.peers.values()),
        {address: len(peer.mailbox) for address, peer in state.peers.items()},
        {key: role.holder and role.holder.address for key, role in state.roles.items()},
        {address: sorted(each.address for each in who) for address, who in state.watchers.items()},
        {
            (peer.address, number): call[0].address
            for peer in state.peers.values()
            for number, call in peer.calls.items()
        },
        {peer.address: set(peer.subscriptions) for peer in state.peers.values()},
        state.queued_bytes,
    )


def busy_world() -> World:
    world = World()
    a, b, slow = world.join("a"), world.join("b"), world.join("slow")
    a.control(Claim(role="host", scope="s"))
    b.control(Claim(role="host", scope="s", wait=True))
    slow.control(Subscribe(topic="t"))
    b.control(Watch(address="a"))
    a.call("b", b"a secret")
    world.advance(1.0)
    slow.is_blocked = True
    for number in range(20):
        a.publish("t", b"another secret %d" % number, priority=Priority.NORMAL)
    slow.is_blocked = False
    world.retry()
    gone = world.join("gone")
    gone.die()
    b.lose_connection()
    return world


def test_what_was_told_told_again_gives_the_same_tables(tmp_path: Path) -> None:
    world = busy_world()
    path = write_report(tmp_path, report_of(world))
    assert path is not None
    again = replay(load(path))
    assert tables(again) == tables(world)
    assert again.state.counters == world.core.state.counters


def test_no_body_of_a_message_between_peers_is_written_down(tmp_path: Path) -> None:
    path = write_report(tmp_path, report_of(busy_world()))
    assert path is not None
    kept = [each for entry in load(path).entries if isinstance(entry, Frames) for each in entry.frames]
    assert any(each.left_out == len(b"a secret") for each in kept)
    assert not any(b"secret" in each.start for each in kept)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_crash_file_raises_the_bug_again_for_as_long_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = Topics.receivers

    def buggy(self: Topics, topic: str, scope: str) -> tuple[Peer, ...]:
        return (self.no_such_table, *healthy(self, topic, scope)) if topic == "boom" else healthy(self, topic, scope)  # type: ignore[attr-defined]

    world = busy_world()
    with monkeypatch.context() as patch:
        patch.setattr(Topics, "receivers", buggy)
        with pytest.raises(AttributeError) as raised:
            next(iter(world.clients.values())).publish("boom", b"the last message")
        path = write_report(tmp_path, report_of(world, f"{raised.type.__name__}: {raised.value}"))
        assert path is not None
        with pytest.raises(AttributeError, match="no_such_table"):
            replay(load(path))
    assert load(path).error.startswith("AttributeError")
    assert "a" in replay(load(path)).state.peers, "the bug is mended: the same history passes"


def test_a_connection_older_than_the_ring_is_still_who_it_was(tmp_path: Path) -> None:
    world = World()
    a, gone = world.join("a"), world.join("gone")
    a.control(Claim(role="host"))
    a.control(Subscribe(topic="t"))
    gone.lose_connection()
    world.advance(10.0)
    for _ in range(2 * RING):
        a.publish("t")
    entries = world.core.history.entries()
    assert len(entries) < RING + 10
    again = replay(report_of(world))
    assert {peer.address: dict(peer.roles) for peer in again.state.peers.values()} == {"a": {("host", ""): 1}}
    assert [each.topic for each in again.state.peers["a"].subscriptions] == ["t"]


def test_what_is_kept_is_bounded_in_bytes_and_ticks_do_not_push_it_out() -> None:
    world = World()
    a = world.join("a")
    world.join("b")
    frame = codec.pack(Header(kind=Kind.TELL, message_id=9, to="b"), bytes(MAX_BATCH_BYTES // 2))
    world.apply(world.core.handle_batch([(a.route, frame)] * 2, world.now))
    world.receive(a.route, bytes(MAX_FRAME_BYTES + 5))
    world.advance(3600.0)
    *_, big, unreadable, tick = world.core.history.entries()
    assert isinstance(big, Frames)
    assert [each.left_out for each in big.frames] == [MAX_BATCH_BYTES // 2] * 2
    assert isinstance(unreadable, Frames)
    assert (unreadable.frames[0].start, unreadable.frames[0].left_out) == (b"", MAX_FRAME_BYTES + 5)
    assert isinstance(tick, Ticked)
    again = replay(report_of(world))
    assert again.state.counters["refused_too_large"] == 1


def test_every_event_survives_being_written_down(tmp_path: Path) -> None:
    world = busy_world()
    a = next(iter(world.clients.values()))
    a.control(Release(role="host", scope="s"))
    stranger = world.connect(pid=77, ancestors=(5, 4), is_full=True)
    stranger.hello("c")
    a.control(Shutdown())
    report = report_of(world)
    path = write_report(tmp_path, report)
    assert path is not None
    assert load(path) == report
    assert msgspec.json.decode(path.read_bytes())["broker"]["pid"] == process(1).pid
