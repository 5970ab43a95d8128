"""What a session's host needs: the ends of its runs, each handled once, and who the host was last.

The ledger is exact, the handler may be called again: only after a host died between taking an end and finishing
with it, and then ``Delivery.redelivered`` says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from pisub.errors import InvalidArgumentError, PisubError, RecordCorruptError
from pisub.ids import check_id
from pisub.process import ProcessIdentity, machine_id
from pisub.protocol.base import Record
from pisub.record.atomic import TORN, encode_record, exists, read_record, read_survivor, remove, sweep_temp, write_new
from pisub.record.dirs import list_names
from pisub.record.layout import Layout, SessionPaths
from pisub.record.model import Completion, RunResult
from pisub.record.results import read_result
from pisub.record.submit import prepare_session

_GENERATION = re.compile(r"[0-9A-Za-z_-]{1,96}", re.ASCII)
_HOST = re.compile(r"host\.([1-9][0-9]{0,17})\.json", re.ASCII)
_SUFFIX = ".json"
#: So many files of earlier hosts stay, for people.
_KEPT_HOSTS = 16


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """An end, taken by a host: to be handled, then reported with ``Outbox.done``.

    Attributes:
        completion: The end.
        redelivered: An earlier host took it and was not seen to finish: its handler may have run.
    """

    completion: Completion
    redelivered: bool = False

    @property
    def delivery_key(self) -> str:
        """The key of the effect, the same at every delivery of this end."""
        return self.completion.delivery_key


def completion_of(result: RunResult) -> Completion:
    """Return the outbox's entry for a result."""
    return Completion(
        run_id=result.run_id,
        session_id=result.session_id,
        agent=result.agent,
        state=result.state,
        summary=result.summary,
        ended_at=result.ended_at,
        delivery_key=f"{result.run_id}:{result.state.value}",
        parent_run_id=result.parent_run_id,
    )


def post_completion(layout: Layout, completion: Completion) -> bool:
    """Put an end into its session's outbox. False when it is, or ever was, there.

    Raises:
        InvalidIdError: The run id is not an id.
        OSError: The disk is full, or the like.
    """
    session = prepare_session(layout, completion.session_id)
    name = _name(completion)
    if exists(session.done / name):
        return False
    return write_new(session.completions / (name + _SUFFIX), encode_record(completion), fsync=False)


