"""A real broker in a directory of its own, and blocking clients that speak the wire by hand."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import zmq

from pisub.config import Settings
from pisub.launch import BrokerInfo, ensure_broker, find_broker
from pisub.process import ProcessIdentity, open_pidfd, own_identity, send_signal
from pisub.protocol import bundle, codec
from pisub.protocol.base import Message
from pisub.protocol.delivery import Header, Kind, Stamp
from pisub.protocol.session import BrokerMessage, Failure, Hello, PeerKind

TIMEOUT_MS = 10_000


class RawClient:
    """One DEALER. Everything blocks, for at most ``TIMEOUT_MS``."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, **options: int) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, TIMEOUT_MS)
        for name, value in options.items():
            self.socket.setsockopt(getattr(zmq, name), value)
        self.socket.connect(endpoint)
        self._last_id = 0

    def send(self, kind: int, body: Message | bytes = b"", **header: Any) -> int:
        self._last_id += 1
        header.setdefault("message_id", self._last_id)
        data = body if isinstance(body, bytes) else codec.encode(body)
        self.socket.send(codec.pack(Header(kind=kind, **header), data))
        return int(header["message_id"])

    def receive(self) -> tuple[Stamp, Header, bytes]:
        stamp, frame = self.socket.recv_multipart()
        header, body = codec.unpack(frame)
        return codec.unpack_stamp(stamp), header, bytes(body)

    def receive_bundle(self) -> list[tuple[Stamp, Header, bytes]]:
        """Receive one message, whatever number of frames it has."""
        parts = self.socket.recv_multipart()
        if parts[0].startswith(bundle.PRELUDE):
            parts = bundle.split(parts[0])
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [(codec.unpack_stamp(stamp), *codec.unpack(frame)) for stamp, frame in pairs]

    def answer(self) -> Any:
        """Receive a message of the broker's own and return its body."""
        stamp, _, body = self.receive()
        assert stamp.sender == ""
        return codec.decode(body, BrokerMessage)

    def hello(self, address: str, **fields: Any) -> Any:
        fields = {"kind": PeerKind.CLIENT, "incarnation": 1, "wire_versions": (1,), **fields}
        fields.setdefault("process", own_identity())
        self.send(Kind.HELLO, Hello(address=address, **fields))
        welcome = self.answer()
        assert not isinstance(welcome, Failure), welcome
        return welcome

    def control(self, request: Message) -> Any:
        self.send(Kind.CONTROL, request)
        return self.answer()


class Rig:
    """One runtime directory, its broker, and clients of this process."""

    def __init__(self, settings: Settings, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.settings = settings
        assert settings.runtime_dir is not None
        self.directory: Path = settings.runtime_dir
        self._context = context
        self._clients: list[RawClient] = []
        self._brokers: list[ProcessIdentity] = []

    def start(self) -> BrokerInfo:
        info = ensure_broker(self.settings)
        self._brokers.append(info.process)
        return info

    def client(self, address: str | None = None, *, options: dict[str, int] | None = None, **hello: Any) -> RawClient:
        info = self.start()
        client = RawClient(self._context, info.address, **(options or {}))
        self._clients.append(client)
        if address is not None:
            client.hello(address, **hello)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.socket.close(0)
        last = find_broker(self.settings)
        for process in [*self._brokers, *([last.process] if last else [])]:
            if send_signal(process, signal.SIGTERM):
                wait_gone(process)


def wait_gone(process: ProcessIdentity, timeout_s: float = 10.0) -> None:
    """Wait for a process to end; raise if it does not."""
    descriptor = open_pidfd(process)
    if descriptor is None:
        return
    try:
        ready, _, _ = select.select([descriptor], [], [], timeout_s)
        if not ready:
            os.kill(process.pid, signal.SIGKILL)
            raise AssertionError(f"process {process.pid} did not end within {timeout_s} s")
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def rig(home: Path, **settings: Any) -> Generator[Rig]:
    """Make a runtime directory with a short path, and leave nothing of it behind."""
    base = Path(tempfile.mkdtemp(prefix="psb-"))
    with zmq.Context() as context:
        made = Rig(Settings(home=home, runtime_dir=base / "rt", fsync=False, **settings), context)
        try:
            yield made
        finally:
            made.close()
    shutil.rmtree(base, ignore_errors=True)
