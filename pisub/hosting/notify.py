"""Calling a human who is not looking: a desktop notification, a command, a webhook. Once per batch, and not too often.

Only questions call; that a run ended does not. What is sent says who asks and how many wait, never what is asked or
answered: it may leave the machine. Everything that can take time is done in a thread that nobody waits for.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import msgspec

from pisub.config import Settings, has_desktop
from pisub.errors import InvalidArgumentError
from pisub.hosting.desk import Report
from pisub.hosting.queue_events import Ask
from pisub.hosting.text import visible
from pisub.protocol.limits import NOTIFY_TIMEOUT_S

_MAX_NAME_CHARS: Final = 60
_SCHEMES: Final = ("http", "https")


class Notification(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a command gets on its standard input, and a webhook as its body, as JSON.

    Attributes:
        type: Always ``question``.
        session_id: The session whose host asks.
        ask_id: The newest batch, and with it the run that asks, its agent and label.
        run_id: '' where the host itself asks.
        agent: As above.
        label: As above.
        questions: How many questions that batch has.
        open_asks: How many batches wait for a human in all.
        new_asks: How many of them came since the last notification.
        asked_at: Unix time in milliseconds at which the newest was asked; 0 where unknown.
    """

    type: str = "question"
    session_id: str
    ask_id: str
    run_id: str
    agent: str
    label: str
    questions: int
    open_asks: int
    new_asks: int
    asked_at: int

    @property
    def text(self) -> str:
        """One line for a person."""
        who = visible(self.agent, is_multiline=False, max_chars=_MAX_NAME_CHARS) or "an agent"
        if self.label:
            who += f" ({visible(self.label, is_multiline=False, max_chars=_MAX_NAME_CHARS)})"
        what = "a question" if self.questions == 1 else f"{self.questions} questions"
        more = f"; {self.open_asks} are waiting" if self.open_asks > 1 else ""
        return f"{who} has {what}{more}"


#: Sends a notification some way. Called in a thread; what it raises is reported once.
Channel = Callable[[Notification], None]


class Notifier:
    """Says when to call, and calls. Use it on one loop; ``stop`` it.

    Args:
        channels: The ways, by a name for people.
        interval_s: At least this long between two calls. What comes between waits for the end of it, and is told
            together if it is still open then.
        report: Told once of each way that fails.
    """

    def __init__(self, channels: dict[str, Channel], *, interval_s: float, report: Report) -> None:
        self._channels = channels
        self._interval_s = interval_s
        self._report = report
        self._failed: set[str] = set()
        self._last_at: float | None = None
        self._held: list[Ask] = []
        self._timer: asyncio.TimerHandle | None = None

    def call(self, ask: Ask, open_asks: int, is_open: Callable[[str], bool]) -> None:
        """Call for a batch, now or when the interval is over.

        Args:
            ask: The batch.
            open_asks: How many are open, this one among them.
            is_open: Whether an ask, by its id, is open still; looked at when a held call is made.
        """
        if not self._channels:
            return
        loop = asyncio.get_running_loop()
        self._held.append(ask)
        if self._timer is not None:
            return
        wait_s = 0.0 if self._last_at is None else self._last_at + self._interval_s - loop.time()
        if wait_s <= 0:
            self._send(open_asks)
        else:
            self._timer = loop.call_later(wait_s, self._send_held, is_open)

    def stop(self) -> None:
        """Make no more calls. One that is being made ends by itself."""
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_held(self, is_open: Callable[[str], bool]) -> None:
        self._timer = None
        self._held = [ask for ask in self._held if is_open(ask.ask_id)]
        if self._held:
            self._send(len(self._held))

    def _send(self, open_asks: int) -> None:
        loop = asyncio.get_running_loop()
        self._last_at = loop.time()
        newest, count = self._held[-1], len(self._held)
        self._held.clear()
        notification = Notification(
            session_id=newest.session_id,
            ask_id=newest.ask_id,
            run_id=newest.run_id,
            agent=newest.agent,
            label=newest.label,
            questions=len(newest.questions),
            open_asks=max(open_asks, count),
            new_asks=count,
            asked_at=newest.asked_at,
        )
        for name, channel in self._channels.items():
            # A daemon: a name server that does not answer must not hold up the host's end.
            worker = threading.Thread(
                target=self._use, args=(loop, name, channel, notification), name="pisub-notify", daemon=True
            )
            worker.start()

    def _use(self, loop: asyncio.AbstractEventLoop, name: str, channel: Channel, notification: Notification) -> None:
        try:
            channel(notification)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            try:
                loop.call_soon_threadsafe(self._fail, name, _what(error))
            except RuntimeError:  # the host is over
                return

    def _fail(self, name: str, what: str) -> None:
        if name not in self._failed:
            self._failed.add(name)
            self._report(f"Nobody was notified by {name}: {what}. This is said once.", None)


def notifier_of(settings: Settings, report: Report) -> Notifier:
    """Return the notifier that the settings describe.

    Raises:
        InvalidArgumentError: ``notify_command`` or ``notify_webhook`` cannot be used. The address is not repeated: it
            may hold a secret.
    """
    channels: dict[str, Channel] = {}
    if settings.notify_desktop and has_desktop():
        program = shutil.which("notify-send")
        if program is not None:
            channels["notify-send"] = lambda note: _run([program, "--app-name=pisub", "--", "pisub", note.text], b"")
    if settings.notify_command:
        argv = _split(settings.notify_command)
        channels["notify_command"] = lambda note: _run(argv, msgspec.json.encode(note) + b"\n")
    if settings.notify_webhook:
        address = _check_address(settings.notify_webhook)
        channels["notify_webhook"] = lambda note: _post(address, msgspec.json.encode(note))
    return Notifier(channels, interval_s=settings.notify_interval_ms / 1000, report=report)


def _split(command: str) -> list[str]:
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise InvalidArgumentError(f"notify_command cannot be split: {error}.", field="notify_command") from error
    if not argv:
        raise InvalidArgumentError("notify_command names no program.", field="notify_command")
    return argv


def _check_address(address: str) -> str:
    try:
        parts = urlsplit(address)
        is_good = parts.scheme in _SCHEMES and bool(parts.hostname)
    except ValueError:
        is_good = False
    if not is_good:
        raise InvalidArgumentError("notify_webhook must be an http or https address.", field="notify_webhook")
    return address


def _run(argv: list[str], data: bytes) -> None:
    subprocess.run(
        argv,
        input=data,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=NOTIFY_TIMEOUT_S,
        check=True,
    )


def _post(address: str, body: bytes) -> None:
    request = urllib.request.Request(  # noqa: S310  # the scheme was checked
        address, data=body, headers={"Content-Type": "application/json", "User-Agent": "pisub"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=NOTIFY_TIMEOUT_S):  # noqa: S310  # as above
        pass


def _what(error: BaseException) -> str:
    """Say what went wrong without repeating a command's arguments or an address, which may hold secrets."""
    match error:
        case subprocess.CalledProcessError():
            return f"it ended with {error.returncode}"
        case subprocess.TimeoutExpired() | TimeoutError():
            return f"it took more than {NOTIFY_TIMEOUT_S:g} s"
        case urllib.error.HTTPError():
            return f"the server answered {error.code}"
        case urllib.error.URLError(reason=OSError() as reason):
            return reason.strerror or type(reason).__name__
        case OSError():
            return error.strerror or type(error).__name__
        case _:
            return type(error).__name__
