"""Who is called when a batch comes, how often, with what, and what a failing way costs."""

from __future__ import annotations

import asyncio
import http.server
import queue
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pisub.config import Settings
from pisub.errors import InvalidArgumentError
from pisub.hosting import queue_events as ev
from pisub.hosting.notify import Notification, Notifier, notifier_of
from pisub.protocol.checkpoint import Question
from pisub.testing import run
from tests.support.eventually import HANG_S, eventually_async


def ask(name: str, *, label: str = "") -> ev.Ask:
    questions = (Question("The secret?"), Question("Why?"))
    return ev.Ask(
        ask_id=name, run_id=f"run-{name}", session_id="s", agent="scout", questions=questions, label=label, asked_at=7
    )


async def jump(seconds: float) -> None:
    """Let this time pass on a clock that jumps."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    await over.wait()


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(2 * HANG_S):
            await scenario()

    asyncio.run(main())


def quiet(what: str, error: BaseException | None) -> None:
    raise AssertionError(f"{what} {error!r}")


def test_a_batch_is_told_at_once_and_what_comes_soon_after_together() -> None:
    async def scenario() -> None:
        told: list[tuple[str, int, int]] = []
        notifier = Notifier(
            {"test": lambda note: told.append((note.ask_id, note.new_asks, note.open_asks))},
            interval_s=0.05,
            report=quiet,
        )
        for count, name in enumerate("abcd", start=1):
            notifier.call(ask(name), count, lambda ask_id: ask_id != "b")
        await eventually_async(lambda: len(told) == 2)
        assert told == [("a", 1, 1), ("d", 2, 2)]
        notifier.stop()

    play(scenario)


def test_what_was_answered_before_the_interval_is_over_is_not_told() -> None:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()

    async def scenario() -> None:
        notifier = Notifier({"test": lambda note: told.put(note.ask_id)}, interval_s=20, report=quiet)
        for name in "ab":
            notifier.call(ask(name), 1, lambda _: False)
        await jump(20)  # the timer of `b` was set before this one
        for name in "cd":
            notifier.call(ask(name), 1, lambda _: True)
        notifier.stop()
        await jump(20)

    run(scenario())
    assert {told.get(timeout=HANG_S) for _ in "ac"} == {"a", "c"}
    assert told.empty()


def test_a_way_that_fails_is_said_once_and_the_others_go_on() -> None:
    async def scenario() -> None:
        reports: list[str] = []
        told: list[str] = []

        def broken(_: Notification) -> None:
            raise OSError(5, "the wire is cut")

        notifier = Notifier(
            {"broken": broken, "good": lambda note: told.append(note.ask_id)},
            interval_s=0.0,
            report=lambda what, _: reports.append(what),
        )
        for count, name in enumerate("abc", start=1):
            notifier.call(ask(name), 1, lambda _: True)
            await eventually_async(lambda want=count: len(told) == want)
        await eventually_async(lambda: reports)
        assert sorted(told) == ["a", "b", "c"]
        assert reports == ["Nobody was notified by broken: the wire is cut. This is said once."]

    play(scenario)


def test_a_command_gets_who_asks_on_its_standard_input_and_no_question(tmp_path: Path) -> None:
    target = tmp_path / "told by a file"
    script = tmp_path / "tell.py"
    script.write_text("import os, sys; t = sys.argv[1]; open(t + '.new', 'w').write(sys.stdin.read()); "
                      "os.rename(t + '.new', t)")  # fmt: skip

    async def scenario() -> None:
        settings = Settings(notify_desktop=False, notify_command=f"'{sys.executable}' '{script}' '{target}'")
        notifier_of(settings, quiet).call(ask("a", label="left"), 3, lambda _: True)
        await eventually_async(target.exists)

    play(scenario)
    assert msgspec.json.decode(target.read_text()) == {
        "type": "question",
        "sessionId": "s",
        "askId": "a",
        "runId": "run-a",
        "agent": "scout",
        "label": "left",
        "questions": 2,
        "openAsks": 3,
        "newAsks": 1,
        "askedAt": 7,
    }


class Hook:
    """A web server that keeps what is posted to it, and answers with a status."""

    def __init__(self, status: int) -> None:
        self.bodies: list[bytes] = []
        bodies = self.bodies

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as the base class names it
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook?token=hidden"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(params=[204, 500])
def hook(request: pytest.FixtureRequest) -> Iterator[tuple[Hook, int]]:
    server = Hook(request.param)
    yield server, request.param
    server.close()


def test_a_webhook_is_posted_to_and_its_failure_is_said_without_the_address(hook: tuple[Hook, int]) -> None:
    server, status = hook
    reports: list[str] = []

    async def scenario() -> None:
        settings = Settings(notify_desktop=False, notify_webhook=server.address)
        notifier = notifier_of(settings, lambda what, _: reports.append(what))
        notifier.call(ask("a"), 1, lambda _: True)
        await eventually_async(lambda: server.bodies)
        if status == 500:
            await eventually_async(lambda: reports)

    play(scenario)
    (body,) = server.bodies
    assert msgspec.json.decode(body)["askId"] == "a"
    assert b"secret" not in body
    said = ["Nobody was notified by notify_webhook: the server answered 500. This is said once."]
    assert reports == (said if status == 500 else [])


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (Settings(notify_command="'"), "notify_command"),
        (Settings(notify_command=" "), "notify_command"),
        (Settings(notify_webhook="file:///etc/passwd?token=hidden"), "notify_webhook"),
        (Settings(notify_webhook="https://"), "notify_webhook"),
        (Settings(notify_webhook="http://[hidden"), "notify_webhook"),
    ],
)
def test_a_way_that_cannot_be_used_is_refused_without_repeating_it(settings: Settings, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        notifier_of(settings, quiet)
    assert caught.value.field == field
    assert "hidden" not in caught.value.message


def test_the_line_for_a_person_says_who_and_how_many_and_steers_no_terminal() -> None:
    note = Notification(
        session_id="s", ask_id="a", run_id="r", agent="sc\x1bout", label="x", questions=2, open_asks=3, new_asks=1,
        asked_at=0,
    )  # fmt: skip
    assert note.text == "sc␛out (x) has 2 questions; 3 are waiting"
