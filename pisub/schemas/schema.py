"""A JSON Schema from a stranger, checked once and applied in bounded time. Pure; ``jsonschema`` does the validating.

Refused: what leaves the document (a ``$ref`` that is not local), what is not bounded (see ``patterns``), and the
dynamic and unevaluated keywords, whose cost nothing counts. Applying a schema counts its steps: references that double
at each level, or lead back to themselves, end as an error and not as a hang.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Generator, Mapping
from itertools import islice
from typing import Any, Final, cast

import msgspec

from pisub.errors import InvalidArgumentError
from pisub.protocol.limits import MAX_SCHEMA_BYTES, MAX_STRUCTURED_BYTES
from pisub.schemas.patterns import PatternError, longest_text, pattern_cost
from pisub.schemas.plain import PlainJsonError, plain_json

#: Keyword applications of one validation: a value has 100,000 entries at most, each with a few keywords. Some seconds.
MAX_STEPS: Final = 500_000
#: What a caller is told of a value that does not fit: so many lines, each so long (contract, delegation 4.1).
MAX_PROBLEMS: Final = 8
_MAX_PROBLEM_CHARS: Final = 300
_REFERENCES: Final = ("$ref",)
_REFUSED: Final = frozenset(
    {"$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "unevaluatedProperties", "unevaluatedItems"}
)
#: Keywords whose value is data, not schema.
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
#: Keywords whose value maps names, which are no keywords, to schemas.
_NAMED: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)

_Keyword = Callable[[Any, Any, Any, Any], Generator[Any]]


class _TooMuchWorkError(Exception):
    """The schema asks for more steps than it may."""


def check_schema(schema: object, field: str = "output_schema") -> dict[str, Any]:
    """Return a schema, copied as plain JSON, that can be applied in bounded time.

    Args:
        schema: An object, at most ``MAX_SCHEMA_BYTES`` of compact JSON.
        field: How the caller calls it.

    Raises:
        InvalidArgumentError: It is no such schema; the message begins with "invalid outputSchema".
    """
    try:
        if not isinstance(schema, Mapping):
            raise PlainJsonError("it must be a JSON Schema object")  # noqa: TRY301  # one way out for every fault
        found = cast("dict[str, Any]", plain_json(dict(cast("Mapping[str, Any]", schema)), max_bytes=MAX_SCHEMA_BYTES))
        _walk(found, "$")
        _check_draft(found)
    except PlainJsonError as error:
        raise InvalidArgumentError(f"invalid outputSchema: {error}.", field=field) from error
    return found


class StructuredSchema:
    """A schema that ``check_schema`` has taken, ready to check values. Not thread-safe."""

    def __init__(self, schema: Mapping[str, Any], *, max_steps: int = MAX_STEPS) -> None:
        self._schema = schema
        self._max_steps = max_steps
        self._steps = 0
        self._validator: Any = None

    def check(self, value: object) -> Any:
        """Return a value as plain JSON that fits the schema.

        Raises:
            ValueError: It does not; each line of the text is ``path: message``, at most ``MAX_PROBLEMS``.
        """
        try:
            found = plain_json(value, max_bytes=MAX_STRUCTURED_BYTES)
        except PlainJsonError as error:
            text = str(error)
            raise ValueError(text if text.startswith("$") else f"$: {text}") from error
        problems = self._problems(found)
        if problems:
            raise ValueError("\n".join(problems))
        return found

    def _problems(self, value: Any) -> list[str]:
        if self._validator is None:
            self._validator = self._make()
        self._steps = 0
        unresolvable: type[Exception] = _library("referencing.exceptions").Unresolvable
        try:
            errors: list[Any] = list(islice(self._validator.iter_errors(value), MAX_PROBLEMS))
        except _TooMuchWorkError:
            return [f"$: the schema takes more than {self._max_steps} steps for this value"]
        except RecursionError:
            return ["$: the schema refers to itself without end, or the value is nested too deeply for it"]
        except unresolvable as error:
            return [f"$: a $ref of the schema leads nowhere: {error!s:.200}"]
        return [_line(error) for error in errors]

    def _make(self) -> Any:
        base = _draft(self._schema)
        own: dict[str, _Keyword] = {
            **base.VALIDATORS,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            "uniqueItems": _unique_items,
        }
        counted = {name: self._counted(function) for name, function in own.items()}
        # A registry of its own, which fetches nothing: the library's default one asks the network.
        registry = _library("referencing").Registry()
        return _library("jsonschema.validators").extend(base, counted)(self._schema, registry=registry)

    def _counted(self, function: _Keyword) -> _Keyword:
        def apply(validator: Any, keyword: Any, instance: Any, schema: Any) -> Generator[Any]:
            self._steps += 1
            if self._steps > self._max_steps:
                raise _TooMuchWorkError
            yield from function(validator, keyword, instance, schema) or ()

        return apply


def _draft(schema: Mapping[str, Any]) -> Any:
    library = _library("jsonschema.validators")
    return library.validator_for(schema, default=library.Draft202012Validator)


def _check_draft(schema: dict[str, Any]) -> None:
    schema_error: type[Exception] = _library("jsonschema").SchemaError
    try:
        _draft(schema).check_schema(schema)
    except schema_error as error:
        raise PlainJsonError(_line(error)) from error
    except RecursionError as error:
        raise PlainJsonError("it is nested too deeply") from error


def _library(name: str) -> Any:
    """Return a module of the library, which has no types: 80 ms that only a run with a schema pays."""
    return importlib.import_module(name)


def _line(error: Any) -> str:
    text = f"{error.json_path}: {error.message}"
    return text if len(text) <= _MAX_PROBLEM_CHARS else text[: _MAX_PROBLEM_CHARS - 1] + "…"


def _walk(schema: Any, path: str) -> None:
    """Refuse what is refused, wherever it stands as a keyword."""
    if isinstance(schema, list):
        for at, each in enumerate(cast("list[object]", schema)):
            _walk(each, f"{path}[{at}]")
        return
    if not isinstance(schema, dict):
        return
    for key, value in cast("dict[str, Any]", schema).items():
        here = f"{path}.{key}"
        if key in _DATA:
            continue
        if key in _NAMED and isinstance(value, dict):
            for name, each in cast("dict[str, Any]", value).items():
                if key == "patternProperties":
                    _check_pattern(name, here)
                _walk(each, f"{here}.{name}")
            continue
        if key in _REFUSED:
            raise PlainJsonError(f"{here}: {key} is not supported")
        if key in _REFERENCES and isinstance(value, str) and not value.startswith("#"):
            raise PlainJsonError(f"{here}: {value[:80]!a} is not local: only references that begin with # are")
        if key == "pattern" and isinstance(value, str):
            _check_pattern(value, here)
        _walk(value, here)


def _check_pattern(pattern: str, path: str) -> None:
    try:
        if longest_text(pattern_cost(pattern)) < 1:
            raise PatternError("it can be matched in too many ways")  # noqa: TRY301  # one way out
    except PatternError as error:
        raise PlainJsonError(f"{path}: the pattern {pattern[:60]!a} cannot be used: {error}") from error


# Keywords of our own, in place of the library's: the same verdicts, in bounded time. ---------------------------------


@functools.lru_cache(256)
def _limit_of(pattern: str) -> int:
    return longest_text(pattern_cost(pattern))


def _search(pattern: str, text: str) -> bool | None:
    """Return whether a pattern is found; None where the text is too long for it."""
    return None if len(text) > _limit_of(pattern) else re.search(pattern, text) is not None


def _pattern(_: Any, pattern: Any, instance: Any, __: Any) -> Generator[Any]:
    if not isinstance(instance, str):
        return
    found = _search(pattern, instance)
    if found is None:
        yield _error(f"the text has {len(instance)} characters: too many for the pattern {pattern!r}")
    elif not found:
        yield _error(f"{instance[:80]!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Generator[Any]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        for key, value in instance.items():
            found = _search(pattern, key)
            if found is None:
                yield _error(f"the key {key[:40]!r}… is too long for the pattern {pattern!r}")
            elif found:
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Generator[Any]:
    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras = [key for key in instance if key not in known and not any(_search(each, key) for each in patterns)]
    if isinstance(allowed, dict):
        for key in extras:
            yield from validator.descend(instance[key], allowed, path=key)
    elif allowed is False and extras:
        yield _error(f"not allowed here: {', '.join(map(repr, sorted(extras)))[:200]}")


def _unique_items(validator: Any, is_unique: Any, instance: Any, _: Any) -> Generator[Any]:
    if not is_unique or not validator.is_type(instance, "array"):
        return
    seen: set[bytes] = set()
    for each in instance:
        key = msgspec.json.encode(_comparable(each), order="deterministic")
        if key in seen:
            yield _error(f"{msgspec.json.encode(each).decode()[:80]} is there more than once")
            return
        seen.add(key)


def _comparable(value: Any) -> Any:
    """Return a value whose encoding is equal where JSON Schema says that two values are: 1 and 1.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_comparable(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _comparable(each) for key, each in cast("dict[str, Any]", value).items()}
    return value


def _error(text: str) -> Any:
    return _library("jsonschema").ValidationError(text)
