"""``pisub broker``: start it, look at it, stop it. Nobody needs to: the first client starts it, idle it leaves."""

from __future__ import annotations

import os
import select
import signal
from argparse import Namespace
from typing import Any, Final

import msgspec

from pisub.cli.console import Console, safe_line
from pisub.cli.exits import Exit
from pisub.cli.render import duration, table
from pisub.client.caller import require_person
from pisub.config import Settings
from pisub.errors import BrokerError, DeliveryError, WaitTimeoutError
from pisub.launch import BrokerInfo, ensure_broker, find_broker
from pisub.process import Liveness, ProcessIdentity, liveness, open_pidfd, send_signal
from pisub.protocol.session import PeerStatus
from pisub.record.layout import Layout

_LEAVES_WITHIN_S: Final = 5.0
#: With ``--force``, for one that was asked or could not be.
_FORCED_AFTER_S: Final = 1.0


def run(arguments: Namespace, console: Console, settings: Settings) -> Exit:
    """Do one of the four."""
    match arguments.action:
        case "start":
            return _say(console, ensure_broker(settings))
        case "stop":
            return _stop(console, settings, is_forced=arguments.force)
        case "trace":
            return _trace(console, settings)
        case _:
            return _status(console, settings)


def _say(console: Console, info: BrokerInfo) -> Exit:
    if console.is_json:
        document: dict[str, Any] = msgspec.to_builtins(info)
        console.json("broker", {"isRunning": True, **document})
    else:
        console.result(f"broker runs: pid {info.process.pid}, {info.address}")
    return Exit.OK


def _none(console: Console, code: Exit) -> Exit:
    if console.is_json:
        console.json("broker", {"isRunning": False})
    else:
        console.result("no broker runs (the first client starts one)")
    return code


def _status(console: Console, settings: Settings) -> Exit:
    info = find_broker(settings)
    if info is None:
        return _none(console, Exit.NOT_FOUND)
    from pisub.cli.broker_link import read_status  # noqa: PLC0415  # asyncio and zmq: only where a broker is up

    report = read_status(settings)
    if console.is_json:
        document: dict[str, Any] = msgspec.to_builtins(report)
        document.pop("type", None)
        console.json("broker", {"isRunning": True, "address": info.address, **document})
        return Exit.OK
    console.result(
        f"broker runs: pid {report.pid}, up {duration(report.uptime_ms)}, {info.address}\n"
        f"peers {len(report.peers)}, roles {len(report.roles)}, open calls {report.open_calls}"
    )
    if report.roles:
        rows = [(each.role, safe_line(each.scope) or "-", each.address) for each in report.roles]
        console.result("\n".join(table(("ROLE", "SESSION", "HOLDER"), rows)))
    peer_rows = [
        (each.address, each.kind, str(each.pid or "?"), _pace(each), f"{each.queued_bytes} B", str(each.dropped))
        for each in report.peers
    ]
    if peer_rows:
        console.result("\n".join(table(("PEER", "KIND", "PID", "PACE", "QUEUED", "DROPPED"), peer_rows)))
    if report.rates:
        console.result("per second: " + ", ".join(f"{name} {rate}" for name, rate in sorted(report.rates.items())))
    if report.counters:
        console.result("\n".join(f"{name} {count}" for name, count in sorted(report.counters.items())))
    return Exit.OK


def _pace(peer: PeerStatus) -> str:
    if not peer.is_connected:
        return "away"
    return "slow" if peer.is_suspended else "ok"


def _trace(console: Console, settings: Settings) -> Exit:
    if find_broker(settings) is None:
        return _none(console, Exit.NOT_FOUND)
    require_person(Layout.of(settings), "trace the broker")
    from pisub.cli.broker_trace import trace  # noqa: PLC0415  # asyncio and zmq: only where a broker is up

    return trace(settings, console)


def _stop(console: Console, settings: Settings, *, is_forced: bool) -> Exit:
    info = find_broker(settings)
    if info is None:
        return _none(console, Exit.OK)
    require_person(Layout.of(settings), "stop the broker")
    from pisub.cli.broker_link import shut_down  # noqa: PLC0415  # asyncio and zmq: only where a broker is up

    try:
        shut_down(settings)
    except (BrokerError, DeliveryError):
        if not is_forced:
            raise
    if not _is_gone(info.process, _FORCED_AFTER_S if is_forced else _LEAVES_WITHIN_S):
        # Only this process: its identity is verified once more, by the pidfd that the signal goes through.
        if (
            not is_forced
            or not send_signal(info.process, signal.SIGKILL)
            or not _is_gone(info.process, _LEAVES_WITHIN_S)
        ):
            raise WaitTimeoutError(
                f"The broker (pid {info.process.pid}) has not left within {_LEAVES_WITHIN_S:g} s. "
                "`pisub broker stop --force` kills it."
            )
        console.say(f"it did not answer: its process (pid {info.process.pid}) was killed")
    if console.is_json:
        console.json("broker", {"isRunning": False})
    else:
        console.result("broker stopped; runs go on, and the next client starts another")
    return Exit.OK


def _is_gone(process: ProcessIdentity, within_s: float) -> bool:
    descriptor = open_pidfd(process)
    if descriptor is not None:
        try:
            select.select([descriptor], [], [], within_s)
        finally:
            os.close(descriptor)
    return liveness(process) is Liveness.DEAD
