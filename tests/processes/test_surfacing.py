"""A child's question comes to the human whatever the program that started it does. How soon: `benchmarks surfacing`."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from pathlib import Path

import pytest

import pisub
from benchmarks import surfacing
from benchmarks.surfacing import MODES
from pisub.testing import ScriptedHuman
from tests.support.loops import in_loop
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


@pytest.mark.parametrize("mode", MODES)
@in_loop
async def test_a_question_is_shown_in_every_mode_of_the_parent(project: Project, mode: str) -> None:
    busy = asyncio.Event()

    class Human(ScriptedHuman):
        async def select(self, title: str, options: list[str], context: pisub.DialogContext) -> str | None:  # type: ignore[override]
            await busy.wait()
            return await super().select(title, options, context)

    async with pisub.host("s", Human(["left", "because"])) as host:
        run = await host.spawn("ask", "x", project.root, attached=mode == "foreground call")
        parent = asyncio.ensure_future(MODES[mode](host, run))
        asyncio.get_running_loop().call_soon(busy.set)
        assert await run.text() == "ok: ('left', 'because')"
        parent.cancel()
        await asyncio.wait({parent})


def test_the_benchmark_measures_every_mode_and_loses_no_question() -> None:
    report = surfacing.run(Namespace(questions=1))
    assert [row.case for row in report.rows] == [f"pisub, {mode}" for mode in MODES]
    assert [row.lost for row in report.rows] == [0] * len(MODES)
