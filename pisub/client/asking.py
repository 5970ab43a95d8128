"""Asking the human from a program inside a run that is not the agent's own function: a script, a tool, a subprocess.

It goes to the run's runner, which knows whether the agent may ask, and asks for it. It must not know the host.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, UnsetType

from pisub import arguments
from pisub.asking import check_questions
from pisub.client.bus import Bus
from pisub.client.caller import calling_run
from pisub.config import Settings
from pisub.errors import DeliveryError, InvalidArgumentError, NotDeliveredError, RefusedError
from pisub.protocol.checkpoint import CHILD_PREFIX, AskResult, AskStatus, ChildAsk, Question
from pisub.protocol.limits import MAX_QUESTION_CHARS
from pisub.protocol.runs import runner_address
from pisub.protocol.session import PeerKind
from pisub.record.layout import Layout
from pisub.utf8 import without_surrogates

#: ``code`` of the refusal outside of a run.
NOT_IN_A_RUN = "not_in_a_run"
#: A runner connects beside its run, and may start a broker for that; who asks before waits this long.
_RUNNER_PATIENCE_S: Final = 20.0
_TRY_AGAIN_S: Final = 0.1


async def ask_from_run(
    settings: Settings,
    layout: Layout,
    questions: Question | str | Sequence[Question | str],
    *,
    why: str = "",
    timeout_s: float | UnsetType | None = UNSET,
    question_timeout_s: float | UnsetType | None = UNSET,
) -> AskResult:
    """Ask the human in the name of the run that this process belongs to, and wait for what becomes of it.

    Cancellation, and the end of this process, take the questions back.

    Args:
        settings: Where the broker is.
        layout: The record with the run.
        questions: One question or a batch.
        why: What the answers are needed for.
        timeout_s: How long to wait in all, from now on; None is for ever. Left out it is as long as the run's other
            asks, whose time begins with their first dialog.
        question_timeout_s: For one dialog; None is for ever, left out as for the run's other asks.

    Raises:
        InvalidArgumentError: A question, or a time, breaks a bound.
        RefusedError: This process belongs to no live run (``not_in_a_run``), or the run's agent may not ask.
        BrokerUnavailableError: There is no broker, and none could be started.
    """
    batch = check_questions(questions)
    if len(arguments.text(why, "why")) > MAX_QUESTION_CHARS:
        raise InvalidArgumentError(f"The reason has more than {MAX_QUESTION_CHARS} characters.", field="why")
    timeout_ms = arguments.milliseconds(timeout_s, "timeout_s")
    question_timeout_ms = arguments.milliseconds(question_timeout_s, "question_timeout_s")
    run_id = await asyncio.to_thread(calling_run, layout)
    if run_id is None:
        raise RefusedError(
            "This process belongs to no live run, so there is nobody to ask for: `pisub ask` is for what a run starts. "
            " A program of yours asks by the library: `async with pisub.host() as host`.",
            code=NOT_IN_A_RUN,
        )
    message = ChildAsk(
        questions=batch,
        why=without_surrogates(why),
        wait_ms=timeout_ms if isinstance(timeout_ms, int) else None,
        timeout_ms=timeout_ms,
        question_timeout_ms=question_timeout_ms,
    )
    address = f"{CHILD_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    bus = await Bus.connect(settings, kind=PeerKind.CLIENT, address=address)
    try:
        return await _call_runner(bus, run_id, message)
    except DeliveryError as error:
        return AskResult(
            status=AskStatus.ERROR, answers=(None,) * len(batch), reason=f"The runner was not reached: {error.message}"
        )
    finally:
        await bus.close()


async def _call_runner(bus: Bus, run_id: str, message: ChildAsk) -> AskResult:
    """Call, again where the runner has not connected yet: a script may be faster."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + _RUNNER_PATIENCE_S
    while True:
        try:
            return await bus.call(runner_address(run_id), message, AskResult, timeout_s=None)
        except NotDeliveredError:
            if loop.time() >= give_up_at:
                raise
        await asyncio.sleep(_TRY_AGAIN_S)
