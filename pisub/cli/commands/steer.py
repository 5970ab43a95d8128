"""``pisub steer``: send a working run's agent a message, and say what became of it."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import Any

import msgspec

from pisub.cli.console import Console, safe_line
from pisub.cli.exits import Exit
from pisub.cli.select import pick_run, read_value
from pisub.client.runs import Run
from pisub.config import Settings
from pisub.record.layout import Layout
from pisub.runs.receipts import Receipt, RequestState, TargetState


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Send one message. No word of the agent's within three seconds is no failure."""
    layout = Layout.of(settings)
    run_id = pick_run(settings, layout, arguments.id)
    message = read_value(arguments.message)
    steered = Run(run_id, layout=layout, settings=settings)
    receipt = asyncio.run(steered.steer(message, arguments.mode, recover=arguments.recover))
    if console.is_json:
        document: dict[str, Any] = msgspec.to_builtins(receipt)
        console.json("steered", {**document, "runId": run_id})
    else:
        console.result(_in_words(receipt))
    return Exit.REFUSED if receipt.is_failure else Exit.OK


def _in_words(receipt: Receipt) -> str:
    target = receipt.targets[0]
    match receipt.state:
        case RequestState.DELIVERED:
            return "delivered"
        case RequestState.RECOVERED:
            return f"recovered: run {receipt.replacement_run_id} goes on with it"
        case RequestState.SCHEDULED:
            return "scheduled: the run has not begun"
        case RequestState.FAILED | RequestState.PARTIAL:
            return f"failed: {safe_line(target.reason or 'the agent got it too late')}"
        case RequestState.PENDING:
            if target.state is TargetState.QUEUED:
                return "queued: the agent gets it after this turn"
            return "pending: the agent has not looked for messages yet"
