"""What one file's text says: imports, definitions, notes, tests, entry points. Pure: a text in, facts out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pisub.agents.surveyor import manifests
from pisub.agents.surveyor.languages import NOT_CODE
from pisub.agents.surveyor.model import Definition, EntryPoint, Import, Note, SourceFacts
from pisub.agents.surveyor.python_source import PythonFacts, read_python

#: Bounds per file, so that no single file fills a report.
MAX_NOTES = 200
MAX_DEFINITIONS = 400
_MAX_LINE_CHARS = 2_000
_MAX_NOTE_CHARS = 160

_NOTE = re.compile(r"(?:^|\s)(?:#|//|/\*|\*|--|;|<!--|%)[^\n]{0,60}?\b(TODO|FIXME|XXX|HACK)\b[ \t]*(.*)")
_NOTE_WORDS = ("TODO", "FIXME", "XXX", "HACK")
_SCRIPT_IMPORT = re.compile(
    r"""(?:^|[;}\s])(?:import|export)\s+(?:[\w*{}$,\s]{0,2000}?\sfrom\s*)?["']([^"'\n]{1,300})["']"""
    r"""|\b(?:require|import)\(\s*["']([^"'\n]{1,300})["']\s*\)""",
    re.MULTILINE,
)
_SCRIPT_DEFINITION = re.compile(
    r"^(?:export\s+)?(?:default\s+)?(?:abstract\s+)?(?:declare\s+)?"
    r"(?:(?:async\s+)?(function)\*?|(class)|(interface)|(type)|(enum))\s+([A-Za-z_$][\w$]*)"
)
_SCRIPT_ARROW = re.compile(
    r"^export\s+const\s+([A-Za-z_$][\w$]*)\s*(?::[^=]{1,200})?=\s*(?:async\s*)?(?:\(|[\w$]+\s*=>)"
)
_SCRIPT_TEST = re.compile(r"^\s*(?:it|test)(?:\.\w+)?\(\s*[\"'`]", re.MULTILINE)
_GO_TEST = re.compile(r"^func Test\w*\(", re.MULTILINE)
_RUST_TEST = re.compile(r"^\s*#\[(?:\w+::)?test\]", re.MULTILINE)
_JAVA_TEST = re.compile(r"^\s*@Test\b", re.MULTILINE)
_GO_MAIN = re.compile(r"^package main\b.*?^func main\(\)", re.MULTILINE | re.DOTALL)


def analyse_file(path: str, text: str, language: str, *, is_generated: bool, is_executable: bool) -> SourceFacts:
    """Return what a file's text says.

    Args:
        path: Relative to the surveyed directory.
        text: Its text, decoded.
        language: As ``languages.language_of`` names it.
        is_generated: Then only manifests are read.
        is_executable: The file's mode: with a first line `#!…` it is an entry point.
    """
    entry_points = list(manifests.entry_points(path, text))
    if is_executable and text.startswith("#!"):
        entry_points.append(EntryPoint("executable", path, text.partition("\n")[0][2:].strip()[:100]))
    frameworks = set(manifests.test_frameworks(path, text))
    if is_generated or language in NOT_CODE:
        return SourceFacts(entry_points=tuple(entry_points), test_frameworks=tuple(sorted(frameworks)))
    python = read_python(path, text) if language == "Python" else PythonFacts()
    frameworks.update(python.test_frameworks)
    count = python.test_count
    if python.has_main:
        entry_points.append(EntryPoint("python module", path))
    imports, definitions = python.imports, python.definitions
    if language in {"JavaScript", "TypeScript", "Vue", "Svelte"}:
        imports, definitions = tuple(_script_imports(text)), tuple(_script_definitions(text))
        count = len(_SCRIPT_TEST.findall(text)) if _is_script_test(path) else 0
    elif language == "Go":
        count = len(_GO_TEST.findall(text)) if path.endswith("_test.go") else 0
        if _GO_MAIN.search(text):
            entry_points.append(EntryPoint("go program", path))
    elif language == "Rust":
        count = len(_RUST_TEST.findall(text))
        if path == "src/main.rs" or path.endswith("/src/main.rs"):
            entry_points.append(EntryPoint("rust program", path))
    elif language in {"Java", "Kotlin"}:
        count = len(_JAVA_TEST.findall(text))
    if count and language in _FRAMEWORKS:
        frameworks.add(_FRAMEWORKS[language])
    return SourceFacts(
        imports=imports,
        definitions=definitions[:MAX_DEFINITIONS],
        notes=tuple(_notes(text)),
        entry_points=tuple(entry_points),
        test_count=count,
        test_frameworks=tuple(sorted(frameworks)),
        problem=python.problem,
    )


_FRAMEWORKS = {"Go": "go test", "Rust": "cargo test", "Java": "JUnit", "Kotlin": "JUnit"}


def _is_script_test(path: str) -> bool:
    name = path.rpartition("/")[2]
    return ".test." in name or ".spec." in name or "/__tests__/" in f"/{path}"


def _notes(text: str) -> Iterator[Note]:
    if not any(word in text for word in _NOTE_WORDS):
        return
    count = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not any(word in line for word in _NOTE_WORDS):
            continue
        found = _NOTE.search(line[:_MAX_LINE_CHARS])
        if found is None:
            continue
        rest = found[2].strip().removesuffix("*/").removesuffix("-->").strip(" \t:-")
        yield Note(found[1], number, rest[:_MAX_NOTE_CHARS])
        count += 1
        if count >= MAX_NOTES:
            return


def _script_imports(text: str) -> Iterator[Import]:
    for found in _SCRIPT_IMPORT.finditer(text):
        yield Import(found[1] or found[2])


def _script_definitions(text: str) -> Iterator[Definition]:
    for number, line in enumerate(text.split("\n"), 1):
        if found := _SCRIPT_DEFINITION.match(line[:_MAX_LINE_CHARS]):
            kind = found[1] or found[2] or found[3] or found[4] or found[5]
            yield Definition(kind, found[6], number)
        elif found := _SCRIPT_ARROW.match(line[:_MAX_LINE_CHARS]):
            yield Definition("function", found[1], number)
