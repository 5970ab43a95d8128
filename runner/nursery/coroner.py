"""After a runner's end: end what it left running, write how it ended, finish its record, tell whoever listens.

An ordinary client of the record and the bus: it owns no rule of either.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

import msgspec

from pisub.client.bus import Bus
from pisub.config import Settings
from pisub.errors import PisubError
from pisub.launch import find_broker
from pisub.launchers.nursery import nurseries
from pisub.paths import runtime_dir
from pisub.process import ProcessIdentity
from pisub.protocol.delivery import Priority
from pisub.protocol.runs import ASYNC_COMPLETE_TOPIC, PROCESS_TERMINAL_TOPIC, AsyncComplete, ProcessTerminal
from pisub.protocol.session import PeerKind
from pisub.record.layout import Layout
from pisub.record.model import ProcessTerminalProof
from pisub.record.reader import RunView
from pisub.runs.reconcile import reconcile

from .proof import settle
from .reaper import Death

_FLUSH_S: Final = 1.0


def examine(death: Death, settings: Settings) -> None:
    """Do all that a death asks for. Idempotent."""
    runner = death.runner
    mine = msgspec.structs.replace(settings, home=Path(runner.home), runtime_dir=Path(runner.runtime_dir))
    layout = Layout.of(mine)
    proof = settle(death, layout, _daemons(mine))
    if proof is None:
        return
    paths = layout.run(runner.run_id)
    was_finished = paths.result.exists()
    # Whoever submitted the run may live and wait for it: only we know that its process came and went.
    never_began = None if paths.started.exists() else f"Its process ended before it began ({_how(death)})."
    view = reconcile(layout, runner.run_id, now_ms=time.time_ns() // 1_000_000, launch_error=never_began)
    if find_broker(mine) is not None:
        asyncio.run(_announce(mine, proof, view, is_new=not was_finished))


async def _announce(settings: Settings, proof: ProcessTerminalProof, view: RunView, *, is_new: bool) -> None:
    session = view.spec.session_id
    try:
        bus = await Bus.connect(settings, kind=PeerKind.CLIENT, session=session, start_broker=False)
    except PisubError:
        return  # the broker went meanwhile; the files say everything
    try:
        if is_new and view.result is not None:
            done = AsyncComplete(
                run_id=proof.run_id,
                session_id=session,
                agent=view.spec.agent.name,
                state=view.state,
                summary=view.result.summary,
                run_dir=str(Layout.of(settings).run(proof.run_id).dir),
                ended_at=view.result.ended_at,
            )
            bus.publish(ASYNC_COMPLETE_TOPIC, done, scope=session, priority=Priority.TERMINAL)
        ended = ProcessTerminal(run_id=proof.run_id, state=proof.state, exit_code=proof.exit_code, signal=proof.signal)
        bus.publish(PROCESS_TERMINAL_TOPIC, ended, scope=session, priority=Priority.TERMINAL)
        await bus.flush(_FLUSH_S)
    finally:
        await bus.close()


def _how(death: Death) -> str:
    return f"exit code {death.exit_code}" if death.signal is None else death.signal


def _daemons(settings: Settings) -> list[ProcessIdentity]:
    found = nurseries(runtime_dir(settings))
    broker = find_broker(settings)
    return found if broker is None else [*found, broker.process]
