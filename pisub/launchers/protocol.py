"""What a launcher and a nursery say to each other: one packet each way, and a letter in a memory file.

The socket is AF_UNIX SOCK_SEQPACKET, so a packet is whole or absent. A request says which run; the letter (passed with
it as a descriptor) holds the environment, and only the forked child opens it: nothing of it stays in the nursery. A
letter's texts are bytes, because names and values that are not UTF-8 are legal in an environment, and must arrive.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from pisub.errors import EnvironmentTooLargeError, InvalidArgumentError, ProtocolError
from pisub.process import ProcessIdentity
from pisub.protocol.limits import KIB, MAX_ENVIRONMENT_BYTES, MIB
from pisub.runs.spec import LaunchMessage

T = TypeVar("T")

LAUNCH_VERSION: Final = 1
#: A request is a run id and two paths (at most 4 KiB each); an answer is an identity or a sentence.
MAX_PACKET_BYTES: Final = 16 * KIB
#: The environment (1 MiB, and up to 10 bytes of framing for each of its variables), ``sys.path``, the directory.
MAX_LETTER_BYTES: Final = 4 * MIB


class LaunchRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Launcher to nursery, with the letter's descriptor."""

    version: int
    run_id: str
    home: bytes
    runtime_dir: bytes


class LaunchAnswer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Nursery to launcher: the runner's process, or why there is none (``code`` and a sentence)."""

    process: ProcessIdentity | None = None
    code: str = ""
    message: str = ""


class _Letter(msgspec.Struct, frozen=True, array_like=True):
    run_id: str
    home: bytes
    runtime_dir: bytes
    environ: dict[bytes, bytes]
    cwd: bytes
    sys_path: tuple[bytes, ...]
    umask: int
    nofile: tuple[int, int] | None
    soft_limits: dict[str, int]


# Built once, here: in a fresh fork the first decoding of a shape would cost 3 ms of every launch.
_decode_letter: Final = msgspec.msgpack.Decoder(_Letter).decode
_decode_request: Final = msgspec.msgpack.Decoder(LaunchRequest).decode
_decode_answer: Final = msgspec.msgpack.Decoder(LaunchAnswer).decode


def check_environment(environ: dict[str, str]) -> None:
    """Refuse an environment that no process could be given.

    Raises:
        EnvironmentTooLargeError: Over ``limits.MAX_ENVIRONMENT_BYTES``.
        InvalidArgumentError: A name is empty or has ``=``, or a name or value has a NUL.
    """
    size = 0
    for name, value in environ.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise InvalidArgumentError(f"{ascii(name)[:60]} cannot be an environment variable.", field="environ")
        size += len(os.fsencode(name)) + len(os.fsencode(value)) + 2
    if size > MAX_ENVIRONMENT_BYTES:
        raise EnvironmentTooLargeError(
            f"The environment has {size} bytes, more than {MAX_ENVIRONMENT_BYTES}: pass large values as files.",
            field="environ",
        )


def request_for(message: LaunchMessage) -> LaunchRequest:
    """Return the request that goes with a launch message's letter."""
    return LaunchRequest(LAUNCH_VERSION, message.run_id, os.fsencode(message.home), os.fsencode(message.runtime_dir))


def encode_letter(message: LaunchMessage) -> bytes:
    """Encode a launch message.

    Raises:
        InvalidArgumentError: It is over ``MAX_LETTER_BYTES``.
    """
    data = msgspec.msgpack.encode(
        _Letter(
            message.run_id,
            os.fsencode(message.home),
            os.fsencode(message.runtime_dir),
            {os.fsencode(name): os.fsencode(value) for name, value in message.environ.items()},
            os.fsencode(message.cwd),
            tuple(os.fsencode(entry) for entry in message.sys_path),
            message.umask,
            message.nofile,
            message.soft_limits,
        )
    )
    if len(data) > MAX_LETTER_BYTES:
        raise InvalidArgumentError(f"The launch has {len(data)} bytes, more than {MAX_LETTER_BYTES}.", field="sys_path")
    return data


def decode_letter(data: bytes) -> LaunchMessage:
    """Decode a launch message.

    Raises:
        ProtocolError: It is not a whole one.
    """
    letter = _decode(data, _decode_letter)
    return LaunchMessage(
        run_id=letter.run_id,
        home=os.fsdecode(letter.home),
        runtime_dir=os.fsdecode(letter.runtime_dir),
        environ={os.fsdecode(name): os.fsdecode(value) for name, value in letter.environ.items()},
        cwd=os.fsdecode(letter.cwd),
        sys_path=tuple(os.fsdecode(entry) for entry in letter.sys_path),
        umask=letter.umask,
        nofile=letter.nofile,
        soft_limits=letter.soft_limits,
    )


def memory_file(data: bytes) -> int:
    """Return a descriptor of an anonymous file that holds ``data``. The caller closes it.

    Raises:
        OSError: No memory or no descriptor is left.
    """
    descriptor = os.memfd_create("pisub-launch", os.MFD_CLOEXEC)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def encode_packet(packet: LaunchRequest | LaunchAnswer) -> bytes:
    """Encode a request or an answer."""
    return msgspec.msgpack.encode(packet)


def decode_request(data: bytes) -> LaunchRequest:
    """Decode a request.

    Raises:
        ProtocolError: It is none, or of another version.
    """
    request = _decode(data, _decode_request)
    if request.version != LAUNCH_VERSION:
        raise ProtocolError(f"A launch request of version {request.version}; this nursery knows {LAUNCH_VERSION}.")
    return request


def decode_answer(data: bytes) -> LaunchAnswer:
    """Decode an answer.

    Raises:
        ProtocolError: It is none.
    """
    return _decode(data, _decode_answer)


def _decode(data: bytes, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"Not a packet of a launch: {error}") from error
