"""The runner's second thread: a loop that turns files, signals, messages and reports into events, and obeys effects.

It never waits for the agent's thread, so an agent that blocks can still be stopped. It owns no rule: what an event
means is the machine's to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import socket
import threading
from typing import assert_never

from structlog.typing import FilteringBoundLogger

from pisub.clock import Clock
from pisub.config import Settings
from pisub.engines.base import (
    AskCallback,
    AskTimes,
    Engine,
    EngineEvent,
    Settled,
    Steered,
    SteeringKnown,
)
from pisub.errors import PisubError
from pisub.process import ProcessIdentity
from pisub.process_limits import raise_soft_limits
from pisub.protocol.checkpoint import Question
from pisub.protocol.limits import INBOX_REREAD_S
from pisub.protocol.runs import InboxRead, RunState
from pisub.record.atomic import exists
from pisub.record.layout import Layout
from pisub.runs.spec import RunSpec

from . import effects as fx
from . import events as ev
from .announcer import Announcer
from .ask_service import AskService
from .ending import Ending, leave_without_end
from .family import Family
from .host_watch import HostWatch
from .inbox import Inbox
from .intake import AskPosted, AskWithdrawn, Intake
from .link import Hooks, Link
from .machine import Machine
from .process_tree import ProcessTree
from .recorder import Recorder
from .signals import STOP_SIGNALS
from .steer_service import SteerService

#: A record that refuses to be written is tried again after this long.
RETRY_S = 0.25


class RunnerShell:
    """One run's shell. ``report``, ``ask`` and ``cancel_ask`` are for the agent's threads; the rest is for ``app``.

    Args:
        settings: Where the broker is.
        layout: Where the record is.
        spec: The run.
        recorder: Its record, open.
        machine: Its rules.
        ending: Writes its end.
        process: This process.
        clock: The machine's clocks.
        tree: This process's descendants.
        signals: A socket on which the numbers of signals arrive as bytes.
        log: The runner's own log.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        layout: Layout,
        spec: RunSpec,
        recorder: Recorder,
        machine: Machine,
        ending: Ending,
        process: ProcessIdentity,
        started_at: int,
        clock: Clock,
        tree: ProcessTree,
        signals: socket.socket,
        log: FilteringBoundLogger,
    ) -> None:
        self._paths = layout.run(spec.run_id)
        self._spec = spec
        self._recorder = recorder
        self._machine = machine
        self._ending = ending
        self._clock = clock
        self._tree = tree
        self._signals = signals
        self._log = log
        self._inbox = Inbox(self._paths)
        self._family = Family(layout, spec, recorder, self._note_waiting, clock=clock, log=log)
        self._host_watch = HostWatch(spec.attached_to, self._note_host_gone)
        self._inbox_at = 0.0
        self._flush_at: float | None = None
        self._verdict: fx.Verdict | None = None
        self._engine: Engine | None = None
        self._gate: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._intake = Intake(self._wake_from_outside)
        self._settled: queue.SimpleQueue[Settled] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        hooks = Hooks(self._note_inbox, self._note_answer, self._note_host, self._note_connected, self._note_lost)
        self._link = Link(settings, spec, hooks, log)
        self._announcer = Announcer(self._link, spec, self._paths, process=process, started_at=started_at)
        write_line, on_waiting = recorder.write_line, self._note_waiting
        self._asks = AskService(layout, spec, self._link, write_line, on_waiting, process=process, clock=clock)
        self._steering = SteerService(
            self._paths,
            process=process,
            clock=clock,
            write_line=recorder.write_line,
            on_change=lambda: recorder.note_steering(self._steering.ledger, clock.monotonic()),
        )
        self._thread = threading.Thread(target=self._run, name="pisub-shell", daemon=True)

    # For the agent's threads. ------------------------------------------------------------------------------------

    def report(self, event: EngineEvent) -> None:
        """Hand an event to the runner. Never blocks."""
        self._intake.put(event)

    def ask(self, questions: tuple[Question, ...], why: str, answer: AskCallback, times: AskTimes) -> int:
        """Ask the human; ``answer`` is called once, from the shell's thread."""
        number = next(self._numbers)
        self._intake.put(AskPosted(number, questions, why, answer, times))
        return number

    def cancel_ask(self, number: int) -> None:
        """Take an ask back."""
        self._intake.put(AskWithdrawn(number))

    # For the main thread. ----------------------------------------------------------------------------------------

    def start(self, engine: Engine) -> bool:
        """Start the thread; return, once it is clear, whether the engine is to run at all."""
        self._engine = engine
        self._thread.start()
        return self._gate.get()

    def settle(self, settled: Settled) -> None:
        """Say how the engine ended."""
        self._settled.put(settled)
        self._wake_from_outside()

    def join(self) -> None:
        """Wait until the end is written."""
        self._thread.join()

    # The loop. ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        # Not asyncio.run: it waits for the default executor's threads, and one may still be starting a broker.
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._live())
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
        except BaseException as error:  # noqa: BLE001  # the end of this thread: else nobody would ever end the process
            leave_without_end(error)

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        loop.add_reader(self._signals, self._note_signal)
        self._host_watch.start(loop)
        self._look_at_inbox()
        if (inherited := self._family.inherited()) is not None:
            self._feed(inherited)
        self._feed(ev.Begun())
        self._link.start()
        while self._verdict is None:
            self._turn()
            if self._verdict is None:
                await self._pause(loop)
        await self._end(self._verdict)
        loop.remove_reader(self._signals)
        self._host_watch.close()
        if self._verdict.is_engine_hung:
            os._exit(0)  # the agent's thread never returned, and cannot be made to

    def _turn(self) -> None:
        """One turn: take what was reported, let time pass, write what is due."""
        self._wake.clear()
        now = self._clock.monotonic()
        self._take_reports(now)
        if now >= self._inbox_at:
            self._look_at_inbox()
        self._asks.tick(now)
        self._family.look(now)
        due = self._machine.next_deadline()
        if due is not None and now >= due:
            self._feed(ev.Tick())
        self._flush(now)

    def _take_reports(self, now: float) -> None:
        # The settled queue is read first: whatever the engine reported before it settled is in the intake then.
        settled = None if self._settled.empty() else self._settled.get()
        items, dropped = self._intake.take_all()
        for item in items:
            match item:
                case AskPosted():
                    self._post(item)
                case AskWithdrawn(number):
                    self._asks.withdraw(number, "The asker took it back.")
                case Steered() | SteeringKnown():
                    self._steering.note(item)
                case _:
                    self._recorder.take(item, now)
        if dropped:
            self._recorder.note_dropped(dropped)
        if settled is not None:
            # The agent may have lowered them for itself; the end must be written all the same.
            raise_soft_limits(descriptors=True)
            # A request that was there before the agent ended counts, also if it is what ended it: the signal that
            # brings the news also interrupts what the agent is waiting for in C.
            self._look_at_inbox()
            self._recorder.close_output()
            self._feed(ev.EngineSettled(settled, self._recorder.has_artifacts))

    def _post(self, posted: AskPosted) -> None:
        self._asks.post(posted)
        if self._machine.is_stopping:
            self._asks.withdraw(posted.number, "The run is being ended.")

    async def _pause(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sleep until something happens or is due."""
        deadlines = (
            self._inbox_at,
            self._machine.next_deadline(),
            self._asks.next_deadline(),
            self._family.next_deadline(),
            self._recorder.next_deadline(),
            self._flush_at,
        )
        timer = loop.call_at(min(at for at in deadlines if at is not None), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _feed(self, event: ev.RunnerEvent) -> None:
        for effect in self._machine.handle(event, self._clock.monotonic()):
            self._carry_out(effect)

    def _carry_out(self, effect: fx.RunnerEffect) -> None:
        match effect:
            case fx.StartEngine():
                self._recorder.write_line("subagent.step.started", {"index": 0, "agent": self._spec.agent.name})
                # On disk before the agent begins: one that never lets go of the interpreter is running, and says so.
                self._flush(self._clock.monotonic())
                self._gate.put(True)
            case fx.CancelEngine():
                if self._engine is not None:
                    self._engine.cancel()
            case fx.CancelAsks(reason):
                self._asks.withdraw_all(reason)
            case fx.PassOn(kind):
                self._family.pass_on(kind)
            case fx.SignalTree(must_die):
                with contextlib.suppress(OSError):  # the next look is milliseconds away
                    self._tree.signal(must_die=must_die)
            case fx.LookAtTree():
                self._feed(ev.TreeSeen(self._count_tree()))
            case fx.WriteJournal(kind, data):
                self._recorder.write_line(kind, data)
            case fx.WriteStatus():
                self._recorder.mark_status(self._clock.monotonic(), at_once=True)
            case fx.Commit(verdict):
                self._verdict = verdict
            case _:
                assert_never(effect)

    def _count_tree(self) -> int:
        """Look at the process tree. One that cannot be seen, as without a free descriptor, is not seen to be empty."""
        try:
            return self._tree.count()
        except OSError as error:
            self._log.warning("tree_not_seen", error=str(error))
            return 1

    def _flush(self, now: float) -> None:
        if self._flush_at is not None and now < self._flush_at:
            return
        try:
            self._steering.flush()
            newest = self._recorder.flush(self._machine.snapshot(), now)
        except (OSError, PisubError) as error:
            self._flush_at = now + RETRY_S
            self._log.warning("record_not_written", error=str(error))
            return
        self._flush_at = None
        if newest is not None:
            self._announcer.progress(newest)

    async def _end(self, verdict: fx.Verdict) -> None:
        """Write the end, however long the disk refuses, then say so, then go."""
        self._close_steering()
        await self._ending.write(verdict, self._machine.snapshot())
        with contextlib.suppress(OSError, PisubError):  # what a full disk refused before
            self._steering.flush()
        await self._link.settle()
        self._ending.announce(self._link)
        await self._link.close()
        self._ending.release()
        self._gate.put(False)

    def _close_steering(self) -> None:
        """Say of every message that the child does not have that it never will. The commit closes the inbox itself."""
        if self._engine is not None:
            self._engine.close_steering()
        now = self._clock.monotonic()
        self._take_reports(now)
        self._family.look(now, at_once=True)
        self._flush(now)

    # What happens outside. ---------------------------------------------------------------------------------------

    def _wake_from_outside(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody reads any more
                self._loop.call_soon_threadsafe(self._wake.set)

    def _look_at_inbox(self) -> None:
        self._inbox_at = self._clock.monotonic() + INBOX_REREAD_S
        try:
            is_removed = not exists(self._paths.dir)
            requests = self._inbox.read()
        except (OSError, PisubError) as error:
            self._log.warning("inbox_not_read", error=str(error))
            return
        for request in requests:
            self._feed(request)
        if self._engine is not None:  # after the controls: a message does not overtake a stop
            with contextlib.suppress(OSError, PisubError):  # not to be read now: it is looked at again in seconds
                self._steering.look(self._engine, is_ending=self._machine.is_stopping)
        if is_removed:  # no command finds such a run any more: none could ever stop it
            self._feed(ev.EndRequested(ev.Cause.STOP, "record-removed", "The run's directory was removed."))
        self._host_watch.check()

    def _note_signal(self) -> None:
        """Signals: two ask for the end, the others say "look at the inbox and the answers"."""
        numbers = set(self._signals.recv(256))
        if numbers & STOP_SIGNALS:
            self._feed(ev.EndRequested(ev.Cause.STOP, "signal", "The runner was told to end by a signal."))
        self._look_at_inbox()
        self._asks.look()
        self._wake.set()

    def _note_host_gone(self) -> None:
        text = "The process that this run was attached to is gone."
        self._feed(ev.EndRequested(ev.Cause.STOP, "host-gone", text))
        self._wake.set()

    def _note_inbox(self) -> InboxRead:
        self._look_at_inbox()
        self._wake.set()
        return InboxRead(run_id=self._spec.run_id, state=RunState.RUNNING, is_stopping=self._machine.is_stopping)

    def _note_answer(self, ask_id: str) -> None:
        self._asks.look(ask_id)
        self._wake.set()

    def _note_host(self) -> None:
        self._asks.note_host()
        self._wake.set()

    def _note_connected(self) -> None:
        self._announcer.begin()
        self._look_at_inbox()
        self._asks.note_host()
        self._wake.set()

    def _note_lost(self) -> None:
        self._asks.note_lost()
        self._wake.set()

    def _note_waiting(self, is_waiting: bool) -> None:
        self._feed(ev.AskBegan() if is_waiting else ev.AskEnded())
        self._wake.set()
