"""The nursery's loop: one thread, one poll over the listening socket, the launchers, and the signals.

Nothing here waits for anybody: not for a launcher that does not read, not for a disk (the coroners write), not for a
runner. Rules are in ``core``.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final, Protocol

import msgspec

from pisub.config import Settings
from pisub.errors import PisubError, ProtocolError
from pisub.launchers.key import installed_files
from pisub.launchers.nursery import peer_user
from pisub.launchers.protocol import (
    MAX_LETTER_BYTES,
    MAX_PACKET_BYTES,
    LaunchAnswer,
    LaunchRequest,
    decode_request,
    encode_packet,
)
from pisub.process import identify
from pisub.record.layout import Layout

from . import reaper
from .child import fork_runner
from .core import AnswerQueue, NurseryCore
from .coroners import fork_coroner
from .oom import OomWatch, find_counter
from .parts import Parts
from .reaper import Runner

#: Launchers connected at a time; above it the one that was silent longest is dropped (it may come again).
MAX_CLIENTS: Final = 256


class Log(Protocol):
    """Where the nursery says what it did."""

    def info(self, event: str, **fields: object) -> object:
        """Write one event."""
        ...


class _Client:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.answers = AnswerQueue()


class NurseryServer:
    """Serves launches until nothing holds it.

    Args:
        listener: The listening socket.
        release: Called once, when no more launches are taken: gives the socket's name and the lock back.
        parts: What runners and coroners do.
        settings: The nursery's own.
        log: Its log.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        release: Callable[[], None],
        parts: Parts,
        settings: Settings,
        core: NurseryCore,
        log: Log,
    ) -> None:
        self._listener: socket.socket | None = listener
        self._release = release
        self._parts = parts
        self._settings = settings
        self._core = core
        self._log = log
        self._files = installed_files()
        self._oom = OomWatch(find_counter())
        self._selector = selectors.DefaultSelector()
        self._clients: dict[int, _Client] = {}
        self._wake_reader, self._wake_writer = socket.socketpair()

    def serve(self) -> None:
        """Serve; returns when the nursery may leave."""
        self._watch_signals()
        assert self._listener is not None
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, self._drain_wakeups)
        while True:
            self._bury()
            now = time.monotonic()
            if self._core.should_check_files(now) and installed_files() != self._files:
                self._log.info("files_changed")
                self._core.stop()
            if self._core.should_enforce(now):
                self._enforce()
            if self._core.is_stopping:
                self._stop_accepting()
            if self._core.may_leave(now):
                break
            if not self._core.is_burying:
                self._oom.look()
            for key, _ in self._selector.select(self._core.timeout_s(now)):
                key.data()
        self._stop_accepting()
        for client in list(self._clients.values()):
            self._drop(client)
        signal.set_wakeup_fd(-1)
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _watch_signals(self) -> None:
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # the wake-up is the message
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_stop)

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._core.stop()

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_reader.recv(512):
                pass

    # Launchers -------------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # no descriptor left: make room, the launcher stays in the backlog
            self._log.info("accept_failed", error=error.strerror)
            self._drop_oldest()
            return
        if peer_user(connection) != os.geteuid():
            connection.close()
            return
        if len(self._clients) >= MAX_CLIENTS:
            self._drop_oldest()
        connection.setblocking(False)
        client = _Client(connection)
        self._clients[connection.fileno()] = client
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._attend(client))
        self._core.touched(time.monotonic())

    def _attend(self, client: _Client) -> None:
        if client.connection.fileno() < 0:
            return  # dropped earlier in this pass
        try:
            self._send_answers(client)
            if not client.answers.is_full and not self._take_request(client):
                self._drop(client)
                return
            self._send_answers(client)
        except (ConnectionError, BrokenPipeError):
            self._drop(client)
            return
        wanted = 0 if client.answers.is_full else selectors.EVENT_READ
        if client.answers:
            wanted |= selectors.EVENT_WRITE
        self._selector.modify(client.connection, wanted, lambda: self._attend(client))

    def _take_request(self, client: _Client) -> bool:
        """Read and carry out one request, if there is one; False when the launcher has gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(client.connection, MAX_PACKET_BYTES, 4, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return True
        try:
            if not data:
                return False
            # Most recent last: who is silent longest is dropped first.
            self._clients[client.connection.fileno()] = self._clients.pop(client.connection.fileno())
            client.answers.add(encode_packet(self._answer(data, descriptors)))
            return True
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _answer(self, data: bytes, descriptors: list[int]) -> LaunchAnswer:
        try:
            request = decode_request(data)
            letter = _checked_letter(request, descriptors)
            process = fork_runner(request, letter, self._parts.entry)
        except PisubError as error:
            return LaunchAnswer(code=error.code, message=error.message)
        except OSError as error:
            return LaunchAnswer(code="launch_failed", message=f"No process could be forked: {error.strerror}.")
        runner = Runner(request.run_id, os.fsdecode(request.home), os.fsdecode(request.runtime_dir), process)
        self._core.started(runner)
        return LaunchAnswer(process=process)

    def _send_answers(self, client: _Client) -> None:
        while (answer := client.answers.first()) is not None:
            try:
                client.connection.send(answer)
            except BlockingIOError:
                return
            client.answers.sent()

    def _drop(self, client: _Client) -> None:
        number = client.connection.fileno()
        if self._clients.pop(number, None) is not None:
            self._selector.unregister(client.connection)
            client.connection.close()

    def _drop_oldest(self) -> None:
        for client in self._clients.values():
            self._drop(client)
            return

    def _stop_accepting(self) -> None:
        if self._listener is None:
            return
        # The name first: whoever comes now starts the next nursery. Those in the backlog are told by the reset.
        self._release()
        self._selector.unregister(self._listener)
        self._listener.close()
        self._listener = None
        self._log.info("stopped_accepting", runners=self._core.runner_count)

    # The dead --------------------------------------------------------------------------------------------------------

    def _bury(self) -> None:
        """See who has died; start coroners for runners, reap everybody else."""
        while (pid := reaper.next_dead()) is not None:
            if self._core.died(pid):
                # A runner that its coroner is busy with hides the others from "any child": look at each of ours.
                for other in self._core.living():
                    if reaper.is_dead(other) and not self._core.died(other):
                        self._reap(other)
                break
            self._reap(pid)
        self._look_at_adopted()
        while (runner := self._core.next_case()) is not None:
            adopted = tuple(filter(None, map(identify, self._core.adopted_from(runner))))
            death = msgspec.structs.replace(reaper.observe(runner), adopted=adopted)
            if death.signal == "SIGKILL" and self._oom.explains_a_death():
                death = msgspec.structs.replace(death, is_out_of_memory=True)
            self._log.info("runner_ended", run_id=runner.run_id, exit_code=death.exit_code, signal=death.signal)
            try:
                self._core.coroner_started(fork_coroner(death, self._settings, self._parts.autopsy), runner)
            except OSError as error:  # no process to be had: the next reader finishes the record
                self._log.info("coroner_failed", run_id=runner.run_id, error=error.strerror)
                self._close(runner)

    def _look_at_adopted(self) -> None:
        """Note what the deaths of this turn left to us. The kernel hands it over before it reports a death."""
        fresh = self._core.fresh_deaths()
        if fresh:
            killed = [runner for runner in fresh if reaper.observe(runner).signal is not None]
            left = [runner for runner in fresh if runner not in killed]
            self._core.note_children(reaper.children(), killed, left)

    def _enforce(self) -> None:
        """End runners that cannot end themselves: an agent holds the interpreter."""
        for runner in self._core.living_runners():
            if self._parts.enforce(runner):
                self._log.info("runner_killed", run_id=runner.run_id)

    def _reap(self, pid: int) -> None:
        status = reaper.release(pid)
        runner = self._core.coroner_of(pid)
        if runner is not None:
            if status != 0:
                self._log.info("coroner_failed", run_id=runner.run_id, status=status)
            self._close(runner)

    def _close(self, runner: Runner) -> None:
        reaper.release(runner.process.pid)
        self._core.closed(runner, time.monotonic())


def _checked_letter(request: LaunchRequest, descriptors: list[int]) -> int:
    if len(descriptors) != 1:
        raise ProtocolError(f"A launch comes with one descriptor, not {len(descriptors)}.")
    found = os.fstat(descriptors[0])
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_LETTER_BYTES:
        raise ProtocolError("A launch message is a memory file within its bound.")
    run = Layout(root=Path(os.fsdecode(request.home))).run(request.run_id)
    if not run.dir.is_dir():
        raise ProtocolError(f"{run.dir} does not exist: submit the run before it is launched.", code="unknown_run")
    return descriptors[0]
