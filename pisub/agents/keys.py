"""The keys of an agent's head, taken one by one, each as the type that it must have.

This module owns how a value is read: what a list, a switch, a number or a budget may look like in the file. It knows
no agent. What is wrong is named with its line and key; what nobody took in the end is ``rest``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path

from pisub.agents import frontmatter
from pisub.agents.definition import RUNNER_TYPES
from pisub.agents.frontmatter import FrontmatterError, Items, Mapping, Node, Scalar
from pisub.protocol.limits import MAX_DURATION_MS
from pisub.runs.budgets import ToolBudget, check_budget
from pisub.runs.spec import RunnerSpec

MAX_DESCRIPTION_CHARS = 16_384
#: Any other text of a head, such as a model's name or a path (contract, delegation 5.2).
MAX_TEXT_CHARS = 8_192
#: A name or an alias of an agent.
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?", re.ASCII)

_TARGET = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_FILE_TARGET = re.compile(r"(?P<path>[^\x00\n]+\.py):(?P<function>[^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_COMMA = re.compile(r",(?![^()]*\))")  # the comma in `Bash(git add, git commit)` separates no tools
_NOT_PACKAGE = re.compile(r"[^a-z0-9.-]+")


class Keys:
    """The keys of one block. Each is asked for once, by its name."""

    def __init__(self, block: Mapping) -> None:
        self._left = dict(block.entries)
        self._lines = block.lines

    def name(self) -> str:
        """Return the name, which must be there."""
        node = self._needed("name")
        found = _text(node, "name").strip()
        _check_name(found, node.line, "name")
        return found

    def description(self) -> str:
        """Return the description, which must be there."""
        node = self._needed("description")
        found = _text(node, "description").strip()
        if not 1 <= len(found) <= MAX_DESCRIPTION_CHARS:
            raise FrontmatterError(f"use 1 to {MAX_DESCRIPTION_CHARS} characters", line=node.line, field="description")
        return found

    def package(self) -> str:
        """Return the package in its one spelling: lower case, of letters, digits, dots and hyphens; '' without one."""
        node = self._left.pop("package", None)
        if node is None:
            return ""
        found = _NOT_PACKAGE.sub("-", _text(node, "package").strip().lower()).strip(".-")
        if not found:
            raise FrontmatterError("no letter or digit of it can stand in a name", line=node.line, field="package")
        return found

    def names(self, *keys: str) -> tuple[str, ...]:
        """Return the names that a list has, each once. The keys mean the same."""
        found: dict[str, None] = {}
        for key in keys:
            for each in _list(self._left.pop(key, None), key) or ():
                _check_name(each, self._lines[key], key)
                found[each] = None
        return tuple(found)

    def entries(self, *keys: str) -> tuple[str, ...] | None:
        """Return a list of texts, each once; None where no key is there. The keys mean the same."""
        found: dict[str, None] | None = None
        for key in keys:
            node = self._left.pop(key, None)
            listed = _list(node, key)
            if listed is None:
                continue
            found = found or {}
            if listed in {("none",), ("[]",), ("false",)}:
                continue
            for each in listed:
                _bounded(each, self._lines[key], key)
                found[each] = None
        return None if found is None else tuple(found)

    def extensions(self) -> tuple[str, ...] | None:
        """Return the extensions: a list, or yes for all and no for none."""
        node = self._left.get("extensions")
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            del self._left["extensions"]
            return ("*",) if node.value else ()
        return self.entries("extensions")

    def switch(self, key: str) -> bool | None:
        """Return true or false, and nothing else."""
        node = self._left.pop(key, None)
        if node is None:
            return None
        if not isinstance(node, Scalar) or node.text.lower() not in {"true", "false"}:
            raise FrontmatterError("expected true or false", line=node.line, field=key)
        return node.text.lower() == "true"

    def hint(self, key: str) -> bool | None:
        """Return true or false; what is neither counts as not there, as other tools read these keys."""
        node = self._left.pop(key, None)
        is_one = isinstance(node, Scalar) and node.text.lower() in {"true", "false"}
        return node.text.lower() == "true" if is_one and isinstance(node, Scalar) else None

    def text(self, key: str) -> str | None:
        """Return a text; None where it is not there or empty."""
        node = self._left.pop(key, None)
        if node is None or (isinstance(node, Scalar) and node.value is None):
            return None
        found = _text(node, key).strip()
        _bounded(found, node.line, key)
        return found or None

    def text_or_false(self, key: str) -> str | None:
        """Return a text, or '' for false."""
        node = self._left.get(key)
        if isinstance(node, Scalar) and node.value is False:
            del self._left[key]
            return ""
        return self.text(key)

    def choice(self, key: str, allowed: Collection[str]) -> str | None:
        """Return one of the words that are allowed."""
        node = self._left.get(key)
        found = self.text(key)
        if found is None or node is None or found in allowed:
            return found
        raise FrontmatterError(f"{found[:60]!a}: use {', '.join(allowed)}", line=node.line, field=key)

    def whole(self, key: str, *, lowest: int, highest: int = MAX_DURATION_MS) -> int | None:
        """Return a whole number within bounds."""
        node = self._left.pop(key, None)
        if node is None or (isinstance(node, Scalar) and node.value is None):
            return None
        value = node.value if isinstance(node, Scalar) else None
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise FrontmatterError(f"expected a whole number from {lowest} to {highest}", line=node.line, field=key)
        return value

    def value(self, *keys: str) -> frontmatter.PlainValue:
        """Return a value of any form. Of several keys that mean the same only one may be there."""
        there = [key for key in keys if key in self._left]
        if len(there) > 1:
            raise FrontmatterError(f"use {' or '.join(keys)}, not both", line=self._lines[there[1]], field=there[1])
        return frontmatter.plain(self._left.pop(there[0])) if there else None

    def budget(self, key: str) -> ToolBudget | None:
        """Return a tool budget: keys, or a JSON object as text."""
        node = self._left.pop(key, None)
        if node is None or (isinstance(node, Scalar) and node.value is None):
            return None
        value = frontmatter.plain(node)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                value = None
        try:
            return check_budget(value, lowest=1)
        except ValueError as error:
            raise FrontmatterError(str(error), line=node.line, field=key) from error

    def runner(self, file: Path, import_paths: tuple[str, ...]) -> RunnerSpec | None:
        """Return what drives the agent. A relative target is beside ``file``."""
        node = self._left.pop("runner", None)
        if node is None:
            return None
        if not isinstance(node, Mapping):
            raise FrontmatterError(
                'expected keys, such as {type: python, target: "module:function"}', line=node.line, field="runner"
            )
        kind_node = node.entries.get("type")
        kind = "" if kind_node is None else _text(kind_node, "runner.type")
        if kind not in RUNNER_TYPES:
            raise FrontmatterError(
                f"{kind!a} is not a type of runner; there are {', '.join(RUNNER_TYPES)}",
                line=node.line if kind_node is None else kind_node.line,
                field="runner.type",
            )
        wanted = "target" if kind == "python" else "argv"
        for key in node.entries:
            if key not in {"type", wanted}:
                raise FrontmatterError(
                    f"a runner of type {kind} has no such key; it takes type and {wanted}",
                    line=node.lines[key],
                    field=f"runner.{key}",
                )
        if wanted not in node.entries:
            raise FrontmatterError(f"a runner of type {kind} needs it", line=node.line, field=f"runner.{wanted}")
        value = node.entries[wanted]
        if kind == "external-cli":
            return RunnerSpec(type="external-cli", argv=_argv(value))
        return RunnerSpec(type="python", target=_target(value, file), import_paths=import_paths)

    def rest(self) -> dict[str, frontmatter.PlainValue]:
        """Return what nobody asked for."""
        return {key: frontmatter.plain(node) for key, node in self._left.items()}

    def _needed(self, key: str) -> Node:
        node = self._left.pop(key, None)
        if node is None:
            raise FrontmatterError("the key is missing", line=1, field=key)
        return node


def _text(node: Node, field: str) -> str:
    if not isinstance(node, Scalar) or node.value is None:
        raise FrontmatterError("expected text", line=node.line, field=field)
    return node.text


def _bounded(text: str, line: int, field: str) -> None:
    if len(text) > MAX_TEXT_CHARS or "\0" in text:
        raise FrontmatterError(f"use at most {MAX_TEXT_CHARS} characters, and no NUL", line=line, field=field)


def _check_name(text: str, line: int, field: str) -> None:
    if NAME.fullmatch(text) is None:
        raise FrontmatterError(
            f"{text[:60]!a} is not a name: use 1 to 128 of letters, digits, '.', '_' and '-', "
            "beginning and ending with a letter or digit",
            line=line,
            field=field,
        )


def _list(node: Node | None, field: str) -> tuple[str, ...] | None:
    """Read a list: YAML's, `a, b`, or `[a, b]` that was written as text. An empty value is an empty list."""
    match node:
        case None:
            return None
        case Items(items=items):
            return tuple(text for item in items if (text := _text(item, field).strip()))
        case Scalar(value=None):
            return ()
        case Scalar(text=whole):
            inner = whole.strip()
            if inner.startswith("[") and inner.endswith("]"):
                inner = inner[1:-1]
            parts = (part.strip().strip("\"'").strip() for part in _COMMA.split(inner))
            return tuple(part for part in parts if part)
        case Mapping(line=line):
            raise FrontmatterError("expected a list", line=line, field=field)


def _argv(node: Node) -> tuple[str, ...]:
    field = "runner.argv"
    if not isinstance(node, Items) or not node.items:
        raise FrontmatterError("expected a list: the program, then its arguments", line=node.line, field=field)
    argv = tuple(_text(item, field) for item in node.items)
    for item, word in zip(node.items, argv, strict=True):
        if "\0" in word:
            raise FrontmatterError("an argument holds a NUL", line=item.line, field=field)
    if not argv[0].strip():
        raise FrontmatterError("the program has no name", line=node.items[0].line, field=field)
    return argv


def _target(node: Node, file: Path) -> str:
    text = _text(node, "runner.target").strip()
    if _TARGET.fullmatch(text):
        return text
    found = _FILE_TARGET.fullmatch(text)
    if found is None:
        raise FrontmatterError(
            f"{text[:80]!a} is not a target: use 'package.module:function' or './file.py:function'",
            line=node.line,
            field="runner.target",
        )
    return f"{file.parent / found['path']}:{found['function']}"
