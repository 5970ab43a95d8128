"""Requests to a running run: one slot each for stop, timeout and interrupt.

The file is the request; a message or a signal only says "look now". A request that was taken keeps its content under
another name, so that whoever finishes the record of a killed runner knows that its end was wanted.
"""

from __future__ import annotations

from typing import Final

from pisub.errors import InvalidArgumentError, RecordError, UnknownRunError
from pisub.process import ProcessIdentity
from pisub.record.atomic import encode_record, exists, move, read_record, write_new
from pisub.record.dirs import check_dir
from pisub.record.layout import RunPaths
from pisub.record.model import ControlRequest

#: What can be asked, strongest first.
CONTROL_KINDS: Final = ("stop", "timeout", "interrupt")
#: ``source`` of a request whose content cannot be read.
UNREADABLE: Final = "unreadable"


def request_control(paths: RunPaths, request: ControlRequest) -> bool:
    """Put a request into its slot. False when one of its kind is there already, taken or not: it stands.

    Raises:
        InvalidArgumentError: There is no such kind.
        UnknownRunError: The run does not exist.
        OSError: The disk is full, or the like.
    """
    if request.type not in CONTROL_KINDS:
        raise InvalidArgumentError(f"{request.type!r} is no request: use {', '.join(CONTROL_KINDS)}.", field="type")
    # An interrupt can be asked again once it was taken; an end cannot.
    if request.type != "interrupt" and exists(paths.accepted(request.type)):
        return False
    if not check_dir(paths.dir):
        raise UnknownRunError(f"There is no run {paths.run_id}.")
    try:
        return write_new(paths.request(request.type), encode_record(request), fsync=False)
    except FileNotFoundError:
        raise UnknownRunError(f"There is no run {paths.run_id}.") from None


def read_requests(paths: RunPaths) -> dict[str, ControlRequest]:
    """Read what is asked and not yet taken, strongest first. What cannot be read still counts."""
    return {kind: _read(paths, kind) for kind in CONTROL_KINDS if exists(paths.request(kind))}


def read_all_requests(paths: RunPaths) -> dict[str, ControlRequest]:
    """Read what was ever asked, taken or not, strongest first. What cannot be read still counts."""
    return {
        kind: _read(paths, kind)
        for kind in CONTROL_KINDS
        if exists(paths.request(kind)) or exists(paths.accepted(kind))
    }


def consume(paths: RunPaths, kind: str) -> bool:
    """Take a request: its slot is free again, its content is kept as ``<kind>.accepted.json``. False without one.

    Raises:
        InvalidArgumentError: There is no such kind.
    """
    if kind not in CONTROL_KINDS:
        raise InvalidArgumentError(f"{kind!r} is no request: use {', '.join(CONTROL_KINDS)}.", field="type")
    return move(paths.request(kind), paths.accepted(kind).name)


def _read(paths: RunPaths, kind: str) -> ControlRequest:
    try:
        for path in (paths.accepted(kind), paths.request(kind)):
            found = read_record(path, ControlRequest)
            if found is not None:
                return found
    except (RecordError, OSError):
        pass  # its existence is the request; the content only tells people who asked
    return ControlRequest(type=kind, requested_at=0, by=ProcessIdentity(pid=0), source=UNREADABLE)
