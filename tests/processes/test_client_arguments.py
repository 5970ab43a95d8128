"""What a program passes wrongly is refused by the argument's name, and nothing was written or started."""

import asyncio
import math
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import pisub
from pisub.errors import InvalidArgumentError, PisubError
from pisub.protocol.limits import MAX_DURATION_MS
from pisub.testing import ScriptedHuman, load_answers
from tests.support.project import Project, make_project

HALF = "half \ud800 a character"

SPAWN: dict[str, list[Any]] = {
    "agent": [None, 5, "", " ", b"echo", HALF],
    "task": [None, 5, "", "\n", b"x", HALF, ["x"]],
    "cwd": [123, b"/tmp", "", "/tmp/\0", True, object(), "/no/such/directory"],
    "run_id": [5, HALF, "", "../x"],
    "label": [None, 5, HALF, "x" * 2_000],
    "timeout_ms": [True, False, -1, 1.5, "1000", MAX_DURATION_MS + 1, 10**5_000, math.inf, math.nan],
    "on_no_host": [None, "never", 5],
    "attached": [None, 1, "yes"],
    "environ": [5, [], {"A": 1}, {1: "a"}, {"": "a"}, {"A\0": "a"}, {"A": "\0"}],
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


def listing(root: Path) -> list[str]:
    return sorted(str(Path(place, each)) for place, _, files in os.walk(root / "runs") for each in files)


def test_every_argument_of_a_spawn_is_checked_before_anything_is_written(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            before = listing(client.layout.root)
            for field, values in SPAWN.items():
                for value in values:
                    given: dict[str, Any] = {"agent": "echo", "task": "x", "cwd": project.root, field: value}
                    with pytest.raises(PisubError) as caught:
                        await client.spawn(**given)
                    is_id = field == "run_id" and isinstance(value, str) and value != HALF
                    assert caught.value.code == ("invalid_id" if is_id else "invalid_argument"), (field, value)
                    assert caught.value.field == (None if is_id else field), (field, value, caught.value.message)
                    assert len(caught.value.message) < 300, (field, value)
            assert listing(client.layout.root) == before

    asyncio.run(scenario())


def test_every_argument_of_a_run_s_methods_is_checked_and_the_run_goes_on(project: Project) -> None:
    async def scenario() -> None:
        async with pisub.connect() as client:
            run = await client.spawn("release", "x", project.root)
            wrong: list[tuple[str, Callable[[], Coroutine[Any, Any, object]]]] = [
                *(("timeout_s", lambda value=value: run.result(value)) for value in ("1", True, -1, math.nan)),
                *(("reason", lambda value=value: run.stop(value)) for value in (None, 5, HALF, "x" * 10_000)),
                *(("reason", lambda value=value: run.interrupt(value)) for value in (None, 5, HALF)),
                *(("message", lambda value=value: run.steer(value)) for value in (None, 5, "", HALF)),
                *(("mode", lambda value=value: run.steer("x", value)) for value in (None, 5, "now")),
                *(("patience_s", lambda value=value: run.steer("x", patience_s=value)) for value in (None, "1", -1)),
                ("request_id", lambda: run.steer("x", request_id=5)),  # type: ignore[arg-type]  # what is tested
                *(("message", lambda value=value: run.resume(value)) for value in (None, 5, HALF)),
                ("answers", lambda: run.resume("x", answers=["a"])),  # type: ignore[arg-type]  # as above
                ("attached", lambda: run.resume("x", attached="yes")),  # type: ignore[arg-type]  # as above
                ("environ", lambda: run.resume("x", environ={"A": 1})),  # type: ignore[dict-item]  # as above
            ]
            for field, attempt in wrong:
                with pytest.raises(InvalidArgumentError) as caught:
                    await attempt()
                assert caught.value.field == field, caught.value.message
            for value in (None, 5, b"x"):
                with pytest.raises(InvalidArgumentError, match="run_id must be a text"):
                    client.run(value)  # type: ignore[arg-type]  # as above
            (project.root / "go").touch()
            assert await run.text() == "released"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("session", {"session": 5}),
        ("session", {"session": HALF}),
        ("settings", {"settings": {"home": "/tmp"}}),
        ("dialogs", {"dialogs": object()}),
        ("on_completion", {"on_completion": "call me", "dialogs": ScriptedHuman()}),
    ],
)
def test_a_host_is_not_begun_with_what_cannot_be_used(field: str, given: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with pisub.host(**{"dialogs": ScriptedHuman(), **given}):
            raise AssertionError("it began")

    with pytest.raises(InvalidArgumentError) as caught:
        asyncio.run(scenario())
    assert caught.value.field == field


def test_a_script_is_a_list_of_items_or_the_path_of_one() -> None:
    for answers in (None, 5, "one text", [5], [None]):
        with pytest.raises(InvalidArgumentError) as caught:
            ScriptedHuman(answers)  # type: ignore[arg-type]  # as above
        assert caught.value.field == "answers"
    for path in (None, 5, "", "\0"):
        with pytest.raises(InvalidArgumentError) as caught:
            load_answers(path)  # type: ignore[arg-type]  # as above
        assert caught.value.field == "path"