class Outbox:
    """The ends of one session's runs that no host has finished with."""

    def __init__(self, layout: Layout, session_id: str) -> None:
        self._layout = layout
        self._session = prepare_session(layout, session_id)
        for directory in (self._session.dir, self._session.completions):
            sweep_temp(directory)

    def pending(self, *, on_problem: Callable[[str, PisubError], None] | None = None) -> list[Completion]:
        """Return the ends that are not done, in the order of ending, taken or not.

        Args:
            on_problem: Told the file's name and the error of each end that cannot be read. It hides no other.
        """
        found: list[Completion] = []
        for file in list_names(self._session.completions):
            name = file.partition(".taken.")[0].removesuffix(_SUFFIX)
            if name != self._session.done.name and exists(self._session.done / name):
                remove(self._session.completions / file)  # a host was killed when it had said so
                continue
            if not file.endswith(_SUFFIX):
                continue
            try:
                completion = self._read(file)
            except PisubError as error:
                if on_problem is not None:
                    on_problem(file, error)
                continue
            if completion is not None:
                found.append(completion)
        return sorted(found, key=lambda each: (each.ended_at, each.run_id))

    def take(self, completion: Completion, generation: str) -> Delivery | None:
        """Take an end, before its handler is called.

        Args:
            completion: From ``pending`` or from a message.
            generation: Names this host in this session, never used by another; letters, digits, ``_`` and ``-``.

        Returns:
            None when it is done, or this generation took it before: do not call the handler.

        Raises:
            InvalidArgumentError: ``generation`` cannot name one.
            OSError: The disk is full, or the like; the end is not taken.
        """
        if _GENERATION.fullmatch(generation) is None:
            raise InvalidArgumentError("A generation has 1 to 96 letters, digits, _ and -.", field="generation")
        name = _name(completion)
        if exists(self._session.done / name):
            self._clear(name)
            return None
        if not write_new(self._session.completions / f"{name}.taken.{generation}", b"", fsync=False):
            return None
        # After the own mark, so that of two that take at once at least one sees the other; and before the look at
        # `done`, whose writer removes the marks afterwards: without it, none was removed before they were listed.
        takers = [each for each in list_names(self._session.completions) if each.startswith(f"{name}.taken.")]
        if exists(self._session.done / name):
            self._clear(name)
            return None
        return Delivery(completion=completion, redelivered=len(takers) > 1)

    def done(self, completion: Completion) -> bool:
        """Report that the handler returned: the end is never delivered again. False when it was done before."""
        name = _name(completion)
        is_first = write_new(self._session.done / name, b"", fsync=False)
        self._clear(name)
        return is_first

    def _read(self, file: str) -> Completion | None:
        path = self._session.completions / file
        completion, torn = read_survivor(path, Completion)
        if torn is not None:
            # A power cut tore it. The name says which run; the run's own result was flushed and says the rest.
            result = read_result(self._layout.run(file.partition(".")[0]))
            completion = None if result is None else completion_of(result)
        if completion is not None and _name(completion) + _SUFFIX != file:
            raise RecordCorruptError(f"{path} is another end's: it was moved or copied.")
        return completion

    def _clear(self, name: str) -> None:
        """Remove what the ledger's ``done`` has made superfluous, so that the outbox stays small."""
        for file in list_names(self._session.completions):
            if file == name + _SUFFIX or file.startswith(f"{name}.taken."):
                remove(self._session.completions / file)


class HostRecord(Record, frozen=True, kw_only=True):
    """``host.<n>.json``: the session's n-th host."""

    session_id: str
    number: int
    process: ProcessIdentity


def claim_host_record(layout: Layout, session_id: str, identity: ProcessIdentity) -> int:
    """Become the session's next host, in the record; the broker decides in the present.

    Returns:
        The number: higher than every earlier host's.

    Raises:
        OSError: The disk is full, or the like.
    """
    session = prepare_session(layout, session_id)
    number = _last_number(session) + 1
    while True:
        record = HostRecord(session_id=session_id, number=number, process=identity)
        if write_new(session.host(number), encode_record(record), fsync=False):
            # One that found a lower number free found one that was forgotten: it is not the last.
            if _last_number(session) == number:
                _forget_hosts(session, before=number - _KEPT_HOSTS)
                return number
            remove(session.host(number))
        number = max(number, _last_number(session)) + 1


def last_host(layout: Layout, session_id: str) -> tuple[int, ProcessIdentity] | None:
    """Return the number and the process of the session's last host; None when it had none.

    Raises:
        RecordCorruptError: Its file is whole and does not parse.
    """
    session = layout.session(session_id)
    number = _last_number(session)
    if number == 0:
        return None
    try:
        record = read_record(session.host(number), HostRecord)
    except RecordCorruptError as error:
        if error.code != TORN:
            raise
        # A power cut tore the file, so its process did not survive: an identity of no boot of this machine is dead.
        return number, ProcessIdentity(pid=0, machine_id=machine_id(), boot_id="torn")
    return None if record is None else (number, record.process)


def _forget_hosts(session: SessionPaths, *, before: int) -> None:
    """Remove the files of hosts of long ago. Only the last one's is ever read."""
    for name in list_names(session.hosts):
        match = _HOST.fullmatch(name)
        if match is not None and int(match[1]) < before:
            remove(session.hosts / name)


def _last_number(session: SessionPaths) -> int:
    numbers = [int(match[1]) for name in list_names(session.hosts) if (match := _HOST.fullmatch(name))]
    return max(numbers, default=0)


def _name(completion: Completion) -> str:
    return f"{check_id(completion.run_id)}.{completion.state.value}"
