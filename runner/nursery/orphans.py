"""What a dead runner left running: found by session, by the run id in the environment, and by adoption."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from pisub.config import RUN_ID_VARIABLE
from pisub.process import ProcessIdentity, ProcessStat, identify, open_pidfd, read_stat, send_signal

from ..process_tree import is_ours  # noqa: TID252  # the program has another name in a wheel

#: The run is dead already; a second of courtesy, so that its end is on record within two.
TERM_GRACE_S: Final = 0.5
KILL_GRACE_S: Final = 0.5
#: A process that forks faster than we look is not followed for ever.
_MAX_PASSES: Final = 5
_ENDED: Final = frozenset("ZXx")


def find_orphans(
    run_id: str,
    runner: ProcessIdentity,
    spare: Iterable[ProcessIdentity],
    *,
    adopted: Iterable[ProcessIdentity] = (),
) -> list[ProcessIdentity]:
    """Return the live processes of a run, its runner excepted.

    Those of its session, those with its ``PISUB_RUN_ID``, those that were adopted at its death, and all their
    descendants. Daemons of ours and other runs' runners are none of them, whoever happened to start them.

    Args:
        run_id: The run.
        runner: Its runner, which led a session.
        spare: Processes that belong to nobody's run although a run may have started them: broker, nurseries.
        adopted: What became the caller's child when the runner died.
    """
    handed_over = {(each.pid, each.start_ticks) for each in adopted}
    mark = f"{RUN_ID_VARIABLE}={run_id}".encode()
    table = {stat.pid: stat for stat in _processes()}
    spared = {each.pid for each in spare} | {os.getpid(), runner.pid}
    spared |= {pid for pid, _ in handed_over if pid in table and is_ours(table[pid])}
    # Nothing that is older than the runner can be its child: most of the machine need not be looked at.
    roots = {
        pid
        for pid, stat in table.items()
        if pid not in spared
        and stat.start_ticks >= runner.start_ticks
        and (stat.session_id == runner.pid or (pid, stat.start_ticks) in handed_over or _carries(pid, mark))
    }
    found = _with_descendants(table, roots, spared)
    identities = (identify(pid) for pid in sorted(found))
    return [each for each in identities if each is not None and table[each.pid].start_ticks == each.start_ticks]


def end_orphans(
    run_id: str,
    runner: ProcessIdentity,
    spare: Iterable[ProcessIdentity],
    *,
    adopted: Iterable[ProcessIdentity] = (),
) -> bool:
    """Terminate, then kill, what a run left; True when nothing of it is alive any more."""
    spared, handed_over = tuple(spare), list(adopted)
    left = find_orphans(run_id, runner, spared, adopted=handed_over)
    for number, grace in ((signal.SIGTERM, TERM_GRACE_S), *((signal.SIGKILL, KILL_GRACE_S),) * _MAX_PASSES):
        if not left:
            return True
        _signal_and_wait(left, number, grace)
        handed_over += left  # one whose parent ended first may have no other trace
        left = find_orphans(run_id, runner, spared, adopted=handed_over)
    return not left


def _signal_and_wait(targets: list[ProcessIdentity], number: signal.Signals, grace_s: float) -> None:
    end = time.monotonic() + grace_s
    poller = select.poll()
    with contextlib.ExitStack() as stack:
        waiting = 0
        for target in targets:
            descriptor = open_pidfd(target)
            if descriptor is None:
                continue
            stack.callback(os.close, descriptor)
            if send_signal(target, number):
                # A stopped process takes a TERM only when it runs again.
                send_signal(target, signal.SIGCONT)
                poller.register(descriptor, select.POLLIN)
                waiting += 1
        while waiting and (left_s := end - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(left_s * 1000):
                poller.unregister(descriptor)
                waiting -= 1


def _with_descendants(table: dict[int, ProcessStat], roots: set[int], spared: set[int]) -> set[int]:
    found = set(roots)
    while more := {
        pid for pid, stat in table.items() if stat.parent_pid in found and pid not in found and pid not in spared
    }:
        found |= more
    return found


def _processes() -> Iterator[ProcessStat]:
    for name in os.listdir("/proc"):  # noqa: PTH208  # names only; Path objects cost more than the reads
        if name.isdigit():
            with contextlib.suppress(PermissionError):
                stat = read_stat(int(name))
                if stat is not None and stat.state not in _ENDED:
                    yield stat


def _carries(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
