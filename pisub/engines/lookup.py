"""From a runner's type to its engine. Only the chosen engine is imported."""

from __future__ import annotations

from typing import assert_never

from pisub.engines.base import Engine, EngineContext, Shell
from pisub.runs.spec import RunnerSpec


def create_engine(runner: RunnerSpec, context: EngineContext, shell: Shell) -> Engine:
    """Make the engine that ``runner`` names. Nothing of the child starts before ``run``."""
    match runner.type:
        case "python":
            from pisub.engines.python import PythonEngine  # noqa: PLC0415  # only the chosen engine is loaded

            return PythonEngine(runner, context, shell)
        case "external-cli":
            from pisub.engines.command import CommandEngine  # noqa: PLC0415  # only the chosen engine is loaded

            return CommandEngine(runner, context, shell)
        case _:
            assert_never(runner.type)
