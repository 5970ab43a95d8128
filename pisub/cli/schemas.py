"""JSON on the command line: the schema that ``run`` and ``preflight`` take, and the value for one."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import msgspec

from pisub.errors import InvalidArgumentError
from pisub.protocol.limits import MAX_SCHEMA_BYTES
from pisub.small_files import read_small

#: With white space and comments a file may be larger than its compact JSON.
_MAX_FILE_BYTES = 8 * MAX_SCHEMA_BYTES


def declare_schema(parser: ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        "--schema", metavar="FILE", type=Path, help="a JSON Schema: the run must give one JSON value that fits it"
    )


def read_schema(path: Path) -> Any:
    """Return the content of a JSON file. Whether it is a schema is the launch's to say.

    Raises:
        InvalidArgumentError: It cannot be read, or is no JSON.
    """
    try:
        return msgspec.json.decode(read_small(path.expanduser(), _MAX_FILE_BYTES))
    except OSError as error:
        raise InvalidArgumentError(
            f"The schema {path} cannot be read: {error.strerror or error}.", field="schema"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgumentError(f"The schema {path} is no JSON: {error}.", field="schema") from error
