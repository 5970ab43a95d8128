"""The structured result of a run: one value, checked against the run's schema, captured once, apart from any text.

Owns the rule by which a run with a schema succeeds: a captured value, and no failed tool after it. A text is never
parsed for it, and what was not captured by a call of the tool is not there.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pisub.engines.base import Settled
from pisub.errors import RefusedError, StructuredOutputError
from pisub.schemas import StructuredSchema

TOOL_NAME: Final = "structured_output"
#: ``reason`` of a run that should have given a structured result and did not.
FAILED: Final = "structured_output_failed"


class Capture:
    """What one run captured. Thread-safe: an agent's tools may run anywhere.

    Args:
        schema: As in the run's spec; None where a text is wanted.
    """

    def __init__(self, schema: Mapping[str, Any] | None) -> None:
        self._schema = None if schema is None else StructuredSchema(schema)
        self._lock = threading.Lock()
        self._value: Any = msgspec.UNSET
        self._failed_after = ""

    @property
    def is_wanted(self) -> bool:
        """Whether the run is to give a structured result."""
        return self._schema is not None

    def take(self, value: object) -> None:
        """Check a value and keep it.

        Raises:
            StructuredOutputError: It does not fit; another may be tried.
            RefusedError: No structured result is wanted, or there is one already.
        """
        if self._schema is None:
            raise RefusedError(
                "This run was given no schema: return a text, or start it with one (output_schema, --schema).",
                code="no_schema",
            )
        with self._lock:
            if self._value is not msgspec.UNSET:
                raise RefusedError("The structured result is captured already: end now.", code="already_captured")
            try:
                self._value = self._schema.check(value)
            except ValueError as error:
                raise StructuredOutputError(
                    f"The value does not fit the schema:\n{error}\nMend it and call {TOOL_NAME} again.",
                    problems=tuple(str(error).splitlines()),
                ) from error

    def note_tool_error(self, name: str) -> None:
        """Say that a tool failed: after the capture the run has failed with it."""
        with self._lock:
            if self._value is not msgspec.UNSET and not self._failed_after:
                self._failed_after = name

    def settle(self, settled: Settled) -> Settled:
        """Return how the run ended, given how its engine did: with the value, or as failed where it has none.

        A run that failed otherwise, or was cancelled, keeps that end.
        """
        if self._schema is None or settled.error is not None or settled.was_cancelled:
            return settled
        if self._value is msgspec.UNSET:
            error = f"Missing {TOOL_NAME} call: the run was to give a value for its schema, and ended without."
            return msgspec.structs.replace(settled, error=error, reason=FAILED)
        if self._failed_after:
            error = f"The tool {self._failed_after} failed after the structured result was captured."
            return msgspec.structs.replace(settled, error=error, reason=FAILED)
        return msgspec.structs.replace(settled, structured=self._value)
