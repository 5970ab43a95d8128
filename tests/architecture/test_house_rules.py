"""The rules that keep the tree readable, as tests. A rule that is not checked is not a rule."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import pisub.errors
from pisub.errors import PisubError

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for top in ("pisub", "broker", "runner") for path in (ROOT / top).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

#: Who may touch the process environment, and why.
ENVIRONMENT_USERS = {
    "pisub/config.py": "the one reader",
    "runner/nursery/after_fork.py": "replaces the environment of a forked runner with its caller's",
    "runner/app.py": "replaces the environment of an executed runner with its caller's",
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_module_is_one_thing_of_at_most_400_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_module_says_what_it_owns(path: Path) -> None:
    assert len(ast.get_docstring(parsed(path)) or "") > 20


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_the_environment_is_read_in_one_place(path: Path) -> None:
    uses = [
        node.lineno
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute)
        and node.attr in ("environ", "environb", "getenv", "putenv")
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ]
    assert not uses or name(path) in ENVIRONMENT_USERS


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_the_programs_import_their_own_parts_relatively(path: Path) -> None:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            assert (node.module or "").split(".")[0] not in ("broker", "runner", "tests", "benchmarks")
        if isinstance(node, ast.Import):
            assert not {each.name.split(".")[0] for each in node.names} & {"broker", "runner", "tests"}


@pytest.mark.parametrize("path", [path for path in TESTS if "support" not in path.parts], ids=name)
def test_a_test_never_sleeps(path: Path) -> None:
    sleeps = [
        node.lineno
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sleep"
        and not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
    ]
    assert sleeps == []


def test_every_error_has_a_code_of_its_own_and_a_sentence_about_itself() -> None:
    def tree(kind: type[PisubError]) -> list[type[PisubError]]:
        return [kind, *(each for child in kind.__subclasses__() for each in tree(child))]

    mine = [kind for kind in tree(PisubError) if kind.__module__ == pisub.errors.__name__]
    codes = [kind.code for kind in mine]
    assert len(codes) == len(set(codes))
    assert all(kind.__doc__ for kind in mine)


HEAVY = {"zmq", "asyncio", "prompt_toolkit", "structlog", "psutil", "yaml", "rich"}


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("pisub", set()),
        ("pisub.record.reader", set()),
        ("pisub.record.questions", set()),
        ("pisub.cli.main", set()),
        ("pisub.cli.dispatch", set()),
        ("pisub.cli.commands.ps", set()),
        ("pisub.cli.commands.show", set()),
        ("pisub.cli.commands.result", set()),
    ],
)
def test_what_only_reads_imports_nothing_heavy(module: str, allowed: set[str]) -> None:
    script = f"import sys, {module}; print(*sorted(m for m in sys.modules if '.' not in m))"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert set(out.stdout.split()) & HEAVY <= allowed
