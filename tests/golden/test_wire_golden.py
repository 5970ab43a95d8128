"""The bytes of wire version 1, for ever: what an old client sent and awaits must not change under it.

A line of the file is a name and a frame in hexadecimal. A new message, or a new key of one, is a new line; a line that
is there stays as it is. ``python -m tests.golden.test_wire_golden`` prints the lines that are missing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pisub.protocol import codec
from pisub.protocol.delivery import Header, Kind
from pisub.protocol.version import WIRE_VERSIONS
from tests.support.wire_samples import HEADERS, STAMPS, messages, sample

GOLDEN = Path(__file__).with_name("wire_v1.txt")
#: Any header will do for a body; this one is the least.
HEADER = Header(kind=Kind.TELL)


def frames() -> dict[str, bytes]:
    """Every frame as this program makes it."""
    made = {name: codec.pack(header) for name, header in HEADERS.items()}
    made |= {name: codec.pack_stamp(stamp) for name, stamp in STAMPS.items()}
    for tag, kind in messages().items():
        for variant, is_whole in (("least", False), ("whole", True)):
            made[f"{tag} {variant}"] = codec.pack(HEADER, codec.encode(sample(kind, is_whole=is_whole)))
    return made


def golden() -> dict[str, bytes]:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines)
    assert len(found) == len(lines), "a name stands for one frame"
    return {name: bytes.fromhex(text) for name, text in found.items()}


def read_and_written(name: str, frame: bytes) -> bytes:
    """Read a frame and make it again, without what a message has got since."""
    if name.startswith("stamp"):
        return codec.pack_stamp(codec.unpack_stamp(frame))
    header, body = codec.unpack(frame)
    if name.startswith("header"):
        return codec.pack(header, bytes(body))
    return codec.pack(header, codec.encode(codec.decode(body, messages()[name.split(" ", maxsplit=1)[0]])))


def test_the_version_is_the_one_of_the_golden_bytes() -> None:
    assert WIRE_VERSIONS == (1,)
    assert codec.pack(HEADER).startswith(b"psb\x01")


@pytest.mark.parametrize("name", golden())
def test_the_bytes_are_as_they_were(name: str) -> None:
    frame = golden()[name]
    assert read_and_written(name, frame) == frame


def test_every_frame_that_there_is_has_golden_bytes() -> None:
    known = set(golden().values())
    assert [name for name, frame in frames().items() if frame not in known] == []


if __name__ == "__main__":
    known = golden() if GOLDEN.exists() else {}
    for name, frame in frames().items():
        if frame not in known.values():
            number = sum(each.startswith(name) for each in known) + 1
            sys.stdout.write(f"{name if number == 1 else f'{name} {number}'} {frame.hex()}\n")
