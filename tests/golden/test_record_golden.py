"""The files of record version 1, for ever: what an earlier pisub wrote must be read as it was meant.

A line of the file is a name and a JSON object as it lies in a file, without its line breaks. A new record, or a new key
of one, is a new line; a line that is there stays as it is. ``python -m tests.golden.test_record_golden`` prints the
lines that are missing.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import pisub.record
import pisub.runs
from pisub.protocol.base import Record
from pisub.protocol.version import RECORD_VERSION
from pisub.record.atomic import decode_record, encode_record
from pisub.session_file import AnySessionLine
from tests.support.wire_samples import sample

GOLDEN = Path(__file__).with_name("record_v1.txt")


#: Records by their class that are in no file: a letter to a process, and what readers make of several files.
NOT_FILES = {"LaunchMessage", "AskView", "RunView", "RunFiles", "Receipt", "SpawnBudget"}


def records() -> dict[str, type[Any]]:
    """Every value that is written to a file of the record, by its class's name."""
    for package in (pisub.record, pisub.runs):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    own = ("pisub.record.", "pisub.runs.")
    found: dict[str, type[Any]] = {kind.__name__: kind for kind in _below(Record) if kind.__module__.startswith(own)}
    lines: tuple[type[Any], ...] = get_args(AnySessionLine)
    found |= {kind.__name__: kind for kind in lines}
    return {name: kind for name, kind in found.items() if name not in NOT_FILES}


def _below(kind: type[Record]) -> Iterator[type[Record]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def compact(data: bytes) -> str:
    return msgspec.json.format(data, indent=-1).decode()


def written() -> dict[str, str]:
    """Every record as this program writes it."""
    made: dict[str, str] = {}
    for name, kind in sorted(records().items()):
        for variant, is_whole in (("least", False), ("whole", True)):
            made[f"{name} {variant}"] = compact(encode_record(sample(kind, is_whole=is_whole)))
    return made


def golden() -> dict[str, str]:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    found: dict[str, str] = {}
    for line in lines:
        at = line.index("{")
        assert line[: at - 1] not in found, "a name stands for one record"
        found[line[: at - 1]] = line[at:]
    return found


def test_the_version_is_the_one_of_the_golden_lines_and_is_always_written() -> None:
    assert RECORD_VERSION == 1
    assert all(
        '"recordVersion":1' in golden()[name] for name in ("RunSpec least", "RunStatus least", "RunResult least")
    )


@pytest.mark.parametrize("name", golden() if GOLDEN.exists() else [])
def test_a_record_is_read_and_written_as_it_was(name: str) -> None:
    text = golden()[name]
    kind = records()[name.split(" ", maxsplit=1)[0]]
    record = decode_record(text.encode(), kind, Path(name))
    assert msgspec.json.decode(encode_record(record)) == msgspec.json.decode(text)


@pytest.mark.parametrize("name", sorted(records()))
def test_keys_that_a_later_version_adds_are_passed_over(name: str) -> None:
    kind = records()[name]
    least = msgspec.json.decode(encode_record(sample(kind, is_whole=False)))
    data = msgspec.json.encode({**least, "ofALaterVersion": [1, {"x": None}]})
    assert decode_record(data, kind, Path(name)) == sample(kind, is_whole=False)


def test_every_record_that_there_is_has_golden_lines() -> None:
    known = set(golden().values())
    assert [name for name, text in written().items() if text not in known] == []


if __name__ == "__main__":
    known = golden() if GOLDEN.exists() else {}
    for name, text in written().items():
        if text not in known.values():
            number = sum(each.startswith(name) for each in known) + 1
            sys.stdout.write(f"{name if number == 1 else f'{name} {number}'} {text}\n")
