"""``pisub structured-output``: a run's structured result, from the program that the run is. Checked, then written."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import msgspec

from pisub.cli.console import Console, safe_line
from pisub.cli.exits import Exit
from pisub.cli.select import read_value
from pisub.config import Settings, structured_places
from pisub.errors import InvalidArgumentError, RefusedError, StructuredOutputError
from pisub.protocol.limits import MAX_SCHEMA_BYTES
from pisub.schemas import StructuredSchema
from pisub.small_files import read_small


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:  # noqa: ARG001  # a command takes them all
    """Check a value against the run's schema, and hand it over. A value that does not fit may be tried again."""
    places = structured_places()
    if places is None:
        raise RefusedError(
            "This is no program of a run with a schema: `pisub run AGENT TASK --schema FILE` starts one.",
            code="no_schema",
        )
    schema, output = map(Path, places)
    try:
        value = msgspec.json.decode(read_value(arguments.value))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgumentError(f"The value is no JSON: {error}.", field="value") from error
    try:
        checked = StructuredSchema(msgspec.json.decode(read_small(schema, MAX_SCHEMA_BYTES))).check(value)
    except ValueError as error:
        return _say(console, str(error).splitlines())
    _write(output, msgspec.json.encode(checked))
    if console.is_json:
        console.json("structuredOutput", {"captured": True})
    return Exit.OK


def _say(console: Console, problems: list[str]) -> Exit:
    message = "the value does not fit the schema"
    console.error(message, "mend it and call this again")
    for each in problems:
        console.say(safe_line(each))
    if console.is_json:
        code = StructuredOutputError.code
        console.json("error", {"code": code, "message": message, "field": "value", "problems": problems})
    return Exit.USAGE


def _write(output: Path, data: bytes) -> None:
    """Write the value under its name, whole, once."""
    temporary = output.with_name(f"{output.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    try:
        os.link(temporary, output)
    except FileExistsError:
        raise RefusedError("The structured result is captured already: end now.", code="already_captured") from None
    finally:
        temporary.unlink()
