"""The capture of a structured result, by a Python agent and by a program: what counts, and what does not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pisub.child import Child
from pisub.engines.base import Settled, ToolEnded, ToolStarted
from pisub.engines.command import CommandEngine
from pisub.engines.python import PythonEngine
from pisub.errors import RefusedError, StructuredOutputError
from pisub.runs.spec import RunnerSpec
from tests.support.engine_shell import RecordingShell, context

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture(autouse=True)
def unchanged_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def agent(directory: Path, body: str, schema: dict[str, Any] | None = SCHEMA) -> tuple[Settled, RecordingShell]:
    file = directory / "structured_agent.py"
    file.write_text(f"import pisub\ndef main(child):\n{body}")
    shell = RecordingShell()
    told = msgspec.structs.replace(context(directory), output_schema=schema)
    return PythonEngine(RunnerSpec(type="python", target=f"{file}:main"), told, shell).run(), shell


def program(directory: Path, script: str, schema: dict[str, Any] | None = SCHEMA) -> tuple[Settled, RecordingShell]:
    shell = RecordingShell()
    told = msgspec.structs.replace(context(directory), output_schema=schema)
    runner = RunnerSpec(type="external-cli", argv=(sys.executable, "-c", f"import os, sys, json\n{script}"))
    return CommandEngine(runner, told, shell).run(), shell


def test_a_captured_value_is_the_result_beside_the_text(tmp_path: Path) -> None:
    settled, shell = agent(tmp_path, "    child.structured_output({'n': 1})\n    return 'said'")
    assert settled == Settled(text="said", structured={"n": 1})
    assert shell.events == [ToolStarted(1, "structured_output"), ToolEnded(1, "structured_output")]


def test_null_is_a_value(tmp_path: Path) -> None:
    settled, _ = agent(tmp_path, "    child.structured_output(None)", {"type": "null"})
    assert settled == Settled(structured=None)


def test_a_text_that_looks_like_the_value_is_none(tmp_path: Path) -> None:
    settled, _ = agent(tmp_path, "    return '{\"n\": 1}'")
    assert settled.reason == "structured_output_failed"
    assert settled.error is not None
    assert settled.error.startswith("Missing structured_output call")
    assert settled.structured is msgspec.UNSET


def test_a_value_that_does_not_fit_says_where_and_may_be_tried_again(tmp_path: Path) -> None:
    body = """
    try:
        child.structured_output({"n": "one"})
    except pisub.StructuredOutputError as error:
        assert error.problems == ("$.n: 'one' is not of type 'integer'",)
        child.structured_output({"n": 1})
    """
    settled, shell = agent(tmp_path, body)
    assert settled == Settled(structured={"n": 1})
    assert [each.is_error for each in shell.events if isinstance(each, ToolEnded)] == [True, False]


def test_a_value_that_does_not_fit_and_is_not_mended_fails_the_run_with_its_place(tmp_path: Path) -> None:
    settled, _ = agent(tmp_path, "    child.structured_output({})")
    assert settled.reason == "structured_output_failed"
    assert "$: 'n' is a required property" in (settled.error or "")


@pytest.mark.parametrize("after", ["child.structured_output({'n': 2})", "next(iter(()))"], ids=["twice", "tool"])
def test_a_tool_that_fails_after_the_capture_fails_the_run(tmp_path: Path, after: str) -> None:
    body = f"""
    child.structured_output({{"n": 1}})
    try:
        with child.tool("after"):
            {after}
    except (pisub.PisubError, StopIteration):
        pass
    """
    settled, _ = agent(tmp_path, body)
    assert settled.reason == "structured_output_failed"
    assert "failed after" in (settled.error or "")
    assert settled.structured is msgspec.UNSET


def test_a_tool_that_failed_before_changes_nothing(tmp_path: Path) -> None:
    body = """
    try:
        with child.tool("before"):
            1 / 0
    except ZeroDivisionError:
        child.structured_output({"n": 1})
    """
    assert agent(tmp_path, body)[0] == Settled(structured={"n": 1})


def test_an_agent_that_failed_otherwise_keeps_its_error(tmp_path: Path) -> None:
    settled, _ = agent(tmp_path, "    child.structured_output({'n': 1})\n    raise ValueError('x')")
    assert settled.reason == "agent-error"
    assert settled.structured is msgspec.UNSET


def test_without_a_schema_there_is_no_such_tool(tmp_path: Path) -> None:
    child = Child(context(tmp_path), RecordingShell())
    assert child.output_schema is None
    with pytest.raises(RefusedError) as raised:
        child.structured_output({"n": 1})
    assert raised.value.code == "no_schema"


def test_what_was_captured_cannot_be_changed_afterwards(tmp_path: Path) -> None:
    body = "    value = {'n': 1}\n    child.structured_output(value)\n    value['n'] = 'changed'"
    assert agent(tmp_path, body)[0] == Settled(structured={"n": 1})


WRITE = "open(os.environ['PISUB_STRUCTURED_OUTPUT'], 'w').write({!r})"


def test_a_program_writes_its_value_to_the_file_that_it_is_told_of(tmp_path: Path) -> None:
    script = "assert json.load(open(os.environ['PISUB_OUTPUT_SCHEMA']))['required'] == ['n']\n" + WRITE.format(
        ' {"n": 1}\n'
    )
    settled, shell = program(tmp_path, script)
    assert settled == Settled(exit_code=0, structured={"n": 1}, text_sha256=settled.text_sha256)
    assert [type(each) for each in shell.events[-2:]] == [ToolStarted, ToolEnded]


TWO_NAMES = """
open('y', 'w').write('{"n": 1}')
try: os.link('y', os.environ['PISUB_STRUCTURED_OUTPUT'])
except OSError: os.mkfifo(os.environ['PISUB_STRUCTURED_OUTPUT'])
"""


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("print('{\"n\": 1}')", "Missing structured_output call"),
        ("open('output.json', 'w').write('{\"n\": 1}')", "Missing structured_output call"),
        (WRITE.format('{"n": "one"}'), "$.n: 'one' is not of type 'integer'"),
        (WRITE.format('{"n": NaN}'), "it is no JSON"),
        (WRITE.format("[" * 100_000), "it is no JSON"),
        ("open(os.environ['PISUB_STRUCTURED_OUTPUT'], 'w').write(' ' * 2_200_000)", "more than"),
        ("open('x', 'w').write('{\"n\": 1}'); os.symlink(os.path.abspath('x'), os.environ['PISUB_STRUCTURED_OUTPUT'])",
         "cannot be read"),
        (TWO_NAMES, "no plain file"),
        ("os.mkfifo(os.environ['PISUB_STRUCTURED_OUTPUT'])", "no plain file"),
        ("os.mkdir(os.environ['PISUB_STRUCTURED_OUTPUT'])", "cannot be taken"),
    ],
    ids=["printed", "beside", "misfit", "nan", "deep", "large", "symlink", "two names", "fifo", "directory"],
)  # fmt: skip
def test_a_spoofed_or_broken_capture_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    settled, _ = program(tmp_path, script)
    assert settled.reason == "structured_output_failed"
    assert says in (settled.error or "")
    assert settled.structured is msgspec.UNSET
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_program_that_failed_keeps_its_error(tmp_path: Path) -> None:
    settled, _ = program(tmp_path, WRITE.format('{"n": 1}') + "\nsys.exit(3)")
    assert (settled.reason, settled.exit_code, settled.structured) == ("exit-code", 3, msgspec.UNSET)


def test_a_program_without_a_schema_is_told_of_none(tmp_path: Path) -> None:
    settled, _ = program(
        tmp_path, "print(*[name for name in os.environ if 'STRUCTURED' in name or 'SCHEMA' in name])", None
    )
    assert settled.text == "\n"


def test_an_error_carries_the_problems_apart() -> None:
    assert StructuredOutputError("x", problems=("a",)).problems == ("a",)
