"""The python engine: how a target is found, called, cancelled, and what its failures say."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pisub.engines.base import Settled
from pisub.engines.python import PythonEngine
from pisub.runs.spec import RunnerSpec
from tests.support.engine_shell import RecordingShell, context


@pytest.fixture(autouse=True)
def unchanged_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def run(directory: Path, source: str, *, function: str = "main", cancel: bool = False) -> Settled:
    file = directory / "some_agent.py"
    file.write_text(source)
    engine = PythonEngine(RunnerSpec(type="python", target=f"{file}:{function}"), context(directory), RecordingShell())
    if cancel:
        engine.cancel()
    return engine.run()


def test_functions_of_both_kinds_give_their_text(tmp_path: Path) -> None:
    assert run(tmp_path, "async def main(child): return child.task") == Settled(text="a task")
    assert run(tmp_path, "def main(child): return child.task") == Settled(text="a task")
    assert run(tmp_path, "def main(child): pass") == Settled(text="")


def test_what_is_no_text_is_refused_by_its_type(tmp_path: Path) -> None:
    settled = run(tmp_path, "def main(child): return {}")
    assert settled.reason == "agent-error"
    assert settled.error is not None
    assert settled.error.startswith("The agent returned dict, not text")


@pytest.mark.parametrize("statement", ["raise SystemExit(3)", "raise KeyboardInterrupt", "1 / 0"])
def test_whatever_an_agent_raises_is_its_error(tmp_path: Path, statement: str) -> None:
    settled = run(tmp_path, f"async def main(child): {statement}")
    assert settled.reason == "agent-error"
    assert settled.error is not None
    assert settled.error.split("\n")[0] in ("SystemExit: 3", "KeyboardInterrupt", "ZeroDivisionError: division by zero")


def test_a_run_cancelled_before_it_began_calls_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "def main(child): raise AssertionError", cancel=True) == Settled(was_cancelled=True)


def test_tasks_left_behind_are_cancelled_and_the_text_stands(tmp_path: Path) -> None:
    source = """
import asyncio
async def stubborn(child):
    try:
        await asyncio.Event().wait()
    finally:
        child.write("cancelled", "")
async def main(child):
    asyncio.create_task(stubborn(child))
    await asyncio.sleep(0)
    return "text"
"""
    assert run(tmp_path, source) == Settled(text="text")
    assert (tmp_path / "artifacts" / "cancelled").exists()


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("", "is not of the form"),
        ("module", "is not of the form"),
        ("no_such_module_at_all:main", "it does not exist"),
        ("json:no_such_name", "json has no 'no_such_name'"),
        ("json:__name__", "is a str, not a function"),
        ("relative.py:main", "is relative"),
        ("/no/such/file.py:main", "does not exist"),
    ],
)
def test_a_target_that_cannot_be_had_is_a_sentence_that_names_it(tmp_path: Path, target: str, sentence: str) -> None:
    settled = PythonEngine(RunnerSpec(type="python", target=target), context(tmp_path), RecordingShell()).run()
    assert settled.reason == "import-error"
    assert settled.error is not None
    assert sentence in settled.error


def test_an_import_that_raises_says_where(tmp_path: Path) -> None:
    settled = run(tmp_path, "x = 1\nraise RuntimeError('at import')")
    assert settled.reason == "import-error"
    assert settled.error is not None
    assert "RuntimeError: at import" in settled.error
    assert "some_agent.py" in settled.error


def test_the_project_comes_first_and_the_launcher_s_path_last(tmp_path: Path) -> None:
    project, caller = tmp_path / "project", tmp_path / "caller"
    for place in (project, caller):
        place.mkdir()
        (place / "who_is_it.py").write_text(f"def main(child): return {place.name!r}")
    (caller / "json.py").write_text("raise RuntimeError('hid the real one')")
    (caller / "only_here.py").write_text("import json\ndef main(child): return json.dumps([1])")
    mine = context(tmp_path, sys_path=(str(caller),))

    def text(target: str) -> str:
        runner = RunnerSpec(type="python", target=target, import_paths=(str(project),))
        return PythonEngine(runner, mine, RecordingShell()).run().text

    assert text("who_is_it:main") == "project"
    assert text("only_here:main") == "[1]"
