"""The YAML block at the head of an agent's file, as a small tree that knows its lines.

This module owns the way from text to that tree and knows nothing of agents. Scalars keep their text beside their
value: `name: no` names an agent "no", whatever YAML 1.1 thinks of the word. The body is never parsed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, cast

import msgspec

if TYPE_CHECKING:
    import yaml

#: A block longer than this is no frontmatter; the longest seen in the field has 9 KiB.
MAX_FRONTMATTER_CHARS = 64 * 1024
#: Nesting: `runner: {argv: [...]}` needs 3. The bound keeps every recursion over the tree short.
MAX_DEPTH = 16

PlainValue: TypeAlias = "str | int | float | bool | list[PlainValue] | dict[str, PlainValue] | None"

_FENCE = "---"
_OPENING = re.compile(r"\ufeff?---[ \t]*\n")
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.MULTILINE)
_TOP_LINE = re.compile(r"([A-Za-z][\w-]*):[ \t]+(\S.*)")
_NEVER_PLAIN = "*@`%"
_CORE_PREFIX = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset({"null", "bool", "int", "float", "str", "timestamp", "merge", "value", "map", "seq"})
_CORE_TAGS = frozenset({"null", "bool", "int", "float"})


class FrontmatterError(Exception):
    """The block cannot be read. ``line`` is the file's, counted from 1; ``field`` is a key where one is at fault."""

    def __init__(self, what: str, *, line: int, field: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.field = field


class _SyntaxError(FrontmatterError):
    """It is not YAML at all, so it may be what people write instead."""


class Scalar(msgspec.Struct, frozen=True):
    """One value. ``text`` is what the file says, ``value`` what YAML makes of it."""

    line: int
    text: str
    value: str | int | float | bool | None


class Items(msgspec.Struct, frozen=True):
    """A list."""

    line: int
    items: tuple[Node, ...]


class Mapping(msgspec.Struct, frozen=True):
    """Keys with values, in the file's order. ``lines`` has the line of each key."""

    line: int
    entries: dict[str, Node]
    lines: dict[str, int]


Node: TypeAlias = "Scalar | Items | Mapping"


def split(text: str) -> tuple[str, str] | None:
    """Split a file's text into its block and its body; None where no block begins the file.

    Line ends become single line feeds. Line 1 of the block is line 2 of the file.

    Raises:
        FrontmatterError: The block is not closed, or longer than ``MAX_FRONTMATTER_CHARS``.
    """
    if not text.lstrip("\ufeff").startswith(_FENCE):
        return None
    normal = text.replace("\r\n", "\n").replace("\r", "\n")
    opening = _OPENING.match(normal)
    if opening is None:
        return None
    closing = _CLOSING.search(normal, opening.end(), opening.end() + MAX_FRONTMATTER_CHARS)
    if closing is None:
        raise FrontmatterError(f"the block that begins with {_FENCE} is not closed by a line {_FENCE}", line=1)
    return normal[opening.end() : closing.start()], normal[closing.end() :].removeprefix("\n")


def parse(block: str) -> Mapping:
    """Read a block.

    A value that YAML refuses but people write, `description: Use when: always` or `tools: *, bash`, is read as the
    text that it is: other tools read these files line by line.

    Raises:
        FrontmatterError: It is not YAML, is no mapping, repeats a key, or uses anchors, tags or binary data.
    """
    try:
        return _parse_yaml(block)
    except _SyntaxError as error:
        quoted = _quote_plain_values(block)
        if quoted == block:
            raise
        try:
            return _parse_yaml(quoted)
        except FrontmatterError:
            raise error from None


def plain(node: Node) -> PlainValue:
    """Return a node as JSON-compatible values."""
    match node:
        case Scalar():
            return node.value
        case Items():
            return [plain(item) for item in node.items]
        case Mapping():
            return {key: plain(value) for key, value in node.entries.items()}


def as_node(value: object, line: int) -> Node:
    """Return a JSON-compatible value, as a configuration has it, as a node of one line.

    Raises:
        FrontmatterError: It is of another kind.
    """
    match value:
        case None | bool() | int() | float() | str():
            text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            return Scalar(line, text, value)
        case list() | tuple():
            items = cast("list[object]", value)
            return Items(line, tuple(as_node(each, line) for each in items))
        case dict():
            entries = {str(key): as_node(each, line) for key, each in cast("dict[object, object]", value).items()}
            return Mapping(line, entries, dict.fromkeys(entries, line))
        case _:
            raise FrontmatterError(f"a value of the kind {type(value).__name__} cannot stand here", line=line)


def _parse_yaml(block: str) -> Mapping:
    import yaml  # noqa: PLC0415  # 15 ms that a program without agent files need not pay

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(block)
        try:
            root = loader.get_single_node()
            if root is None:
                return Mapping(2, {}, {})
            if not isinstance(root, yaml.MappingNode):
                raise FrontmatterError("expected `key: value` lines", line=root.start_mark.line + 2)
            return _Reader(loader).mapping(root, 0)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _SyntaxError(f"not YAML: {error.problem}", line=mark.line + 2 if mark else 1) from error
    except yaml.YAMLError as error:
        position = getattr(error, "position", 0)
        line = block.count("\n", 0, position) + 2 if isinstance(position, int) else 1
        raise FrontmatterError("a character that YAML does not allow", line=line) from error
    except UnicodeEncodeError as error:
        line = block.count("\n", 0, error.start) + 2
        raise FrontmatterError("a character that is not Unicode text", line=line) from error
    except RecursionError as error:
        raise FrontmatterError("nests too deep", line=2) from error


class _Reader:
    """Turns YAML nodes into ours. A node seen twice is an anchor's: refused, so the tree cannot explode."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        import yaml  # noqa: PLC0415  # loaded by the caller already

        self._yaml = yaml
        # The stubs leave the parameter of construct_object without a type.
        self._construct = cast("Callable[[yaml.Node], object]", loader.construct_object)  # pyright: ignore[reportUnknownMemberType]
        self._seen: set[int] = set()

    def mapping(self, node: yaml.MappingNode, depth: int, field: str | None = None) -> Mapping:
        entries: dict[str, Node] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 2
            if not isinstance(key, self._yaml.ScalarNode):
                raise FrontmatterError("a key must be a word", line=line, field=field)
            name = key.value if field is None else f"{field}.{key.value}"
            if key.value in entries:
                raise FrontmatterError(
                    f"the key is there twice, first in line {lines[key.value]}", line=line, field=name
                )
            lines[key.value] = line
            entries[key.value] = self._node(value, depth + 1, name)
        return Mapping(node.start_mark.line + 2, entries, lines)

    def _node(self, node: yaml.Node, depth: int, field: str) -> Node:
        line = node.start_mark.line + 2
        if id(node) in self._seen:
            raise FrontmatterError("YAML anchors are not supported", line=line, field=field)
        self._seen.add(id(node))
        if node.tag.removeprefix(_CORE_PREFIX) not in _PLAIN_TAGS:
            raise FrontmatterError(f"the YAML tag {node.tag!a} is not supported", line=line, field=field)
        if depth > MAX_DEPTH:
            raise FrontmatterError(f"nests deeper than {MAX_DEPTH}", line=line, field=field)
        if isinstance(node, self._yaml.MappingNode):
            return self.mapping(node, depth, field)
        if isinstance(node, self._yaml.SequenceNode):
            return Items(line, tuple(self._node(item, depth + 1, field) for item in node.value))
        return Scalar(line, node.value, self._scalar(node, line, field))

    def _scalar(self, node: yaml.Node, line: int, field: str) -> str | int | float | bool | None:
        kind = node.tag.removeprefix(_CORE_PREFIX)
        if kind not in _CORE_TAGS:
            return str(node.value)  # dates and the like stay the text that they are
        try:
            value: object = self._construct(node)
        except (ValueError, KeyError) as error:
            raise FrontmatterError(f"not a valid {kind}", line=line, field=field) from error
        if isinstance(value, float) and not math.isfinite(value):
            return str(node.value)
        assert value is None or isinstance(value, (bool, int, float))
        return value


def _quote_plain_values(block: str) -> str:
    """Quote the one-line values at the top level that YAML would take for something else than text."""
    return "\n".join(_quote_line(line) for line in block.split("\n"))


def _quote_line(line: str) -> str:
    found = _TOP_LINE.fullmatch(line)
    if found is None:
        return line
    value = found[2].rstrip()
    is_odd = value[0] in _NEVER_PLAIN or (value[0] not in "\"'[{|>#-?" and (": " in value or value.endswith(":")))
    return f"{found[1]}: {json.dumps(value)}" if is_odd else line
