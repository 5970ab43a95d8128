"""A run in a program's hands: its events, its result, its end.

The files are the truth; messages and the runner's pidfd only wake the reader early. It must not know how a runner
works.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final

from pisub import arguments
from pisub.client.awaiting import awaiting
from pisub.client.bus import Bus
from pisub.client.caller import require_control
from pisub.client.interrupting import request_interrupt
from pisub.client.output import whole_output
from pisub.client.recovering import recover as recover_message
from pisub.client.resuming import ResumeRequest, submit_resume
from pisub.client.spawn import launch_submitted
from pisub.client.steering import is_settled, mode_named, read_receipt, send_message
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
from pisub.client.views import current_view, process_of
from pisub.client.wakes import Wakes
from pisub.clock import SystemClock
from pisub.config import Settings, load_settings
from pisub.errors import PisubError, RunFailedError, WaitTimeoutError
from pisub.launchers.local import LocalLauncher
from pisub.process import ProcessIdentity
from pisub.protocol.limits import MAX_REASON_CHARS, STEER_PATIENCE_S
from pisub.protocol.runs import InboxChanged, InboxRead, RunState, runner_address
from pisub.record.journal import JournalReader
from pisub.record.layout import Layout
from pisub.record.lock import is_held
from pisub.record.model import JournalEvent, RunResult
from pisub.record.reader import RunView
from pisub.record.tree import children, descendants
from pisub.runs.cascade import pass_on
from pisub.runs.receipts import Receipt
from pisub.runs.steering import Mode

#: Files are read again after this long without a message: with a bus it is only the safety net.
_REREAD_S: Final = 1.0
_REREAD_WITHOUT_BUS_S: Final = 0.25
#: A stopping runner has this long to say that it read its inbox.
_ACKNOWLEDGE_S: Final = 1.0
#: A sender looks this often for a child's word (contract, runs 4.3).
_RECEIPT_POLL_S: Final = 0.05
#: Lines that a runner writes between its terminal status and its exit are waited for this long.
_LAST_LINES_S: Final = 2.0


class Run:
    """One run. Cheap to make; several may stand for the same run, in any process.

    Attributes:
        id: The run's id.
    """

    def __init__(
        self, run_id: str, *, layout: Layout, bus: Bus | None = None, settings: Settings | None = None
    ) -> None:
        self.id = run_id
        self._layout = layout
        self._bus = bus
        self._settings = settings
        self._clock = SystemClock()

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    async def view(self) -> RunView:
        """Read the run as its files say it now, repaired if its process died."""
        return await asyncio.to_thread(current_view, self._layout, self.id, now_ms=self._clock.wall_ms())

    async def events(self) -> AsyncIterator[JournalEvent]:
        """Yield the run's events from its first, each once and in order, until the run has ended.

        Leaving the loop early stops nothing. Cancellation passes.
        """
        reader = JournalReader(self._layout.run(self.id).events)
        async with self._wakes() as wakes:
            is_over = False
            while True:
                # The state is read before the lines: what was written before the end is then in what is read.
                view = await self.view()
                is_over = view.state.is_terminal and await self._has_let_go(wakes)
                events = await asyncio.to_thread(reader.read_new)
                for event in events:
                    yield event
                if is_over and not events:
                    return
                if not is_over:
                    wakes.watch(process_of(view))
                    await wakes.wait()

    async def result(self, timeout_s: float | None = None) -> RunResult:
        """Wait until the run has ended, and return how. A run that failed or was stopped is a result too.

        Args:
            timeout_s: How long to wait; None waits for ever. Nothing is stopped when it passes.

        Raises:
            WaitTimeoutError: The run had not ended in time.
        """
        if timeout_s is not None:
            arguments.seconds(timeout_s, "timeout_s")
        with awaiting(self._layout, [self.id]):
            return await self._ended(timeout_s)

    async def _ended(self, timeout_s: float | None) -> RunResult:
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        async with self._wakes() as wakes:
            while True:
                view = await self.view()
                if view.state.is_terminal and view.result is not None:
                    return view.result
                left = None if deadline is None else deadline - loop.time()
                if left is not None and left <= 0:
                    raise WaitTimeoutError(f"Run {self.id} is still {view.state} after {timeout_s:g} s.")
                wakes.watch(process_of(view))
                await wakes.wait(left)

    async def text(self) -> str:
        """Wait for the end and return the child's whole text.

        Raises:
            RunFailedError: The run did not complete; the message says why.
        """
        result = await self.result()
        if result.state is not RunState.COMPLETE:
            why = result.error or result.reason or "no reason was recorded"
            raise RunFailedError(f"Run {self.id} {result.state}: {why}", state=result.state, run_id=self.id)
        return await asyncio.to_thread(whole_output, self._layout, result)

    async def stop(self, reason: str = "", *, tree: bool = False) -> RunResult:
        """Stop the run and everything that it started, and wait until it has ended. Idempotent.

        A run that ended by itself first keeps that end. A runner that does not obey is killed some seconds after the
        run's grace and recorded as stopped. Runs that it started are stopped too (``ancestor-stop``), but not waited
        for; those that outlived it go on.

        Args:
            reason: Kept in the record.
            tree: Stop also what outlived the run, and wait for all of it.

        Raises:
            WaitTimeoutError: The process could be neither reached nor ended, for instance on another machine.
            RecordError: The disk is full. The message says whether the process was told all the same, by a signal.
        """
        arguments.text(reason, "reason", max_chars=MAX_REASON_CHARS)
        await self._require_control("stop this run")
        arguments.truth(tree, "tree")
        result = await self._stop(reason)
        if tree:
            await self._stop_below()
        return result

    async def children(self) -> list[RunView]:
        """Read the runs that this one started, oldest first, as they are now. Theirs are not among them."""
        return await asyncio.to_thread(
            lambda: [
                current_view(self._layout, each.run_id, now_ms=self._clock.wall_ms())
                for each in children(descendants(self._layout, self.id), self.id)
            ]
        )

    async def _stop_below(self) -> None:
        now_ms = self._clock.wall_ms()
        await asyncio.to_thread(pass_on, self._layout, self.id, "stop", now_ms=now_ms)
        below = await asyncio.to_thread(descendants, self._layout, self.id)
        runs = [Run(each.run_id, layout=self._layout, bus=self._bus, settings=self._settings) for each in below]
        await asyncio.gather(*(each._stop("") for each in runs))

    async def _stop(self, reason: str) -> RunResult:
        view = await self.view()
        if view.state.is_terminal:
            return await self.result(GIVE_UP_AFTER_S)
        try:
            await asyncio.to_thread(
                request_stop, self._layout, self.id, source="a program", reason=reason, now_ms=self._clock.wall_ms()
            )
        except OSError as refused:
            return await self._stop_by_signal(view, refused)
        await self.wake(view)
        grace_s = stop_grace_s(view)
        with contextlib.suppress(WaitTimeoutError):
            return await self.result(grace_s + FORCE_AFTER_S)
        await asyncio.to_thread(force_end, self._layout, await self.view(), now_ms=self._clock.wall_ms())
        return await self.result(GIVE_UP_AFTER_S - FORCE_AFTER_S)

    async def interrupt(self, reason: str = "") -> RunResult:
        """Have the run pause, and wait until it has ended: as ``paused``, and ``resume`` goes on with it.

        After an accepted stop or deadline it does nothing; a run that ends by itself first keeps that end. The result
        says what it was.

        Raises:
            RefusedError: The run does not work now, or its agent is a program. Nothing was changed.
            WaitTimeoutError: The runner did not obey in time. The request stands.
        """
        arguments.text(reason, "reason", max_chars=MAX_REASON_CHARS)
        await self._require_control("interrupt this run")
        view = await self.view()
        now_ms = self._clock.wall_ms()
        await asyncio.to_thread(request_interrupt, self._layout, view, source="a program", reason=reason, now_ms=now_ms)
        await self.wake(view)
        return await self.result(stop_grace_s(view) + GIVE_UP_AFTER_S)

    async def steer(
        self,
        message: str,
        mode: str | Mode = Mode.STEER,
        *,
        request_id: str | None = None,
        recover: bool = False,
        patience_s: float = STEER_PATIENCE_S,
    ) -> Receipt:
        """Send a message to the run's agent while it works, and wait a moment for its word.

        Delivered is what the agent took. A receipt with state ``pending`` is no failure: the agent has not looked yet,
        and the message stays where it will find it; ``failed`` means that it never will. Cancellation takes nothing
        back.

        Args:
            message: At most 128 KiB of UTF-8.
            mode: ``steer`` reaches the agent in the middle of its work, ``follow_up`` after this turn, ``auto`` not
                in the middle of a turn and else at once.
            request_id: Makes the call safe to repeat: one id is delivered once.
            recover: Where there is no word in time, pause the run and go on with it in a new one that is told the
                message (``receipt.replacement_run_id``). Never set it for a request of somebody else's.
            patience_s: How long to wait for a word.

        Raises:
            RefusedError: The run is over, or its agent takes no messages at all.
            InvalidArgumentError: The message, the id or the mode breaks a bound.
        """
        arguments.text(message, "message")
        arguments.seconds(patience_s, "patience_s")
        if request_id is not None:
            arguments.text(request_id, "request_id")
        await self._require_control("steer this run")
        view, request = await asyncio.to_thread(
            send_message,
            self._layout,
            self.id,
            message,
            now_ms=self._clock.wall_ms(),
            mode=mode_named(mode),
            request_id=request_id,
            source="a program",
        )
        await self.wake(view)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while True:
            receipt = await asyncio.to_thread(
                read_receipt, self._layout, self.id, request, now_ms=self._clock.wall_ms()
            )
            if is_settled(receipt):
                return receipt
            if loop.time() >= deadline:
                return await recover_message(self, self._layout, request) if recover else receipt
            await asyncio.sleep(_RECEIPT_POLL_S)

    async def resume(
        self,
        message: str,
        *,
        answers: Mapping[str, str] | None = None,
        attached: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> Run:
        """Go on with a run that has ended: a new run of the same agent, with this one's session. Returns it at once.

        Args:
            message: What the agent is told (``child.resume_message``).
            answers: To questions that this run got no answer to, by the question's text: asked again, they are
                answered at once and without a host.
            attached: Whether the new run ends with this process.
            environ: The new run's whole environment; None is this process's.

        Raises:
            RefusedError: It goes on, was stopped, has no session or no work time left, or another run goes on with it.
            LaunchError: The runner could not be started. The new run is recorded as failed.
        """
        arguments.text(message, "message")
        arguments.truth(attached, "attached")
        for field, given in (("answers", answers), ("environ", environ)):
            if given is not None:
                arguments.texts(given, field)
        settings = load_settings() if self._settings is None else self._settings
        request = ResumeRequest(
            run_id=self.id,
            message=message,
            answers=tuple((answers or {}).items()),
            attached=attached,
            environ=environ,
        )

        def submit_and_launch() -> str:
            require_control(self._layout, self.id, "resume this run")
            submission = submit_resume(settings, self._layout, request)
            launch_submitted(self._layout, submission, LocalLauncher(settings))
            return submission.spec.run_id

        run_id = await asyncio.to_thread(submit_and_launch)
        return Run(run_id, layout=self._layout, bus=self._bus, settings=self._settings)

    async def _require_control(self, what: str) -> None:
        await asyncio.to_thread(require_control, self._layout, self.id, what)

    async def _stop_by_signal(self, view: RunView, refused: OSError) -> RunResult:
        process = stop_by_signal(view, refused)
        try:
            return await self.result(stop_grace_s(view) + FORCE_AFTER_S)
        except (WaitTimeoutError, OSError) as error:
            raise unrecorded_end(self.id, process, refused) from error

    async def process(self) -> ProcessIdentity | None:
        """Return the runner's process; None while it has not started."""
        return process_of(await self.view())

    def _wakes(self) -> Wakes:
        return Wakes(self.id, bus=self._bus, reread_s=_REREAD_WITHOUT_BUS_S if self._bus is None else _REREAD_S)

    async def wake(self, view: RunView) -> None:
        """Tell the runner by message that its inbox changed, else by signal. It reads it by itself, only later."""
        if self._bus is not None and self._bus.is_connected:
            # Not connected yet, or no longer: whatever the answer is, the signal reaches it as well.
            with contextlib.suppress(PisubError):
                await self._bus.call(
                    runner_address(self.id),
                    InboxChanged(run_id=self.id),
                    InboxRead,
                    timeout_s=_ACKNOWLEDGE_S,
                    scope=view.spec.session_id,
                    idempotent=True,
                )
                return
        wake_by_signal(view)

    async def _has_let_go(self, wakes: Wakes) -> bool:
        """Wait, in bounds, until no runner holds the run's lock: then nothing more is appended."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LAST_LINES_S
        while is_held(self._layout.run(self.id).lock) and loop.time() < deadline:
            await wakes.wait(0.02)
        return True
