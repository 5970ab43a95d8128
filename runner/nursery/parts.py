"""What a nursery is composed of: what its runners do, and what follows their end."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.launch import BrokerInfo
from pisub.protocol import checkpoint, runs, session
from pisub.record import model
from pisub.record.layout import Layout
from pisub.runs.spec import RunSpec

from .child import Entry
from .reaper import Death, Runner

#: What a runner imports only once it knows its engine: here it costs nothing, there milliseconds of every launch.
_LATE: Final = (
    "pisub.engines.python",
    "pisub.engines.command",
    "pisub.child",
    "pisub.asking",
    "encodings.ascii",
    # Only runs with a schema check a value; for them it is a third of what a launch costs.
    "jsonschema.validators",
    "referencing.exceptions",
)
#: Records that a runner reads and writes: msgspec looks at a class once per process, and forks inherit that it did.
_SHAPES: Final = (
    model.Started,
    model.RunStatus,
    model.RunResult,
    model.ProcessTerminalProof,
    model.ControlRequest,
    model.AskRecord,
    model.AskOutcome,
    model.QuestionOutcome,
    model.Completion,
    model.JournalEvent,
    BrokerInfo,
    RunSpec,
    session.Hello,
    session.BrokerMessage,
    checkpoint.CheckpointMessage,
    runs.RunMessage,
)


class Parts(msgspec.Struct, frozen=True):
    """What a nursery does for its runners.

    Attributes:
        entry: What a runner does, after its process was made like one of its caller's.
        autopsy: What a coroner does, in a process of its own.
        enforce: Ends a runner that has not obeyed a stop or its deadline, here and at once; tells whether it did.
    """

    entry: Entry
    autopsy: Callable[[Death, Settings], None]
    enforce: Callable[[Runner], bool]


def load_parts() -> Parts:
    """Import all that a runner needs, so that its forks need not."""
    from ..app import run  # noqa: PLC0415, TID252  # the import is what is asked for
    from ..enforcer import Enforcer  # noqa: PLC0415, TID252  # as above
    from .coroner import examine  # noqa: PLC0415  # as above

    for name in _LATE:
        importlib.import_module(name)
    for shape in _SHAPES:
        msgspec.json.Decoder(shape)

    enforcer = Enforcer(SystemClock())

    def enforce(runner: Runner) -> bool:
        return enforcer(Layout(root=Path(runner.home)).run(runner.run_id), runner.process)

    return Parts(run, examine, enforce)
