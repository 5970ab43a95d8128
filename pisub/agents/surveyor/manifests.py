"""Entry points and test frameworks that build files declare: pyproject, package.json, Makefile, Dockerfile, Cargo."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any, cast

from pisub.agents.surveyor.model import EntryPoint

MAX_ENTRY_POINTS = 60
_MAX_CHARS = 120
_TARGET = re.compile(r"^([A-Za-z0-9][\w./ -]*?)\s*:(?![=:])", re.MULTILINE)
_DOCKER = re.compile(r"^\s*(ENTRYPOINT|CMD)\s+(.+)$", re.MULTILINE | re.IGNORECASE)
_SCRIPT_FRAMEWORKS = {"jest": "Jest", "vitest": "Vitest", "mocha": "Mocha", "ava": "AVA",
    "@playwright/test": "Playwright", "cypress": "Cypress", "jasmine": "Jasmine"}  # fmt: skip


def entry_points(path: str, text: str) -> Iterator[EntryPoint]:
    """Yield what a build file lets people start; nothing for any other file, or one that does not parse."""
    name = path.rpartition("/")[2]
    found: Iterable[EntryPoint]
    match name:
        case "pyproject.toml":
            found = _from_pyproject(_toml(text))
        case "package.json":
            found = _from_package(_json(text))
        case "Cargo.toml":
            found = _from_cargo(_toml(text))
        case "Makefile" | "makefile" | "GNUmakefile":
            found = _from_makefile(text)
        case _ if name == "Dockerfile" or name.startswith("Dockerfile."):
            found = [EntryPoint(each[0].upper(), path, each[1].strip()[:_MAX_CHARS]) for each in _DOCKER.findall(text)]
        case _:
            found = []
    place = path.rpartition("/")[0]
    for each in list(found)[:MAX_ENTRY_POINTS]:
        kind = f"{each.kind} ({place}/)" if place and not name.startswith("Dockerfile") else each.kind
        yield EntryPoint(kind, each.name[:_MAX_CHARS], each.target[:_MAX_CHARS])


def test_frameworks(path: str, text: str) -> Iterator[str]:
    """Yield the test frameworks that a build file configures."""
    match path.rpartition("/")[2]:
        case "pyproject.toml":
            if "[tool.pytest" in text:
                yield "pytest"
        case "pytest.ini" | "conftest.py":
            yield "pytest"
        case "tox.ini":
            yield "tox"
        case "package.json":
            data = _json(text)
            known = {**_table(data.get("dependencies")), **_table(data.get("devDependencies"))}
            yield from sorted(_SCRIPT_FRAMEWORKS[each] for each in known.keys() & _SCRIPT_FRAMEWORKS.keys())
        case _:
            return


def _from_pyproject(data: dict[str, Any]) -> Iterator[EntryPoint]:
    project = _table(data.get("project"))
    poetry = _table(_table(data.get("tool")).get("poetry"))
    for kind, table in (
        ("script", project.get("scripts")),
        ("gui script", project.get("gui-scripts")),
        ("script", poetry.get("scripts")),
    ):
        for name, target in _table(table).items():
            yield EntryPoint(kind, name, target if isinstance(target, str) else "")


def _from_package(data: dict[str, Any]) -> Iterator[EntryPoint]:
    binaries = data.get("bin")
    if isinstance(binaries, str):
        yield EntryPoint("npm bin", str(data.get("name", "")), binaries)
    for name, target in _table(binaries).items():
        yield EntryPoint("npm bin", name, str(target))
    for key in ("main", "module"):
        if isinstance(target := data.get(key), str):
            yield EntryPoint(f"npm {key}", target)
    for name, target in _table(data.get("scripts")).items():
        yield EntryPoint("npm script", name, str(target))


def _from_cargo(data: dict[str, Any]) -> Iterator[EntryPoint]:
    binaries: object = data.get("bin")
    if isinstance(binaries, list):
        for each in cast("list[object]", binaries):
            table = _table(each)
            yield EntryPoint("cargo bin", str(table.get("name", "")), str(table.get("path", "")))


def _from_makefile(text: str) -> Iterator[EntryPoint]:
    seen: set[str] = set()
    for found in _TARGET.finditer(text):
        for name in found[1].split():
            if name not in seen:
                seen.add(name)
                yield EntryPoint("make target", name)


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}


def _json(text: str) -> dict[str, Any]:
    try:
        return _table(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
