"""`.gitignore`, roughly: enough for a tree that git itself cannot list.

Known differences: no global ignore file, no `.git/info/exclude`, and a pattern with more than ``MAX_STARS`` stars is
not used, since matching it could take for ever.
"""

from __future__ import annotations

import re

import msgspec

MAX_RULES = 1_000
MAX_PATTERN_CHARS = 200
MAX_STARS = 5


class Rule(msgspec.Struct, frozen=True):
    """One line of an ignore file. ``base`` is the directory of that file, with a slash at the end, or ''."""

    base: str
    pattern: re.Pattern[str]
    is_negated: bool
    is_for_directories: bool


def parse_ignore(text: str, base: str) -> tuple[Rule, ...]:
    """Read an ignore file's text; lines that cannot be used are passed over."""
    rules: list[Rule] = []
    for line in text.splitlines()[:MAX_RULES]:
        pattern = line.rstrip()
        if not pattern or pattern.startswith("#") or len(pattern) > MAX_PATTERN_CHARS:
            continue
        is_negated = pattern.startswith("!")
        pattern = pattern.removeprefix("!").removeprefix("\\")
        is_for_directories = pattern.endswith("/")
        pattern = pattern.rstrip("/")
        if not pattern or pattern.count("*") > MAX_STARS:
            continue
        try:
            compiled = re.compile(_to_regex(pattern), re.DOTALL)
        except re.error:
            continue
        rules.append(Rule(base, compiled, is_negated, is_for_directories))
    return tuple(rules)


def is_ignored(path: str, rules: tuple[Rule, ...], *, is_directory: bool) -> bool:
    """Tell whether a path is ignored: the last rule that fits decides."""
    for rule in reversed(rules):
        if rule.is_for_directories and not is_directory:
            continue
        if path.startswith(rule.base) and rule.pattern.fullmatch(path, len(rule.base)):
            return not rule.is_negated
    return False


def _to_regex(pattern: str) -> str:
    prefix = "" if "/" in pattern else "(?:.*/)?"
    rest = pattern.removeprefix("/")
    out = [prefix]
    at = 0
    while at < len(rest):
        if rest.startswith("**/", at):
            out.append("(?:.*/)?")
            at += 3
        elif rest.startswith("**", at):
            out.append(".*")
            at += 2
        elif rest[at] == "*":
            out.append("[^/]*")
            at += 1
        elif rest[at] == "?":
            out.append("[^/]")
            at += 1
        elif rest[at] == "[" and (end := rest.find("]", at + 2)) > 0:
            body = rest[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out.append(f"[{'^' + body[1:] if body[0] in '!^' else body}]")
            at = end + 1
        else:
            out.append(re.escape(rest[at]))
            at += 1
    return "".join(out)
