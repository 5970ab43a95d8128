"""Processes of the broker benchmark: the load, which becomes a C program, and the rivals in Python.

``python -m benchmarks.broker_server load …`` is replaced by the C load, so that the pid in its Hello frames is its own.
The others are forwarders with the broker's shape on the wire, [route, frame] in and [route, stamp, frame] out, that
know two partners and nothing else.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import zmq

from benchmarks.harness import reply_line
from pisub.process import own_identity
from pisub.protocol import bundle, codec
from pisub.protocol.delivery import Header, Kind
from pisub.protocol.session import Hello, PeerKind
from pisub.protocol.version import WIRE_VERSIONS

_STAMP = b"stamp".ljust(24, b"\0")
_SNDMORE, _NOBLOCK = int(zmq.SNDMORE), int(zmq.NOBLOCK)
_BATCH = 64


def hello(address: str, *, reads_bundles: bool) -> bytes:
    """Return the Hello frame of this process under ``address``."""
    body = Hello(
        wire_versions=WIRE_VERSIONS,
        kind=PeerKind.CLIENT,
        address=address,
        incarnation=os.getpid(),
        process=own_identity(),
        capabilities=(bundle.CAPABILITY,) if reads_bundles else (),
    )
    return codec.pack(Header(kind=Kind.HELLO), codec.encode(body))


def become_load(
    program: str, endpoint: str, k: str, calls: str, payload_bytes: str, *, reads_bundles: bool = False
) -> None:
    """Write the Hello frames beside the program, and become it."""
    files: list[str] = []
    for address in ("load-asker", "load-answerer"):
        path = Path(program).parent / f"{address}.{os.getpid()}"
        path.write_bytes(hello(address, reads_bundles=reads_bundles))
        files.append(str(path))
    os.execv(program, [program, endpoint, *files, k, calls, payload_bytes])


def _router(endpoint: str) -> zmq.Socket[bytes]:
    router = zmq.Context().socket(zmq.ROUTER)
    router.set_hwm(0)  # without MANDATORY and a queue of their own they would drop; so they hold what comes
    router.bind(endpoint)
    reply_line("ready")
    return router


class _Partners:
    """Two peers that say Hello one after the other are partners."""

    def __init__(self) -> None:
        self.of: dict[bytes, bytes] = {}
        self._waiting: bytes | None = None

    def greet(self, route: bytes) -> bytes:
        """Note a peer; its Hello is echoed to it."""
        if self._waiting is None:
            self._waiting = route
        else:
            self.of = {self._waiting: route, route: self._waiting}
            self._waiting = None
        return route


def forward_multipart(endpoint: str) -> None:
    """Forward with blocking ``recv_multipart`` and ``send_multipart``, as most programs do."""
    router = _router(endpoint)
    partners = _Partners()
    while True:
        route, frame = router.recv_multipart()
        partner = partners.greet(route) if frame[7] == Kind.HELLO else partners.of[route]
        router.send_multipart([partner, _STAMP, frame])


def forward_fast(endpoint: str) -> None:
    """Forward with bare ``recv`` and ``send``, in batches: the fastest loop known in Python."""
    router = _router(endpoint)
    receive, send = router.recv, router.send
    partners = _Partners()
    while True:
        out: list[tuple[bytes, bytes]] = []
        flags = 0
        while len(out) < _BATCH:
            try:
                route = receive(flags)
            except zmq.Again:
                break
            flags = _NOBLOCK
            frame = receive(_NOBLOCK)
            out.append((partners.greet(route) if frame[7] == Kind.HELLO else partners.of[route], frame))
        for route, frame in out:
            send(route, _SNDMORE)
            send(_STAMP, _SNDMORE)
            send(frame)


def main(arguments: list[str]) -> None:
    """Be what the first argument says."""
    what, *rest = arguments
    if what in ("load", "load-bundles"):
        program, endpoint, k, calls, payload_bytes = rest
        become_load(program, endpoint, k, calls, payload_bytes, reads_bundles=what == "load-bundles")
    elif what == "multipart":
        forward_multipart(*rest)
    else:
        forward_fast(*rest)


if __name__ == "__main__":
    main(sys.argv[1:])
