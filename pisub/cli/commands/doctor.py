"""``pisub doctor``: what this machine offers, and what will bite. It starts nothing."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import msgspec

from pisub.cli.checks import run_checks
from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.config import Settings

_COLORS = {"ok": "green", "warning": "yellow", "failed": "red"}


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:  # noqa: ARG001  # every command has this shape
    """Print the checks; the exit code says whether one failed. A warning fails nothing."""
    checks = run_checks(settings)
    has_failed = any(check.outcome == "failed" for check in checks)
    if console.is_json:
        rows: Any = msgspec.to_builtins(checks)
        console.json("doctor", {"isHealthy": not has_failed, "checks": rows})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            outcome = console.style_result(check.outcome.ljust(8), _COLORS[check.outcome])
            console.result(f"{outcome} {check.name.ljust(width)}  {check.detail}")
    return Exit.FAILED if has_failed else Exit.OK
