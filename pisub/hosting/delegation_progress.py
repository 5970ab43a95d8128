"""What a delegation's run is doing, as a bounded snapshot of its journal (contract, delegation 1.8). Pure."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

from pisub.hosting.delegation_request import Attempt
from pisub.protocol.delegation import DelegationUpdate, ToolUse
from pisub.record.model import JournalEvent

_LINES: Final = 8
_TOOLS: Final = 8
_MAX_LINE_CHARS: Final = 500
_MAX_ARGS_CHARS: Final = 200
#: What a program writes that has nothing to say yet.
_RUNNING: Final = "(running...)"
_OUTPUT: Final = frozenset({"subagent.child.log", "subagent.child.stdout"})


class Snapshot:
    """One run's snapshot, from its journal's events in their order."""

    def __init__(self, attempt: Attempt, run_id: str, started_ms: int) -> None:
        self._attempt = attempt
        self._run_id = run_id
        self._started_ms = started_ms
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._open: dict[int, ToolUse] = {}
        self._used: deque[ToolUse] = deque(maxlen=_TOOLS)
        self._tool_count = 0
        self._tokens: int | None = None
        self._model = ""

    def take(self, event: JournalEvent) -> None:
        """Take one event; what says nothing of the work changes nothing."""
        data = event.data
        match event.type:
            case "subagent.tool.started":
                self._tool_count += 1
                use = ToolUse(tool=str(data.get("tool", "")), args=_args(data.get("args")))
                self._open[int(data.get("callId", 0))] = use
                self._used.append(use)
            case "subagent.tool.completed":
                self._open.pop(int(data.get("callId", 0)), None)
            case "subagent.child.usage":
                self._tokens = (self._tokens or 0) + int(data.get("input", 0)) + int(data.get("output", 0))
                self._model = str(data.get("model", "")) or self._model
            case kind if kind in _OUTPUT:
                for line in str(data.get("text", "")).splitlines():
                    if line.strip() and line.strip() != _RUNNING:
                        self._lines.append(line[:_MAX_LINE_CHARS])
            case _:
                pass

    def update(self, now_ms: int) -> DelegationUpdate:
        """Return the snapshot."""
        tool = next(reversed(self._open.values()), None)
        return DelegationUpdate(
            **self._attempt._asdict(),
            run_id=self._run_id,
            current_tool="" if tool is None else tool.tool,
            current_tool_args="" if tool is None else tool.args,
            recent_output=self._lines[-1] if self._lines else "",
            recent_output_lines=tuple(self._lines),
            recent_tools=tuple(self._used),
            model=self._model,
            tool_count=self._tool_count,
            duration_ms=max(0, now_ms - self._started_ms),
            tokens=self._tokens,
        )


def _args(arguments: Any) -> str:
    if not arguments:
        return ""
    text = msgspec.json.encode(arguments).decode()
    return text if len(text) <= _MAX_ARGS_CHARS else text[: _MAX_ARGS_CHARS - 1] + "…"
