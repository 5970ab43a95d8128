"""The inbox in files: bounds, names, order, the end of it, and what does not parse."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pisub.config import Settings
from pisub.errors import InvalidArgumentError, RefusedError, UnknownRunError
from pisub.ids import new_id
from pisub.process import own_identity
from pisub.record.layout import Layout, RunPaths
from pisub.record.recovery import (
    Recovered,
    RecoveryClaim,
    claim_recovery,
    drop_recovery,
    read_recovery,
    record_recovered,
)
from pisub.record.steering import (
    SteerAck,
    SteerRequest,
    close_inbox,
    is_inbox_closed,
    is_waiting,
    make_request,
    read_acks,
    request_steer,
    take_requests,
    write_ack,
)
from pisub.runs.receipts import Recovery
from pisub.runs.spec import RunnerSpec
from pisub.runs.steering import NEVER_RELEASED, AckState, Mode
from tests.support.runner_runs import submit


@pytest.fixture
def paths(settings: Settings, tmp_path: Path) -> RunPaths:
    spec = submit(settings, RunnerSpec(type="python", target="x:y"), cwd=tmp_path)
    return Layout.of(settings).run(spec.run_id)


def request(name: str = "r", *, ts: int = 1, message: str = "m", mode: Mode = Mode.STEER) -> SteerRequest:
    return SteerRequest(id=name, ts=ts, message=message, mode=mode)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: request(message=" \n"), "message"),
        (lambda: request(message="é" * 65_537), "message"),
        (lambda: request(message="\ud800"), "message"),
        (lambda: request(""), "id"),
        (lambda: request("a b"), "id"),
        (lambda: request("x" * 257), "id"),
        (lambda: SteerRequest(id="r", ts=1, message="m", target_index=0, target_indexes=(1,)), "targetIndexes"),
        (lambda: SteerRequest(id="r", ts=1, message="m", target_index=1_000_001), "targetIndex"),
        (lambda: SteerRequest(id="r", ts=1, message="m", target_indexes=(1, 1)), "targetIndexes"),
        (lambda: SteerRequest(id="r", ts=1, message="m", target_indexes=tuple(range(1_001))), "targetIndexes"),
        (lambda: SteerRequest(id="r", ts=1, message="m", source="x" * 257), "source"),
        (lambda: SteerRequest(id="r", ts=10**13, message="m"), "ts"),
    ],
)
def test_a_request_beyond_a_bound_is_refused_with_the_field_s_name(
    paths: RunPaths, make: Callable[[], SteerRequest], field: str
) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        request_steer(paths, make())
    assert refused.value.field == field
    assert take_requests(paths) == []


def test_a_request_at_its_bounds_is_taken_whole(paths: RunPaths) -> None:
    largest = request("../é" + "x" * 252, message="é" * 65_536)
    request_steer(paths, largest)
    assert is_waiting(paths, largest)
    assert take_requests(paths) == [largest]
    assert not is_waiting(paths, largest)


def test_a_message_is_trimmed_and_the_default_mode_is_not_written(paths: RunPaths) -> None:
    made = make_request("  hello \n", now_ms=5, request_id="r")
    assert made == request(ts=5, message="hello")
    request_steer(paths, made)
    (file,) = paths.steer_requests.iterdir()
    assert file.name == "0000000000005-cg.json"
    assert '"mode"' not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_requests_are_taken_by_time_and_then_id_once_and_a_repeated_one_counts_once(paths: RunPaths) -> None:
    for name, ts in (("z", 1), ("b", 2), ("a", 2), ("z", 1)):
        request_steer(paths, request(name, ts=ts))
    assert [each.id for each in take_requests(paths)] == ["z", "a", "b"]
    assert take_requests(paths) == []


def test_what_does_not_parse_is_removed_and_what_cannot_be_removed_is_not_delivered(paths: RunPaths) -> None:
    request_steer(paths, request("good"))
    (paths.steer_requests / "0000000000001-bad.json").write_text("{")
    (paths.steer_requests / "0000000000002-dir.json").mkdir()
    assert [each.id for each in take_requests(paths)] == ["good"]
    assert [each.name for each in paths.steer_requests.iterdir()] == ["0000000000002-dir.json"]


def test_acknowledgements_are_ordered_by_time_then_rank_and_two_of_one_request_survive(paths: RunPaths) -> None:
    for state in (AckState.FAILED, AckState.DELIVERED, AckState.QUEUED, AckState.QUEUED):
        write_ack(paths, SteerAck(request_id="r", ts=7, state=state, message="word"))
    write_ack(paths, SteerAck(request_id="r", ts=6, state=AckState.QUEUED, message="x" * 2_000))
    write_ack(paths, SteerAck(request_id="other", ts=1, state=AckState.FAILED, message="no"))
    (paths.steer_acks / "0" / "0000000000009-0-cg.json").write_text("[]")
    acks = read_acks(paths, "r")
    assert [(ack.at, ack.state) for ack in acks] == [
        (6, AckState.QUEUED),
        (7, AckState.QUEUED),
        (7, AckState.DELIVERED),
        (7, AckState.FAILED),
    ]
    assert acks[0].text == "x" * 1_000


def test_a_closed_inbox_takes_nothing_and_fails_what_has_no_last_word(paths: RunPaths) -> None:
    request_steer(paths, request("late"))
    for name, states in (("queued", (AckState.QUEUED,)), ("done", (AckState.QUEUED, AckState.DELIVERED))):
        for state in states:
            write_ack(paths, SteerAck(request_id=name, ts=1, state=state, message="word"))
    assert close_inbox(paths, reason="The run ended: complete.", now_ms=9) == 2
    assert close_inbox(paths, reason="again", now_ms=10) == 0
    assert is_inbox_closed(paths)
    assert [ack.text for ack in read_acks(paths, "late")] == ["The run ended: complete. The message came too late."]
    assert [ack.text for ack in read_acks(paths, "queued")] == ["word", NEVER_RELEASED]
    assert [ack.state for ack in read_acks(paths, "done")] == [AckState.QUEUED, AckState.DELIVERED]
    with pytest.raises(RefusedError) as refused:
        request_steer(paths, request("later"))
    assert refused.value.code == "inbox_closed"
    assert take_requests(paths) == []


def test_a_run_that_does_not_exist_takes_no_message(settings: Settings) -> None:
    Layout.of(settings).prepare()
    with pytest.raises(UnknownRunError):
        request_steer(Layout.of(settings).run(new_id()), request())


def test_a_revival_has_one_claim_and_is_read_with_what_it_led_to(paths: RunPaths) -> None:
    claim = RecoveryClaim(request_id="claim", committed_at=5, by=own_identity())
    assert claim_recovery(paths, claim)
    assert not claim_recovery(paths, RecoveryClaim(request_id="other", committed_at=6, by=own_identity()))
    assert read_recovery(paths, "claim") == Recovery(committed_at=5)
    assert read_recovery(paths, "other") is None
    record_recovered(paths, Recovered(request_id="claim", replacement_run_id="new", at=7))
    assert read_recovery(paths, "claim") == Recovery(committed_at=5, replacement_run_id="new")
    drop_recovery(paths, "claim")
    assert read_recovery(paths, "claim") is None
    assert claim_recovery(paths, claim)
