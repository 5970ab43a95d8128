"""What an agent has of messages, its session and earlier answers, against a shell that writes everything down."""

import asyncio
import threading
from pathlib import Path

import pytest

from pisub.child import Child
from pisub.engines.base import Steered, SteeringKnown
from pisub.engines.mailbox import Mailbox
from pisub.errors import InvalidArgumentError, RecordCorruptError, UnsafePathError
from pisub.protocol.checkpoint import Answer, AskResult, AskStatus, Question
from pisub.runs.steering import AckState, SteerMessage
from pisub.session_file import Session, SessionAnswer, SessionHead, SessionMessage, encode_lines
from tests.support.engine_shell import RecordingShell, context

HEAD = SessionHead(run_id="r", agent="a")


def session_at(path: Path, *lines: SessionHead | SessionMessage | SessionAnswer) -> Session:
    path.write_bytes(encode_lines([HEAD, *lines]))
    return Session(path)


def answer(value: str) -> Answer:
    return Answer(value=value, by="x", at=1)


def test_a_waiting_agent_gets_a_message_that_another_thread_puts_in(tmp_path: Path) -> None:
    shell = RecordingShell()
    mailbox = Mailbox(shell)
    child = Child(context(tmp_path), shell, mailbox=mailbox)
    message = SteerMessage(id="a", text="hello")

    async def scenario() -> SteerMessage:
        waiting = asyncio.create_task(child.next_message())
        await asyncio.sleep(0)
        thread = threading.Thread(target=mailbox.offer, args=(message,))
        thread.start()
        found = await waiting
        thread.join()
        return found

    assert asyncio.run(scenario()) == message
    assert shell.events == [SteeringKnown(is_supported=True), Steered("a", AckState.DELIVERED, "The agent has it.")]
    assert [line for line in child.session.lines if isinstance(line, SessionMessage)] == [
        SessionMessage(kind="steer", text="hello")
    ]


def test_a_cancelled_wait_loses_no_message(tmp_path: Path) -> None:
    mailbox = Mailbox(RecordingShell())
    child = Child(context(tmp_path), RecordingShell(), mailbox=mailbox)

    async def scenario() -> list[str]:
        waiting = asyncio.create_task(child.next_message())
        await asyncio.sleep(0)
        mailbox.offer(SteerMessage(id="a", text="one"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return [each.text for each in child.take_messages()]

    assert asyncio.run(scenario()) == ["one"]


def test_each_of_two_readers_gets_its_own_message(tmp_path: Path) -> None:
    mailbox = Mailbox(RecordingShell())
    child = Child(context(tmp_path), RecordingShell(), mailbox=mailbox)

    async def scenario() -> set[str]:
        waiting = [asyncio.create_task(child.next_message()) for _ in range(2)]
        await asyncio.sleep(0)
        for name in ("one", "two"):
            mailbox.offer(SteerMessage(id=name, text=name))
        return {(await each).text for each in waiting}

    assert asyncio.run(scenario()) == {"one", "two"}


def test_an_agent_that_uses_turns_and_never_looks_is_not_said_to_read_messages(tmp_path: Path) -> None:
    shell = RecordingShell()
    child = Child(context(tmp_path), shell)
    with child.turn():
        pass
    assert shell.events == []


def test_known_answers_are_given_without_asking_and_only_the_rest_is_asked(tmp_path: Path) -> None:
    which, why = Question("Which?", options=["a", "b"]), Question("Why?")
    session = session_at(tmp_path / "s", SessionAnswer(question=which, answer=answer("a")))
    shell = RecordingShell(AskResult(status=AskStatus.OK, answers=(answer("because"),), ask_id="x"))
    child = Child(context(tmp_path), shell, session=session)

    async def scenario() -> tuple[AskResult, AskResult]:
        both = await child.ask([which, why])
        return both, await child.ask(why, fresh=True)

    both, _ = asyncio.run(scenario())
    assert (both.status, both.values) == (AskStatus.OK, ("a", "because"))
    assert [questions for questions, _ in shell.asked] == [(why,), (why,)]
    again = Child(context(tmp_path), RecordingShell(), session=Session(tmp_path / "s"))
    assert asyncio.run(again.ask([why, which])).values == ("because", "a")


def test_an_answer_to_other_options_is_no_answer(tmp_path: Path) -> None:
    session = session_at(tmp_path / "s", SessionAnswer(question=Question("Which?", ["a", "b"]), answer=answer("a")))
    shell = RecordingShell(AskResult(status=AskStatus.NO_HOST, answers=(None,)))
    child = Child(context(tmp_path), shell, session=session)
    assert asyncio.run(child.ask(Question("Which?", ["b", "c"]))).status is AskStatus.NO_HOST


def test_a_session_keeps_json_values_whole_lines_and_bounds(tmp_path: Path) -> None:
    session = session_at(tmp_path / "s")
    session.append({"a": [1, None, "é"]})
    with pytest.raises(InvalidArgumentError):
        session.append(object())
    with pytest.raises(InvalidArgumentError, match="at most 1 MiB"):
        session.append("x" * (1 << 20))
    assert (session.read(), Session(tmp_path / "s").read()) == ([{"a": [1, None, "é"]}],) * 2
    assert not session.is_resumed


def test_a_session_file_that_is_damaged_or_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("{}\n")
    with pytest.raises(RecordCorruptError, match="head of a session"):
        Session(tmp_path / "s")
    (tmp_path / "s").write_bytes(encode_lines([HEAD]) + b"nonsense\n")
    with pytest.raises(RecordCorruptError, match="line 2"):
        Session(tmp_path / "s")
    (tmp_path / "link").symlink_to(tmp_path / "s")
    with pytest.raises(UnsafePathError):
        Session(tmp_path / "link")


def test_a_line_of_a_newer_kind_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(encode_lines([HEAD]) + b'{"type":"hologram","x":1}\n')
    assert Session(tmp_path / "s").lines == (HEAD,)
