"""``pisub sessions``: the sessions that there are, and which are live: whoever reclaims idle ones keeps those."""

from __future__ import annotations

from argparse import Namespace

from pisub.cli.console import Console, safe_line
from pisub.cli.exits import Exit
from pisub.cli.render import table
from pisub.client.liveness import Life, read_lives
from pisub.clock import SystemClock
from pisub.config import Settings
from pisub.errors import BrokerUnavailableError, PisubError
from pisub.launch import find_broker
from pisub.process import Liveness, liveness
from pisub.record.layout import Layout
from pisub.record.session_list import list_sessions
from pisub.record.sessions import last_host


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """List sessions."""
    layout = Layout.of(settings)

    def warn(_: str, error: PisubError) -> None:
        console.warn(error.message)

    session: str | None = arguments.session
    ids = list_sessions(layout, on_problem=warn) if session is None else [session]
    lives = _ask_hosts(settings, read_lives(layout, ids, now_ms=SystemClock().wall_ms()), console)
    hosts = {life.session_id: _host_pid(layout, life.session_id) for life in lives}
    shown = [life for life in lives if life.is_live or not arguments.live]
    for problem in dict.fromkeys(each for life in shown for each in life.problems):
        console.warn(problem)
    if console.is_json:
        rows = [
            {
                "sessionId": each.session_id,
                "isLive": each.is_live,
                "reasons": each.reasons,
                "activeRuns": each.active_runs,
                "hostPid": hosts[each.session_id],
            }
            for each in shown
        ]
        console.json("sessions", {"sessions": rows})
        return Exit.OK
    if not shown:
        console.say("no live sessions" if arguments.live else "no sessions")
        return Exit.OK
    cells = [
        (
            "live" if each.is_live else "idle",
            str(len(each.active_runs) or "-"),
            str(hosts[each.session_id] or "-"),
            ", ".join(each.reasons) or "-",
            safe_line(each.session_id),
        )
        for each in shown
    ]
    for line in table(("STATE", "RUNS", "HOST", "WHY", "SESSION"), cells):
        console.result(line)
    return Exit.OK


def _ask_hosts(settings: Settings, lives: list[Life], console: Console) -> list[Life]:
    """Ask the hosts of the sessions that the record takes for idle, where a broker is up."""
    idle = [life.session_id for life in lives if not life.is_live]
    if not idle or find_broker(settings) is None:
        return lives
    from pisub.cli.broker_link import ask_lives  # noqa: PLC0415  # only with a broker: the transport is heavy

    try:
        answers = ask_lives(settings, idle)
    except BrokerUnavailableError as error:
        console.warn(error.message)
        return lives
    return [answers.get(life.session_id, life) for life in lives]


def _host_pid(layout: Layout, session_id: str) -> int | None:
    try:
        last = last_host(layout, session_id)
    except (PisubError, OSError):
        return None
    return None if last is None or liveness(last[1]) is not Liveness.ALIVE else last[1].pid
