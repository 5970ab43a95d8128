"""Messages over the bound of a frame: those that may go by a file, and nobody sees it; the others are refused here."""

from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pisub.bodies import BODIES_DIR, BodyReference, read_body, sweep_bodies, write_body
from pisub.client.bus import Bus, Incoming, Sender
from pisub.config import Settings
from pisub.errors import FrameTooLargeError, PisubError, ProtocolError
from pisub.paths import runtime_dir
from pisub.protocol import codec
from pisub.protocol.checkpoint import Answer, AskRequest, AskResult, AskStatus, Question
from pisub.protocol.delivery import Flag, Kind
from pisub.protocol.limits import MAX_BODY_BYTES
from pisub.protocol.session import PeerKind
from tests.support.broker_process import rig
from tests.support.bus_peer import Said, Say
from tests.support.eventually import eventually_async

MIB = 2**20
LARGE = AskRequest(
    ask_id="a" * 26,
    run_id="r" * 26,
    agent="x",
    questions=tuple(Question(f"{number:08000}", options=tuple(f"{o:0400}" for o in range(64))) for number in range(32)),
)
ANSWERS = AskResult(
    status=AskStatus.OK, answers=tuple(Answer(value=f"{number:032000}", by="host", at=1) for number in range(32))
)


def with_host(settings: Settings, work: Callable[[Bus, Bus], Awaitable[None]]) -> None:
    async def main() -> None:
        async with (
            await Bus.connect(settings, kind=PeerKind.CLIENT) as asker,
            await Bus.connect(settings, kind=PeerKind.HOST, address="host:1") as host,
        ):
            await host.claim("host", "s")
            await work(asker, host)

    asyncio.run(main())


def bodies(settings: Settings) -> list[Path]:
    directory = runtime_dir(settings) / BODIES_DIR
    return sorted(directory.iterdir()) if directory.exists() else []


def test_an_ask_of_a_mebibyte_and_its_answer_arrive_whole_and_leave_no_file_behind_the_call(settings: Settings) -> None:
    assert len(codec._encode(LARGE)) > MIB

    async def work(asker: Bus, host: Bus) -> None:
        seen: list[AskRequest] = []
        modes: list[int] = []

        def answer(request: AskRequest, _sender: Sender) -> AskResult:
            modes.extend(stat.S_IMODE(path.stat().st_mode) for path in bodies(settings))
            seen.append(request)
            return ANSWERS

        host.serve(AskRequest, answer)
        assert await asker.call("role:host", LARGE, AskResult, timeout_s=20, scope="s", idempotent=True) == ANSWERS
        assert seen == [LARGE]
        assert modes == [0o600]
        assert stat.S_IMODE((runtime_dir(settings) / BODIES_DIR).stat().st_mode) == 0o700
        assert len(bodies(settings)) == 1, "the question's went with its call, the answer's waits for a repeat"

    with_host(settings, work)


def test_told_and_published_messages_may_be_large_too(settings: Settings) -> None:
    async def work(asker: Bus, host: Bus) -> None:
        got: list[object] = []
        host.on_tell(AskRequest, lambda message, _sender: got.append(message))
        await host.subscribe("t", lambda incoming: got.append(incoming.decode(AskResult)))
        asker.tell("host:1", LARGE)
        asker.publish("t", ANSWERS)
        await eventually_async(lambda: len(got) == 2, what="both arrive")
        assert got == [LARGE, ANSWERS]

    with_host(settings, work)


def test_a_message_that_may_not_be_large_is_refused_by_its_sender_and_costs_no_other(settings: Settings) -> None:
    async def work(asker: Bus, host: Bus) -> None:
        host.serve(Say, lambda message, _sender: Said(text=message.text * 2, times=1))
        too_large = Say(text="x" * MAX_BODY_BYTES)
        with pytest.raises(FrameTooLargeError):
            await asker.call("host:1", too_large, Said, timeout_s=20)
        for send in (lambda: asker.tell("host:1", too_large), lambda: asker.publish("t", too_large)):
            with pytest.raises(FrameTooLargeError):
                send()
        with pytest.raises(PisubError) as answered:
            await asker.call("host:1", Say(text="x" * (MAX_BODY_BYTES // 2 + 1)), Said, timeout_s=20)
        assert answered.value.code == "too_large", "an answer that does not fit is the caller's error"
        assert (await asker.call("host:1", Say(text="x"), Said, timeout_s=20)).text == "xx"
        assert bodies(settings) == []

    with_host(settings, work)


@pytest.mark.parametrize(
    "name", ["../broker.json", "/etc/passwd", "", "1-1-00000000-0123456789abcdef", "x" * 300, "\0"]
)
def test_a_reference_to_what_is_no_body_reads_nothing(tmp_path: Path, name: str) -> None:
    with rig(tmp_path) as broker:

        async def main() -> None:
            async with await Bus.connect(broker.settings, kind=PeerKind.HOST, address="host:1") as host:
                got: list[Incoming] = []
                asked: list[object] = []
                host.serve(AskRequest, lambda message, _sender: asked.append(message) or ANSWERS)  # type: ignore[func-returns-value]
                await host.subscribe("t", got.append)
                client = await asyncio.to_thread(broker.client, "liar")
                body = BodyReference(name=name, bytes=5, sha256="0" * 64)
                client.send(Kind.PUBLISH, body, topic="t", flags=Flag.REFERENCE)
                call = client.send(Kind.CALL, body, to="host:1", flags=Flag.REFERENCE)
                _, header, answer = await asyncio.to_thread(client.receive)
                assert (header.kind, header.correlation_id) == (Kind.FAIL, call)
                assert b"protocol_error" in answer
                await eventually_async(lambda: got, what="the publication arrives")
                with pytest.raises(ProtocolError):
                    got[0].decode(AskRequest)
                assert asked == []

        asyncio.run(main())


def test_a_body_that_was_changed_or_is_a_symlink_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / BODIES_DIR
    reference = write_body(directory, b"content")
    assert read_body(directory, reference) == b"content"
    (directory / reference.name).write_bytes(b"changed")
    with pytest.raises(ProtocolError):
        read_body(directory, reference)
    (directory / reference.name).unlink()
    (tmp_path / "elsewhere").write_bytes(b"content")
    (directory / reference.name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ProtocolError):
        read_body(directory, reference)


def test_what_a_dead_process_left_is_swept_after_a_while_and_nothing_of_a_live_one(tmp_path: Path) -> None:
    directory = tmp_path / BODIES_DIR
    mine = write_body(directory, b"mine")
    (directory / "not-ours.txt").write_text("left alone")
    script = "import sys, pathlib; from pisub.bodies import write_body; write_body(pathlib.Path(sys.argv[1]), b'left')"
    subprocess.run([sys.executable, "-c", script, str(directory)], check=True)
    sweep_bodies(directory)
    assert len(list(directory.iterdir())) == 3, "its receiver may be about to read it"
    sweep_bodies(directory, keep_s=0.0)
    assert {path.name for path in directory.iterdir()} == {mine.name, "not-ours.txt"}
