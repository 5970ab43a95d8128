"""A session's host on the bus: holds the role, takes its children's questions, brings their ends.

Owns the claim and its number in the record, the way from a message to the desk, and the watch on who asks. What becomes
of a question is ``pisub.hosting.queue``'s; what the record holds, ``pisub.record``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final

import msgspec

from pisub.client.bus import Bus, BusState, Incoming, Sender
from pisub.client.status import StatusReader
from pisub.clock import Clock, SystemClock
from pisub.config import Settings
from pisub.errors import PisubError, RefusedError, RoleTakenError, StaleGenerationError
from pisub.fleet.external import ExternalRuns
from pisub.hosting import queue_events as ev
from pisub.hosting.batching import BatchTimes
from pisub.hosting.completions import CompletionHandler, Completions, CompletionsHandler
from pisub.hosting.desk import Desk, Report
from pisub.hosting.dialogs import Dialogs
from pisub.hosting.external_runs import serve_external_runs
from pisub.hosting.live import LiveStatus
from pisub.hosting.liveness import SessionLiveness
from pisub.hosting.notify import Notifier
from pisub.hosting.own_asks import OwnAsks
from pisub.hosting.queue import HostQueue
from pisub.hosting.requests import to_ask
from pisub.hosting.subscriptions import Subscriptions, WaitEnded, WaitHandler
from pisub.ids import check_session_id
from pisub.process import Liveness, ProcessIdentity, liveness, own_identity
from pisub.protocol.checkpoint import (
    HOST_READY_TOPIC,
    HOST_ROLE,
    AnswerPosted,
    AskCancelled,
    AskRequest,
    AskResult,
    HostReady,
)
from pisub.protocol.limits import MAX_REASON_CHARS, SETTLE_S
from pisub.protocol.runs import ASYNC_COMPLETE_TOPIC, ASYNC_STARTED_TOPIC, WAIT_ENDED_TOPIC, WaitOver, runner_address
from pisub.protocol.seams import SessionLive
from pisub.protocol.session import Authority, Claimed, GoneReason, RoleGranted, Terminated
from pisub.record.layout import Layout
from pisub.record.model import QuestionOutcome
from pisub.record.questions import AskView, list_open_asks, read_ask, record_outcome
from pisub.record.sessions import claim_host_record, last_host

#: An asker whose connection is lost, while its process may live, is looked at this often.
ASKER_CHECK_S: Final = 1.0


class HostSession:
    """The host of one session, from ``start`` to ``stop``. One per bus.

    Args:
        bus: A connection of kind host. It stays the caller's to close.
        layout: The record.
        settings: What the program runs with. An ask brings its own times.
        session_id: The session.
        dialogs: The face that asks the human.
        notifier: Who calls the human when a batch comes; None calls nobody.
        clock: Time.
        report: Told of what went wrong outside of any call; None is the loop's exception handler.
    """

    def __init__(
        self,
        bus: Bus,
        layout: Layout,
        settings: Settings,
        session_id: str,
        dialogs: Dialogs,
        *,
        notifier: Notifier | None = None,
        clock: Clock | None = None,
        report: Report | None = None,
    ) -> None:
        self.session_id = check_session_id(session_id)
        self.settings = settings
        self._bus = bus
        self._layout = layout
        self._clock = clock or SystemClock()
        self._report = report or report_to_loop
        self._notifier = notifier
        self._own = OwnAsks(session_id, lambda: self.is_host)
        queue_timeout_s = settings.queue_timeout_ms / 1000 if settings.queue_timeout_ms > 0 else None
        self._desk = Desk(
            dialogs,
            self._write_outcome,
            by=bus.address,
            clock=self._clock,
            on_unclaimed=self._tell_runner,
            report=self._report,
            call_human=None if notifier is None else self._call_human,
            queue=HostQueue(self._clock.monotonic(), queue_timeout_s=queue_timeout_s),
        )
        self._completions = Completions(bus, layout, session_id, clock=self._clock, report=self._report)
        self._subscriptions = Subscriptions(
            layout, session_id, clock=self._clock, report=self._report, publish=self._publish_wait
        )
        self.liveness = SessionLiveness(
            layout,
            session_id,
            clock=self._clock,
            report=self._report,
            has_ends=self._completions.has_ends,
            is_host=lambda: self.is_host,
        )
        self.external_runs = ExternalRuns()
        self.live = LiveStatus(
            StatusReader(layout, session_id, settings, clock=self._clock),
            clock=self._clock,
            is_ready=lambda: self.is_host and bus.is_connected,
        )
        self._askers: dict[str, _Asker] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._hosting = asyncio.Event()
        self._is_host = False
        self._is_stopped = False

    @property
    def is_host(self) -> bool:
        """Whether it holds the role now. Without, it waits for its turn and shows no dialogs."""
        return self._is_host and not self._is_stopped

    async def wait_for_turn(self) -> None:
        """Return when it holds the role, or has held it."""
        await self._hosting.wait()

    def on_completion(self, handler: CompletionHandler) -> None:
        """Have ``handler`` called for each end of a run of the session. Without one the ends stay for another host."""
        self._completions.tell_each(handler)

    def on_completions(self, handler: CompletionsHandler, times: BatchTimes | None = None) -> None:
        """Have ``handler`` called with groups of ends instead: a failure at once, successes quietly and together."""
        self._completions.tell_groups(handler, times or BatchTimes())

    def on_wait(self, handler: WaitHandler) -> None:
        """Have ``handler`` called, once, with each of the session's waits in the background that is over."""
        self._subscriptions.tell(handler)

    async def ask(self, ask: ev.Ask, abort: asyncio.Event | None = None) -> AskResult:
        """Ask this host's own human, in the same queue as children; see ``OwnAsks``."""
        return await self._own.ask(self._desk, ask, abort)

    async def start(self, *, wait: bool = False) -> None:
        """Claim the role and begin.

        With ``wait`` and a taken role it returns at once, and becomes the host when the other goes.

        Raises:
            RoleTakenError: Another is the session's host, and ``wait`` is false.
            InvalidArgumentError: This bus serves a host already.
        """
        self._bus.serve(AskRequest, self._on_request)
        self._bus.serve(SessionLive, self.liveness.answer)
        serve_external_runs(self._bus, self.external_runs, self.session_id, lambda: self.is_host)
        self._bus.on_tell(AskCancelled, self._on_cancelled)
        self._bus.on_tell(AnswerPosted, self._on_answer_posted)
        self._bus.on_role(self._on_role)
        self._bus.on_state(self._on_state)
        for topic in (ASYNC_STARTED_TOPIC, ASYNC_COMPLETE_TOPIC):
            await self._bus.subscribe(topic, self._on_run_news, scope=self.session_id)
        if (await self._claim(wait=wait)).generation:
            await self._become_host()

    async def stop(self) -> None:
        """Give the role back. Open questions stay open, for the next host. Idempotent."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self.liveness.close()
        if self._notifier is not None:
            self._notifier.stop()
        await self._desk.stop("The host ends.")
        await self._completions.stop()
        await self._subscriptions.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._bus.is_connected:  # without a broker the role ends with the connection
            with contextlib.suppress(PisubError):
                await self._bus.release(HOST_ROLE, self.session_id)

    # The role. ---------------------------------------------------------------------------------------------------

    async def _claim(self, *, wait: bool) -> Claimed:
        last = await asyncio.to_thread(last_host, self._layout, self.session_id)
        number, process = (0, None) if last is None else last
        # The last host's process lives: after a broker's restart it may be about to return, so stand behind it.
        is_second = process is not None and process != own_identity() and liveness(process) is not Liveness.DEAD
        while True:
            try:
                claimed = await self._bus.claim(HOST_ROLE, self.session_id, wait=wait or is_second, record_n=number + 1)
                break
            except StaleGenerationError:  # another host came and went since the record was read
                last = await asyncio.to_thread(last_host, self._layout, self.session_id)
                number = max(number, 0 if last is None else last[0]) + 1
        if claimed.generation or wait:
            return claimed
        if not claimed.holder:
            try:
                async with asyncio.timeout(2 * SETTLE_S):  # a young broker grants it when it has settled
                    await self._hosting.wait()
                return Claimed(role=HOST_ROLE, scope=self.session_id, generation=0)  # on_role has done the rest
            except TimeoutError:
                pass
        await self._bus.release(HOST_ROLE, self.session_id)
        holder = claimed.holder or "another process"
        raise RoleTakenError(f"{holder} is the host of session {self.session_id!r} already.", holder=claimed.holder)

    def _on_role(self, granted: RoleGranted) -> None:
        if (granted.role, granted.scope) == (HOST_ROLE, self.session_id) and not self._is_stopped:
            self._spawn(self._become_host())

    async def _become_host(self) -> None:
        is_first = not self._is_host
        self._is_host = True
        if is_first:
            number = await asyncio.to_thread(claim_host_record, self._layout, self.session_id, own_identity())
            self._completions.start(f"host-{number}")
            self._subscriptions.start()
        self._bus.publish(HOST_READY_TOPIC, HostReady(session_id=self.session_id), scope=self.session_id)
        await self._take_open_asks()
        self._hosting.set()

    def _on_state(self, state: BusState) -> None:
        self.live.forget()
        if state not in (BusState.CONNECTED, BusState.RESYNC) or not self.is_host:
            return
        if self._bus.fence(HOST_ROLE, self.session_id) is None:  # another took it while this one was away
            self._is_host = False
            self._hosting.clear()
            self._spawn(self._step_down())
            return
        self._completions.wake()
        if state is BusState.RESYNC:
            self._spawn(self._take_open_asks())

    async def _step_down(self) -> None:
        await self._completions.stop()
        await self._subscriptions.stop()
        await self._desk.stop("This process is not the session's host any more.")

    def _on_run_news(self, _: Incoming) -> None:
        self.live.forget()
        self._completions.wake()
        self._subscriptions.wake()

    def _publish_wait(self, ended: WaitEnded) -> None:
        wait = ended.subscription
        over = WaitOver(
            token=wait.token,
            session_id=wait.session_id,
            run_id=wait.run_id,
            outcome=ended.outcome,
            text=ended.text[:MAX_REASON_CHARS],
        )
        with contextlib.suppress(PisubError):  # no broker now: whoever looks on misses it, the program does not
            self._bus.publish(WAIT_ENDED_TOPIC, over, scope=self.session_id)

    # Asks. -------------------------------------------------------------------------------------------------------

    async def _on_request(self, request: AskRequest, sender: Sender) -> AskResult:
        if not self.is_host:
            raise RefusedError("This process is not the session's host.")
        if sender.address != runner_address(request.run_id):
            raise RefusedError(f"{sender.address} cannot ask for run {request.run_id}.")
        if not sender.authority & Authority.ASK:  # the broker refuses the role; this is for who sends to our address
            raise RefusedError(f"{sender.address} may not ask the human: its agent is not granted it.")
        ask = to_ask(request, self.session_id)
        view = await asyncio.to_thread(read_ask, self._layout, ask.run_id, ask.ask_id)
        if view.record.session_id != self.session_id or view.record.questions != ask.questions:
            raise RefusedError(f"Ask {ask.ask_id} is not what its record says, or of another session.")
        if view.outcome is not None:
            return view.outcome.result
        await self._attend(view)
        ask = msgspec.structs.replace(ask, root_run_id=view.record.root_run_id)
        return await self._desk.ask(ask, tuple(view.outcomes.values()))

    async def _take_open_asks(self) -> None:
        views = await asyncio.to_thread(list_open_asks, self._layout, session_id=self.session_id)
        for view in views:
            # A dead asker's questions are closed by whoever reconciles its run; nobody should be asked them.
            if liveness(view.record.asker) is not Liveness.DEAD:
                try:
                    ask = to_ask(view.record, self.session_id)
                except PisubError as error:
                    self._report(f"Ask {view.record.ask_id} cannot be shown.", error)
                    continue
                self._desk.feed(ev.AskArrived(ask=ask, outcomes=tuple(view.outcomes.values())))
                await self._attend(view)

    def _on_cancelled(self, message: AskCancelled, sender: Sender) -> None:
        asker = self._askers.get(sender.address)
        if asker is not None and message.ask_id in asker.asks:
            self._desk.feed(ev.AskWithdrawn(ask_id=message.ask_id, reason=message.reason or "the asker took it back"))

    def _on_answer_posted(self, message: AnswerPosted, _: Sender) -> None:
        if message.ask_id in self._desk.open_asks and message.ask_id not in self._own:
            self._spawn(self._read_again(message.run_id, message.ask_id))

    async def _read_again(self, run_id: str, ask_id: str) -> None:
        view = await asyncio.to_thread(read_ask, self._layout, run_id, ask_id)
        for outcome in view.outcomes.values():
            self._desk.feed(ev.OutcomeSettled(outcome=outcome))
        if view.outcome is not None:
            self._desk.feed(ev.AskWithdrawn(ask_id=ask_id, reason="the asker has its result"))

    def _write_outcome(self, run_id: str, outcome: QuestionOutcome) -> QuestionOutcome:
        return record_outcome(self._layout, run_id, outcome) if run_id else self._own.record(outcome)

    def _call_human(self, ask: ev.Ask, open_asks: int) -> None:
        if self._notifier is not None:
            self._notifier.call(ask, open_asks, lambda ask_id: ask_id in self._desk.open_asks)

    def _tell_runner(self, end: ev.EndAsk) -> None:
        if not end.run_id:
            return  # its own: whoever asked has taken it back
        posted = AnswerPosted(ask_id=end.ask_id, run_id=end.run_id, number=0)
        with contextlib.suppress(PisubError):  # it reads its files every few seconds, told or not
            self._bus.tell(runner_address(end.run_id), posted, scope=self.session_id)

    # Askers. -----------------------------------------------------------------------------------------------------

    async def _attend(self, view: AskView) -> None:
        """Notice when the asker goes."""
        address = runner_address(view.record.run_id)
        asker = self._askers.setdefault(address, _Asker(view.record.asker))
        asker.asks &= set(self._desk.open_asks)
        asker.asks.add(view.record.ask_id)
        if not asker.is_watched:
            asker.is_watched = True
            try:
                await self._bus.watch(address, self._on_gone)
            except PisubError:  # no broker now: its process can be looked at all the same
                self._look_at(address, asker)

    def _on_gone(self, message: Terminated) -> None:
        asker = self._askers.get(message.address)
        if asker is None or self._is_stopped:
            return
        asker.is_watched = False
        if message.reason in (GoneReason.EXITED, GoneReason.GOODBYE):
            self._let_go(message.address, asker)
        else:
            self._look_at(message.address, asker)

    def _look_at(self, address: str, asker: _Asker) -> None:
        """Let an asker go that is dead; one that has only lost its connection is looked at again."""
        asker.is_watched = False
        if self._is_stopped or self._askers.get(address) is not asker:
            return
        if liveness(asker.process) is Liveness.DEAD or not asker.asks & set(self._desk.open_asks):
            self._let_go(address, asker)
        else:
            asyncio.get_running_loop().call_later(ASKER_CHECK_S, self._look_at, address, asker)

    def _let_go(self, address: str, asker: _Asker) -> None:
        self._askers.pop(address, None)
        for ask_id in asker.asks & set(self._desk.open_asks):
            self._desk.feed(ev.AskWithdrawn(ask_id=ask_id, reason="the asker is gone"))
        self._completions.wake()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._report("The host could not follow a message.", error)


class _Asker:
    """A run that asks, for as long as it has an open ask."""

    def __init__(self, process: ProcessIdentity) -> None:
        self.process = process
        self.asks: set[str] = set()
        self.is_watched = False


def report_to_loop(what: str, error: BaseException | None) -> None:
    """Hand what went wrong outside of any call to the running loop's exception handler."""
    context: dict[str, Any] = {"message": f"pisub host: {what}"}
    if error is not None:
        context["exception"] = error
    asyncio.get_running_loop().call_exception_handler(context)
