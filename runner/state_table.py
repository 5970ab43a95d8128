"""The machine's rules as tables for people, made by driving the machine itself: they cannot say anything else.

The first table has what each event does in each phase; the second, which of several ends a run gets.
"""

from __future__ import annotations

from typing import Final

from pisub.engines.base import Settled

from . import effects as fx
from . import events as ev
from .machine import Machine, Phase

_GRACE_S: Final = 3.0
_STOP: Final = ev.EndRequested(ev.Cause.STOP, "stop", "Stopped.")
_TIMEOUT: Final = ev.EndRequested(ev.Cause.TIMEOUT, "timeout", "Timed out.")
_INTERRUPT: Final = ev.EndRequested(ev.Cause.INTERRUPT, "interrupt", "Interrupted.")
_DONE: Final = ev.EngineSettled(Settled(text="done"))
_BROKEN: Final = ev.EngineSettled(Settled(error="It broke.", reason="agent-error"))
_OBEYED: Final = ev.EngineSettled(Settled(was_cancelled=True))

_EVENTS: Final[tuple[tuple[str, ev.RunnerEvent], ...]] = (
    ("start", ev.Begun()),
    ("stop", _STOP),
    ("timeout", _TIMEOUT),
    ("interrupt", _INTERRUPT),
    ("the child ends", _DONE),
    ("its tree is empty", ev.TreeSeen(0)),
    ("its tree is not empty", ev.TreeSeen(1)),
    ("the grace is over", ev.Tick()),
)
#: Columns: a name, and the events that lead there.
_PLACES: Final[tuple[tuple[str, tuple[ev.RunnerEvent, ...]], ...]] = (
    ("starting", ()),
    ("running", (ev.Begun(),)),
    ("stopping (interrupt)", (ev.Begun(), _INTERRUPT)),
    ("stopping (timeout)", (ev.Begun(), _TIMEOUT)),
    ("stopping (stop)", (ev.Begun(), _STOP)),
    ("draining", (ev.Begun(), _DONE)),
    ("ended", (ev.Begun(), _DONE, ev.TreeSeen(0))),
)
_REQUESTS: Final[tuple[tuple[str, tuple[ev.EndRequested, ...]], ...]] = (
    ("nothing", ()),
    ("interrupt", (_INTERRUPT,)),
    ("timeout", (_TIMEOUT,)),
    ("stop", (_STOP,)),
    ("interrupt, then timeout", (_INTERRUPT, _TIMEOUT)),
    ("interrupt, then stop", (_INTERRUPT, _STOP)),
    ("timeout, then interrupt", (_TIMEOUT, _INTERRUPT)),
    ("timeout, then stop", (_TIMEOUT, _STOP)),
    ("stop, then interrupt", (_STOP, _INTERRUPT)),
    ("stop, then timeout", (_STOP, _TIMEOUT)),
)
_ENDS: Final[tuple[tuple[str, ev.EngineSettled | None], ...]] = (
    ("gives a result", _DONE),
    ("reports an error", _BROKEN),
    ("obeys", _OBEYED),
    ("never returns", None),
)


def transitions() -> str:
    """Return the table of events and phases: what is done, and where the run is then. A dot: nothing happens."""
    head = ["", *(name for name, _ in _PLACES)]
    rows = [[name, *(_cell(place, event) for _, place in _PLACES)] for name, event in _EVENTS]
    return _table(head, rows)


def precedence() -> str:
    """Return the table of what was asked for and how the child ended: the state of the run."""
    head = ["asked for", *(f"the child {name}" for name, _ in _ENDS)]
    rows = [[name, *(_outcome(requests, end) for _, end in _ENDS)] for name, requests in _REQUESTS]
    return _table(head, rows)


def _cell(before: tuple[ev.RunnerEvent, ...], event: ev.RunnerEvent) -> str:
    machine = Machine(0.0, timeout_s=None, stop_grace_s=_GRACE_S)
    for each in before:
        machine.handle(each, 0.0)
    phase, was_stopping = machine.phase, machine.snapshot().reason
    effects = machine.handle(event, _GRACE_S if isinstance(event, ev.Tick) else 0.0)
    words = [word for effect in effects if (word := _word(effect))]
    if machine.phase is not phase:
        words.append(f"→ {machine.phase.value}")
    elif not words and machine.snapshot().reason != was_stopping:
        words.append("noted")
    return ", ".join(words) or "·"


def _word(effect: fx.RunnerEffect) -> str:
    match effect:
        case fx.StartEngine():
            return "start the child"
        case fx.CancelEngine():
            return "cancel the child"
        case fx.SignalTree(must_die):
            return "KILL its tree" if must_die else "TERM its tree"
        case fx.Commit(verdict):
            return f"write the end ({verdict.state.value})"
        case fx.WriteJournal(kind, _) if kind.startswith("subagent.run."):
            return f"`{kind.removeprefix('subagent.')}`"
        case _:
            return ""


def _outcome(requests: tuple[ev.EndRequested, ...], end: ev.EngineSettled | None) -> str:
    if end is None and not requests:
        return "(it works on)"
    machine = Machine(0.0, timeout_s=None, stop_grace_s=_GRACE_S)
    machine.handle(ev.Begun(), 0.0)
    for request in requests:
        machine.handle(request, 0.0)
    effects = machine.handle(end, 0.0) if end is not None else machine.handle(ev.Tick(), _GRACE_S)
    now = _GRACE_S
    while machine.phase is not Phase.ENDED:
        effects = machine.handle(ev.TreeSeen(0), now)
        now += 1.0
        effects = effects or machine.handle(ev.Tick(), now)
    verdict = next(effect.verdict for effect in effects if isinstance(effect, fx.Commit))
    reason = "" if verdict.reason is None or verdict.reason == verdict.state.value else f", {verdict.reason}"
    return f"{verdict.state.value}{reason}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
