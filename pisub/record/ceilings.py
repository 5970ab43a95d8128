"""The ceilings of a session on disk: one file per registration, by its owner alone, for as long as the owner lives.

Every process that submits a run into the session reads them, so it is the record that enforces them and no registry in
one process's memory. A file that cannot be read is an error: fail closed. This module knows no caller's rights.
"""

from __future__ import annotations

from collections.abc import Iterator

from pisub.errors import RefusedError
from pisub.ids import check_session_id, new_id
from pisub.process import Liveness, ProcessIdentity, liveness, own_identity
from pisub.protocol.base import Record
from pisub.record.atomic import encode_record, read_record, remove, replace, sweep_temp
from pisub.record.dirs import list_names, make_dir
from pisub.record.layout import Layout
from pisub.record.submit import prepare_session
from pisub.runs.ceilings import CapabilityCeiling, check_ceiling, intersect

_SUFFIX = ".json"


class CeilingRegistration(Record, frozen=True, kw_only=True):
    """``sessions/<key>/ceilings/<token>.json``: replaced by its owner, which is the process that registered it."""

    session_id: str
    owner: ProcessIdentity
    ceiling: CapabilityCeiling


class CeilingHandle:
    """One registration. The token in its name is its key: two of one source are two.

    Its owner's end ends it too; a run that was launched under it keeps its snapshot.
    """

    def __init__(self, layout: Layout, registration: CeilingRegistration) -> None:
        self._registration = registration
        self._path = layout.session(registration.session_id).ceilings / f"{new_id()}{_SUFFIX}"
        self._is_disposed = False
        self._write(registration)

    @property
    def ceiling(self) -> CapabilityCeiling:
        """What it says now."""
        return self._registration.ceiling

    def update(self, ceiling: object) -> None:
        """Replace the whole of it, atomically.

        Raises:
            InvalidArgumentError: It is no ceiling; the old one stays.
            RefusedError: It was disposed of (``disposed``).
        """
        if self._is_disposed:
            raise RefusedError("This ceiling is disposed: register another one.", code="disposed")
        checked = check_ceiling(ceiling, self._registration.ceiling.sources[0])
        self._write(
            CeilingRegistration(
                session_id=self._registration.session_id, owner=self._registration.owner, ceiling=checked
            )
        )

    def dispose(self) -> None:
        """Take this registration back, and no other. Idempotent."""
        self._is_disposed = True
        remove(self._path)

    def _write(self, registration: CeilingRegistration) -> None:
        replace(self._path, encode_record(registration), fsync=False)
        self._registration = registration


def register_ceiling(layout: Layout, session_id: str, source: str, ceiling: object) -> CeilingHandle:
    """Put a ceiling over a session: on every run that is submitted from now on, by whatever process.

    Args:
        layout: The record.
        session_id: The session, exactly.
        source: Who asks for it, in a word or two.
        ceiling: A mapping, see ``check_ceiling``.

    Raises:
        InvalidArgumentError: One of them is not allowed; nothing was registered.
    """
    session_id = check_session_id(session_id)
    checked = check_ceiling(ceiling, source)
    directory = prepare_session(layout, session_id).ceilings
    make_dir(directory)
    sweep_temp(directory)
    for name, registration in _registrations(layout, session_id):
        if liveness(registration.owner) is Liveness.DEAD:
            remove(directory / name)
    registration = CeilingRegistration(session_id=session_id, owner=own_identity(), ceiling=checked)
    return CeilingHandle(layout, registration)


def active_ceiling(layout: Layout, session_id: str) -> CapabilityCeiling | None:
    """Return what holds for a session now; None where no live process has registered anything.

    Raises:
        RecordCorruptError: A registration cannot be read. It is no permission.
    """
    found = _registrations(layout, session_id)
    return intersect(each.ceiling for _, each in found if liveness(each.owner) is not Liveness.DEAD)


def _registrations(layout: Layout, session_id: str) -> Iterator[tuple[str, CeilingRegistration]]:
    directory = layout.session(session_id).ceilings
    for name in list_names(directory):
        if name.endswith(_SUFFIX) and not name.startswith("."):
            found = read_record(directory / name, CeilingRegistration)
            if found is not None:  # disposed of in between
                yield name, found
