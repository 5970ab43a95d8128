"""Work that is no run of pisub's, as its owner tells of it: shown beside the runs, and nothing else (FleetView).

Owns what such a record may say. Nobody here runs, stops or reads anything of it, and none of its owner's code is
called. A bad record of another session is never looked at. Bounds are the contract's (integrations 4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from pisub.errors import InvalidArgumentError
from pisub.fleet.text import clean_line, units
from pisub.protocol.base import Part
from pisub.protocol.fleet import encode_json

REGISTRY_KEY: Final = "pi-subagents.external-runs.v2"
VERSION: Final = 2
MAX_CACHED: Final = 100
MAX_SHOWN: Final = 20
MAX_JSON_BYTES: Final = 32_768
MAX_NAME_UNITS: Final = 160
MAX_LONG_UNITS: Final = 4_096
#: The last moment that JavaScript's dates hold.
MAX_MOMENT: Final = 8_640_000_000_000_000
STATES: Final = ("queued", "running", "completed", "failed", "stopped")
_ACTIVE: Final = ("queued", "running")

_NAMES: Final = {"id": MAX_NAME_UNITS, "sessionId": MAX_LONG_UNITS}
_LINES: Final = {"source": MAX_NAME_UNITS, "label": MAX_NAME_UNITS}
_MORE: Final = {
    "currentAction": MAX_NAME_UNITS,
    "preview": MAX_LONG_UNITS,
    "reportPath": MAX_LONG_UNITS,
    "transcriptPath": MAX_LONG_UNITS,
}
_MOMENTS: Final = ("startedAt", "updatedAt", "endedAt")
_FIELDS: Final = (*_NAMES, *_LINES, "state", *_MOMENTS, *_MORE)
_REQUIRED: Final = (*_NAMES, *_LINES, "state", "startedAt")
_FIXED: Final = ("id", "sessionId", "source")


class ExternalRun(Part, frozen=True, kw_only=True):
    """One piece of work. Texts are clean lines; moments are Unix time in milliseconds; paths are shown, never read."""

    id: str
    session_id: str
    source: str
    label: str
    state: str
    started_at: int
    updated_at: int | None = None
    ended_at: int | None = None
    current_action: str | None = None
    preview: str | None = None
    report_path: str | None = None
    transcript_path: str | None = None

    @property
    def is_active(self) -> bool:
        """Whether its owner says that it goes on."""
        return self.state in _ACTIVE


OnMalformed = Callable[[str], object]


def key_of(session_id: str, run_id: str) -> str:
    """Return the key of a record in ``ExternalRuns.records``."""
    return f"{session_id}\0{run_id}"


class ExternalRuns:
    """The records that one host knows.

    Attributes:
        records: By key. What others put here is checked when it is looked at.
    """

    version: Final = VERSION

    def __init__(self) -> None:
        self.records: dict[str, object] = {}
        #: What was written by the methods below, and needs no second check while it is the same object.
        self._trusted: dict[str, ExternalRun] = {}

    def register(self, run: Mapping[str, Any]) -> ExternalRun:
        """Add a record.

        Args:
            run: ``id`` ``sessionId`` ``source`` ``label`` ``state`` ``startedAt``, and what else is known.

        Raises:
            InvalidArgumentError: A field is wrong, missing or unknown, the id is taken in its session, or there are
                100 records. Nothing was changed.
        """
        made = external_run(run)
        key = key_of(made.session_id, made.id)
        if key in self.records:
            raise InvalidArgumentError(f"The session has an external run {made.id!a} already: update it.", field="id")
        if len(self.records) >= MAX_CACHED:
            raise InvalidArgumentError(f"{MAX_CACHED} external runs are known: that is the most.", field="id")
        self._put(key, made)
        return made

    def update(self, session_id: str, run_id: str, patch: Mapping[str, Any]) -> ExternalRun:
        """Change a record: all of the patch, or nothing.

        Raises:
            InvalidArgumentError: There is no such record, or a field is wrong, unknown or one that stays as it is.
        """
        key = key_of(session_id, run_id)
        if key not in self.records:
            raise InvalidArgumentError(f"The session has no external run {run_id!a:.200}.", field="id")
        _refuse_unknown(patch, tuple(field for field in _FIELDS if field not in _FIXED))
        old = cast("dict[str, Any]", msgspec.to_builtins(self._checked(key)))
        made = external_run({**old, **patch})
        self._put(key, made)
        return made

    def unregister(self, session_id: str, run_id: str) -> bool:
        """Remove a record. False where there is none."""
        key = key_of(session_id, run_id)
        self._trusted.pop(key, None)
        is_found = key in self.records
        self.records.pop(key, None)
        return is_found

    def snapshot(
        self, session_id: str, *, ignore_malformed: bool = False, on_malformed_record: OnMalformed | None = None
    ) -> tuple[ExternalRun, ...]:
        """Return a session's records: those that go on first, then the latest; at most 20, and 32 KiB as JSON.

        Args:
            session_id: Only its records are looked at.
            ignore_malformed: Whether a record of it that is none is removed instead of an error.
            on_malformed_record: Told the key and the reason then.

        Raises:
            InvalidArgumentError: A record of this session is none; the message has its key and the reason.
        """
        found: list[ExternalRun] = []
        for key in [each for each in self.records if _is_of(each, session_id)]:
            try:
                found.append(self._checked(key))
            except InvalidArgumentError as error:
                if not ignore_malformed:
                    raise
                self.unregister(*key.split("\0", 1))
                if on_malformed_record is not None:
                    on_malformed_record(error.message)
        found.sort(key=_order)
        shown = found[:MAX_SHOWN]
        while shown and len(encode_json(shown)) > MAX_JSON_BYTES:
            shown.pop()
        return tuple(shown)

    def _put(self, key: str, run: ExternalRun) -> None:
        self.records[key] = self._trusted[key] = run

    def _checked(self, key: str) -> ExternalRun:
        record = self.records[key]
        trusted = self._trusted.get(key)
        if trusted is not None and record is trusted:
            return trusted
        try:
            given: object = msgspec.to_builtins(record) if type(record) is ExternalRun else record
            made = external_run(given)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"External run {key}: {error.message}", field=error.field) from error
        if key_of(made.session_id, made.id) != key:
            raise InvalidArgumentError(f"External run {key}: it is under another one's key.", field="id")
        self._put(key, made)
        return made


def _is_of(key: object, session_id: str) -> bool:
    return type(key) is str and key.startswith(f"{session_id}\0")


def external_run(given: object) -> ExternalRun:
    """Return the record that some fields describe.

    Raises:
        InvalidArgumentError: They describe none; ``field`` says where.
    """
    # A plain dictionary alone: what is like one could be somebody's code.
    if type(given) is not dict:
        raise InvalidArgumentError(f"It must be an object, not {type(given).__name__}.", field="run")
    fields = cast("dict[object, object]", given)
    _refuse_unknown(fields, _FIELDS)
    for field in _REQUIRED:
        if field not in fields:
            raise InvalidArgumentError(f"{field} is missing.", field=field)
    values: dict[str, object] = {field: _name(field, fields[field], most) for field, most in _NAMES.items()}
    for field, most in (_LINES | _MORE).items():
        if field in fields:
            values[field] = _line(field, fields[field], most, is_required=field in _LINES)
    state = fields["state"]
    if type(state) is not str or state not in STATES:
        raise InvalidArgumentError(f"state must be one of {', '.join(STATES)}.", field="state")
    values["state"] = state
    values |= {field: _moment(field, fields[field]) for field in _MOMENTS if field in fields}
    return msgspec.convert(values, ExternalRun)


def external_text(runs: tuple[ExternalRun, ...]) -> str:
    """Return records as lines for a person."""
    if not runs:
        return "No external runs in this session."
    return "\n".join(_words(each) for each in runs)


def _words(run: ExternalRun) -> str:
    action = f": {run.current_action}" if run.current_action else ""
    return f"{run.id}  {run.state}  {run.label} ({run.source}){action}"


def _order(run: ExternalRun) -> tuple[bool, int, str]:
    at = next(each for each in (run.updated_at, run.ended_at, run.started_at) if each is not None)
    return not run.is_active, -at, run.id


def _refuse_unknown(fields: Mapping[Any, object], known: tuple[str, ...]) -> None:
    for field in fields:
        if type(field) is not str:
            raise InvalidArgumentError(f"a field's name must be a text, not {type(field).__name__}.", field="run")
        if field not in known:
            shown = clean_line(field, 60)
            raise InvalidArgumentError(f"unknown field {shown!a}; there are {', '.join(known)}.", field=shown)


def _name(field: str, value: object, most: int) -> str:
    if type(value) is not str or not value:
        raise InvalidArgumentError(f"{field} must be a text that is not empty.", field=field)
    if units(value) > most:
        raise InvalidArgumentError(f"{field} has more than {most} characters.", field=field)
    if clean_line(value, most) != value:
        raise InvalidArgumentError(
            f"{field} must be display-safe: one line without controls or white space around it.", field=field
        )
    return value


def _line(field: str, value: object, most: int, *, is_required: bool) -> str | None:
    line = clean_line(value, most) if type(value) is str else None
    if line is None or (is_required and not line):
        raise InvalidArgumentError(f"{field} must be a text with something to show.", field=field)
    return line or None


def _moment(field: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_MOMENT:
        raise InvalidArgumentError(f"{field} must be whole milliseconds from 0 to {MAX_MOMENT}.", field=field)
    return value
