"""pisub: delegate work to agents in detached processes, and let them ask the human.

Names are imported when they are first used: ``import pisub`` costs a few milliseconds, and a program that only reads
the record never loads the transport.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pisub.version import __version__

if TYPE_CHECKING:
    from pisub.child import Child
    from pisub.client.api import Client, connect, host
    from pisub.client.fanout import Task
    from pisub.client.hosting import Host
    from pisub.client.runs import Run
    from pisub.config import Settings, load_settings
    from pisub.errors import PisubError, StructuredOutputError
    from pisub.hosting.dialogs import DialogContext, Dialogs
    from pisub.protocol.checkpoint import Answer, AskResult, AskStatus, Question
    from pisub.protocol.runs import RunState
    from pisub.record.model import JournalEvent, RunResult
    from pisub.record.reader import RunView
    from pisub.record.sessions import Delivery
    from pisub.runs.receipts import Receipt
    from pisub.runs.spec import OnNoHost
    from pisub.runs.steering import SteerMessage

__all__ = [
    "Answer",
    "AskResult",
    "AskStatus",
    "Child",
    "Client",
    "Delivery",
    "DialogContext",
    "Dialogs",
    "Host",
    "JournalEvent",
    "OnNoHost",
    "PisubError",
    "Question",
    "Receipt",
    "Run",
    "RunResult",
    "RunState",
    "RunView",
    "Settings",
    "SteerMessage",
    "StructuredOutputError",
    "Task",
    "__version__",
    "connect",
    "host",
    "load_settings",
]

_HOMES = {
    "Answer": "pisub.protocol.checkpoint",
    "AskResult": "pisub.protocol.checkpoint",
    "AskStatus": "pisub.protocol.checkpoint",
    "Child": "pisub.child",
    "Client": "pisub.client.api",
    "Delivery": "pisub.record.sessions",
    "DialogContext": "pisub.hosting.dialogs",
    "Dialogs": "pisub.hosting.dialogs",
    "Host": "pisub.client.hosting",
    "JournalEvent": "pisub.record.model",
    "OnNoHost": "pisub.runs.spec",
    "PisubError": "pisub.errors",
    "Question": "pisub.protocol.checkpoint",
    "Receipt": "pisub.runs.receipts",
    "Run": "pisub.client.runs",
    "RunResult": "pisub.record.model",
    "RunState": "pisub.protocol.runs",
    "RunView": "pisub.record.reader",
    "Settings": "pisub.config",
    "SteerMessage": "pisub.runs.steering",
    "StructuredOutputError": "pisub.errors",
    "Task": "pisub.client.fanout",
    "connect": "pisub.client.api",
    "host": "pisub.client.api",
    "load_settings": "pisub.config",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
