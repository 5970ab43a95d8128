"""The processes of ``benchmarks.askers`` that exchange messages only: hosts and askers, through pisub and without it.

Both ways send the checkpoint's own bodies; each question carries a token, and its answer must carry it back.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec
import zmq

from benchmarks.load_lanes import Seen, Verdict, serve_lines_on_loop, serve_loads
from pisub.client.bus import Bus
from pisub.config import load_settings
from pisub.protocol.checkpoint import HOST_ROLE, Answer, AskRequest, AskResult, AskStatus, Question
from pisub.protocol.session import PeerKind
from pisub.transport.dealer import new_context

_SESSION: Final = "bench-messages"
_HOST: Final = "bench-host"
_QUESTIONS: Final = (
    Question("Which part of the repository shall I look at closer? " * 3, ("first", "second", "third")),
)
_NOBLOCK: Final = int(zmq.NOBLOCK)
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)


def question(token: str) -> AskRequest:
    """Make an ask that carries a token."""
    return AskRequest(ask_id=token, run_id=token, agent="bench", questions=_QUESTIONS, asked_at=1, timeout_ms=300_000)


def answer(request: AskRequest) -> AskResult:
    """Answer it."""
    given = Answer(value=f"answer to {request.ask_id}", by=_HOST, at=1)
    return AskResult(status=AskStatus.OK, answers=(given,), ask_id=request.ask_id)


def judge(number: int, token: str, result: AskResult) -> Verdict:
    """Tell whether a result is the asker's own."""
    is_mine = result.ask_id == token and result.values == (f"answer to {token}",)
    return Verdict(number if is_mine else -1)


class Tally:
    """What a host was asked, and what twice."""

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}
        self.doubled = 0

    def note(self, token: str) -> None:
        """Count a question."""
        asker, _, number = token.partition("-")
        self.doubled += self._seen.setdefault(asker, Seen())(int(number)) > 1

    async def report(self, _line: bytes) -> int:
        """Return how many came twice since the last time."""
        doubled, self.doubled = self.doubled, 0
        return doubled


# Through pisub. --------------------------------------------------------------------------------------------------


async def host_by_bus() -> None:
    tally = Tally()

    def handle(request: AskRequest, _sender: object) -> AskResult:
        tally.note(request.ask_id)
        return answer(request)

    async with await Bus.connect(load_settings(), kind=PeerKind.HOST, session=_SESSION) as bus:
        bus.serve(AskRequest, handle)
        await bus.claim(HOST_ROLE, _SESSION)
        await serve_lines_on_loop(tally.report)


async def ask_by_bus(name: str) -> None:
    async with await Bus.connect(load_settings(), kind=PeerKind.CLIENT, session=_SESSION) as bus:

        async def ask(number: int) -> Verdict:
            token = f"{name}-{number}"
            result = await bus.call(
                f"role:{HOST_ROLE}", question(token), AskResult, timeout_s=None, scope=_SESSION, idempotent=True
            )
            return judge(number, token, result)

        await serve_loads(ask)


# Without it. -----------------------------------------------------------------------------------------------------


class BareFrame(msgspec.Struct, array_like=True, frozen=True):
    """What ``bus_worker.BareHeader`` is the head of."""

    to: str
    sender: str
    number: int
    message: AskRequest | AskResult


class BareClient:
    """A DEALER whose descriptor is watched, and a dict of futures: nothing else."""

    def __init__(self, endpoint: str, name: str, on_request: Callable[[AskRequest], AskResult] = answer) -> None:
        self._name = name
        self._on_request = on_request
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[AskResult]] = {}
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(BareFrame).decode
        self._is_due = False
        socket: zmq.Socket[bytes] = new_context().socket(zmq.DEALER)
        socket.set(zmq.ROUTING_ID, name.encode())
        socket.set_hwm(100_000)
        socket.connect(endpoint)
        bare: Any = super(zmq.Socket, socket)
        self._send, self._receive, self._get = bare.send, bare.recv, bare.get
        self._socket = socket
        self._loop.add_reader(int(socket.get(zmq.FD)), self._drain)

    async def ask(self, number: int) -> Verdict:
        """Ask, and wait for the answer."""
        token = f"{self._name}-{number}"
        waiter = self._waiting[number] = self._loop.create_future()
        self._post(BareFrame(_HOST, self._name, number, question(token)))
        return judge(number, token, await waiter)

    def _post(self, frame: BareFrame) -> None:
        self._send(self._encode(frame), _NOBLOCK)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._is_due = False
        while self._get(_EVENTS) & _POLLIN:
            try:
                while True:
                    self._take(self._decode(self._receive(_NOBLOCK)))
            except zmq.Again:
                pass

    def _take(self, frame: BareFrame) -> None:
        message = frame.message
        if isinstance(message, AskRequest):
            self._post(BareFrame(frame.sender, self._name, frame.number, self._on_request(message)))
        else:
            self._waiting.pop(frame.number).set_result(message)


async def host_barely(endpoint: str) -> None:
    tally = Tally()

    def handle(request: AskRequest) -> AskResult:
        tally.note(request.ask_id)
        return answer(request)

    client = BareClient(endpoint, _HOST, handle)
    await serve_lines_on_loop(tally.report)
    del client


async def ask_barely(endpoint: str, name: str) -> None:
    client = BareClient(endpoint, name)
    await serve_loads(client.ask)


def main(mode: str, endpoint: str, name: str = "") -> None:
    """Be one of the processes."""
    match mode:
        case "host":
            asyncio.run(host_by_bus())
        case "ask":
            asyncio.run(ask_by_bus(name))
        case "bare-host":
            asyncio.run(host_barely(endpoint))
        case _:
            asyncio.run(ask_barely(endpoint, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
