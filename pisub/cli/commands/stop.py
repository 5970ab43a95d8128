"""``pisub stop``: a file, a nudge, a bounded wait; in the end a signal to exactly the runner's process."""

from __future__ import annotations

import getpass
from argparse import Namespace
from typing import Any, Final

import msgspec

from pisub.cli.console import Console
from pisub.cli.exits import Exit
from pisub.cli.select import pick_run
from pisub.cli.summary import summarize
from pisub.cli.waiting import has_ended, wait_for_end
from pisub.client.caller import require_control
from pisub.client.stopping import (
    FORCE_AFTER_S,
    GIVE_UP_AFTER_S,
    force_end,
    request_stop,
    stop_by_signal,
    stop_grace_s,
    unrecorded_end,
    wake_by_signal,
)
from pisub.client.views import current_view
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.errors import RefusedError, WaitTimeoutError
from pisub.protocol.runs import InboxChanged, RunState, runner_address
from pisub.record.layout import Layout
from pisub.record.reader import RunView
from pisub.record.tree import descendants
from pisub.runs.cascade import pass_on
from pisub.runs.reconcile import reconcile

#: A stop that takes longer says what it waits for.
_SILENT_S: Final = 0.7


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Stop one run and wait until it has ended. One that has ended already keeps its end."""
    layout = Layout.of(settings)
    run_id = pick_run(settings, layout, arguments.id)
    view = current_view(layout, run_id, now_ms=SystemClock().wall_ms())
    was_over = view.state.is_terminal
    if arguments.tree or not was_over:
        require_control(layout, run_id, "stop this run")
    if not was_over:
        if arguments.declare_dead:
            view = _declare_dead(layout, view)
        else:
            view = _stop(layout, settings, view, arguments.reason, console)
    below = _stop_below(layout, settings, run_id, console) if arguments.tree else []
    if console.is_json:
        document: dict[str, Any] = msgspec.to_builtins(summarize(view))
        more: Any = {"below": msgspec.to_builtins([summarize(each) for each in below])} if arguments.tree else {}
        console.json("stopped", {**document, "wasOver": was_over, **more})
    else:
        for each in below:
            console.result(f"{each.run_id} {each.state}")
        console.result(f"{run_id} {view.state}")
        if was_over:
            console.say("it had ended before; nothing was changed")
        elif view.state is not RunState.STOPPED and not arguments.declare_dead:
            console.say("it ended by itself before the stop reached it")
    return Exit.OK


def _stop_below(layout: Layout, settings: Settings, run_id: str, console: Console) -> list[RunView]:
    """Stop everything below a run that has not ended; return it as it is then, oldest first."""
    clock = SystemClock()
    views = (current_view(layout, each.run_id, now_ms=clock.wall_ms()) for each in descendants(layout, run_id))
    live = [view for view in views if not view.state.is_terminal]
    # All are told before the first is waited for.
    pass_on(layout, run_id, "stop", now_ms=clock.wall_ms())
    return [_stop(layout, settings, view, "", console) for view in live]


def _stop(layout: Layout, settings: Settings, view: RunView, reason: str, console: Console) -> RunView:
    clock = SystemClock()
    try:
        request_stop(layout, view.run_id, source="pisub stop", reason=reason, now_ms=clock.wall_ms())
    except OSError as refused:
        return _stop_by_signal(layout, view, refused, console)
    if not wake_by_signal(view):
        _wake_by_message(settings, view)
    grace_s = stop_grace_s(view)
    (seen,) = wait_for_end(layout, [view.run_id], timeout_s=_SILENT_S)
    if not has_ended(seen):
        console.say(f"told to stop; if it has not ended in {grace_s + FORCE_AFTER_S:g} s, it is killed")
        (seen,) = wait_for_end(layout, [view.run_id], timeout_s=max(0.0, grace_s + FORCE_AFTER_S - _SILENT_S))
    if has_ended(seen):
        return seen
    force_end(layout, seen, now_ms=clock.wall_ms())
    (seen,) = wait_for_end(layout, [view.run_id], timeout_s=GIVE_UP_AFTER_S - FORCE_AFTER_S)
    if not has_ended(seen):
        raise WaitTimeoutError(
            f"Run {view.run_id} was told to stop and has not ended after {grace_s + GIVE_UP_AFTER_S:g} s; its process "
            "could not be verified, so it was not signalled."
        )
    return seen


def _stop_by_signal(layout: Layout, view: RunView, refused: OSError, console: Console) -> RunView:
    """Stop a run although the disk takes no request."""
    process = stop_by_signal(view, refused)
    console.say(
        f"the request cannot be written ({refused.strerror}): its process (pid {process.pid}) was told by a signal"
    )
    try:
        (seen,) = wait_for_end(layout, [view.run_id], timeout_s=stop_grace_s(view) + FORCE_AFTER_S)
    except OSError as error:  # its end cannot be written either
        raise unrecorded_end(view.run_id, process, error) from error
    if not has_ended(seen):
        raise unrecorded_end(view.run_id, process, refused)
    return seen


def _declare_dead(layout: Layout, view: RunView) -> RunView:
    """End a run of which nothing on this machine can tell whether it lives; the record says who said so."""
    if not view.is_unknown:
        raise RefusedError(f"Run {view.run_id} is {view.state}, not unknown: stop it without --declare-dead.")
    return reconcile(layout, view.run_id, now_ms=SystemClock().wall_ms(), declared_dead_by=getpass.getuser())


def _wake_by_message(settings: Settings, view: RunView) -> None:
    from pisub.cli.nudge import tell  # noqa: PLC0415  # asyncio: only where no signal can reach the runner

    tell(settings, (runner_address(view.run_id),), InboxChanged(run_id=view.run_id), session_id=view.spec.session_id)
