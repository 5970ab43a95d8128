"""Extension bindings: what a caller passes to extensions of a child, by versioned namespace. Pure."""

from __future__ import annotations

import math
import re
from typing import Any, cast

import msgspec

from pisub.protocol.limits import (
    MAX_BINDING_BYTES,
    MAX_BINDING_DEPTH,
    MAX_BINDING_NAMESPACES,
    MAX_BINDING_PROPERTIES,
)

_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}/[1-9][0-9]{0,8}", re.ASCII)


class BindingsError(ValueError):
    """The bindings cannot be passed on; the sentence says why."""


def check_bindings(value: object) -> dict[str, Any]:
    """Return bindings as plain JSON with sorted keys: a copy, so that later changes of the caller's change nothing.

    Raises:
        BindingsError: They break a rule.
    """
    if not isinstance(value, dict):
        raise BindingsError("extensionBindings must be an object of namespaces")
    given = cast("dict[object, object]", value)
    if len(given) > MAX_BINDING_NAMESPACES:
        raise BindingsError(f"extensionBindings has more than {MAX_BINDING_NAMESPACES} namespaces")
    for name in given:
        if not isinstance(name, str) or _NAMESPACE.fullmatch(name) is None:
            raise BindingsError(f"{str(name)[:80]!a} is no namespace: use name/version, such as acme.tools/1")
    plain = _Plain()
    found = cast("dict[str, Any]", plain.copy(given, 0))
    try:
        size = len(canonical(found))
    except UnicodeEncodeError as error:
        raise BindingsError("extensionBindings holds a text that is not UTF-8") from error
    if size > MAX_BINDING_BYTES:
        raise BindingsError(f"extensionBindings has {size} bytes of JSON; at most {MAX_BINDING_BYTES} are allowed")
    return found


def canonical(value: object) -> bytes:
    """Return a value's one JSON form: compact, keys in the order of their code points, text unescaped."""
    return msgspec.json.encode(value, order="sorted")


class _Plain:
    """Copies plain JSON and counts what it meets. Containers on the way down are remembered: a cycle meets one."""

    def __init__(self) -> None:
        self._properties = 0
        self._above: set[int] = set()

    def copy(self, value: object, depth: int) -> object:
        if depth > MAX_BINDING_DEPTH:
            raise BindingsError(f"extensionBindings nests deeper than {MAX_BINDING_DEPTH}")
        match value:
            case None | bool() | str():
                return value
            case int():
                return self._number(value)
            case float():
                if not math.isfinite(value):
                    raise BindingsError("extensionBindings holds a number that is not finite")
                return value or 0  # one zero: the negative one is written like no other
            case list() | dict():
                return self._container(cast("list[object] | dict[object, object]", value), depth)
            case _:
                raise BindingsError(f"extensionBindings holds a {type(value).__name__}, which is no JSON")

    def _number(self, value: int) -> int:
        if abs(value) > 2**53:
            raise BindingsError("extensionBindings holds a whole number beyond 2^53, which JSON readers round")
        return value

    def _container(self, value: list[object] | dict[object, object], depth: int) -> object:
        if id(value) in self._above:
            raise BindingsError("extensionBindings holds itself")
        self._above.add(id(value))
        try:
            if isinstance(value, list):
                return [self.copy(each, depth + 1) for each in value]
            self._properties += len(value)
            if self._properties > MAX_BINDING_PROPERTIES:
                raise BindingsError(f"extensionBindings has more than {MAX_BINDING_PROPERTIES} properties")
            for key in value:
                if not isinstance(key, str):
                    raise BindingsError("extensionBindings has a key that is no text")
            return {key: self.copy(each, depth + 1) for key, each in sorted(cast("dict[str, object]", value).items())}
        finally:
            self._above.discard(id(value))
