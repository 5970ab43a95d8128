"""The library's front door: ``connect`` for programs that delegate, ``host`` for those that also talk to the human.

Delivery: a run is on disk before it is launched, its events and result are read from files, and messages only make that
fast. Losing the broker at any moment loses and doubles nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pisub import arguments
from pisub.client.answering import Questions
from pisub.client.background_work import BackgroundWork
from pisub.client.bus import Bus
from pisub.client.delegating import DelegatingSession
from pisub.client.draining import IdleOutcome, wait_until_idle
from pisub.client.fanout import Fanout, Task, requests_of
from pisub.client.hosting import Host
from pisub.client.launching import LAUNCH_SOURCE, budget_of, usage_budget_of, wishes_of
from pisub.client.runs import Run
from pisub.client.spawn import SpawnRequest, record_launch_error, spawn_blocking, submit_all
from pisub.client.views import current_views, live_views
from pisub.client.waiter import Waiter, WaitOutcome
from pisub.client.waiting import DEFAULT_TIMEOUT_MS
from pisub.clock import SystemClock
from pisub.config import Settings, load_settings
from pisub.errors import InvalidArgumentError, LaunchError
from pisub.hosting.dialogs import Dialogs
from pisub.ids import check_session_id, new_id
from pisub.launchers.local import LocalLauncher
from pisub.protocol.limits import MAX_DURATION_MS
from pisub.protocol.session import PeerKind
from pisub.record.layout import Layout
from pisub.record.reader import RunView, find_run
from pisub.record.subscriptions import WaitSubscription
from pisub.runs.ceilings import check_ceiling
from pisub.runs.spec import OnNoHost

if TYPE_CHECKING:
    from pisub.hosting.completions import CompletionHandler, CompletionsHandler
    from pisub.hosting.subscriptions import WaitHandler


class Client(DelegatingSession):
    """A connection to the broker in the name of one session. Made by ``connect``.

    Attributes:
        session_id: The session that this client's runs belong to.
        settings: What it was made with.
        layout: The record on disk.
        bus: The connection.
        background_work: Who else has work that ``wait`` takes into account.
        questions: What children want to know from the human, also for a program that is not the host.
    """

    def __init__(self, *, session_id: str, settings: Settings, layout: Layout, bus: Bus) -> None:
        super().__init__(session_id=session_id, settings=settings, layout=layout, bus=bus)
        self.background_work = BackgroundWork()
        self.questions = Questions(layout, bus, session_id)
        self._launcher = LocalLauncher(settings)
        self._fanout = Fanout(settings, layout, self._launcher)

    async def spawn(
        self,
        agent: str,
        task: str,
        cwd: Path | str | None = None,
        *,
        run_id: str | None = None,
        label: str = "",
        timeout_ms: int | None = None,
        on_no_host: OnNoHost = OnNoHost.FAIL,
        attached: bool = False,
        environ: Mapping[str, str] | None = None,
        ceiling: Mapping[str, Any] | None = None,
        tool_budget: Mapping[str, Any] | None = None,
        usage_budget: Mapping[str, Any] | None = None,
        **wishes: Any,
    ) -> Run:
        """Start an agent on a task in a process of its own, and return without waiting for it.

        Args:
            agent: Name of an agent, as seen from ``cwd``.
            task: The prompt; it is in no process's arguments or environment.
            cwd: The run's working directory; None is this process's.
            run_id: Makes the call safe to repeat: the same id never runs twice.
            label: A name for people.
            timeout_ms: Deadline of its work, without waits for a human; None is the settings' default, 0 is none.
            on_no_host: What its questions do when no host is there.
            attached: Whether the run ends with this process. Otherwise it goes on whatever happens here.
            environ: The run's whole environment; None is this process's.
            ceiling: What this run, and what it starts, may have at most; see ``register_ceiling``.
            tool_budget: ``hard``, and ``soft`` and ``block``: how many tool calls it may attempt.
            usage_budget: ``tokens`` and ``costUsd``, each with ``hard``: what it and all below it may use of models.
            **wishes: What else is wanted of the launch, as for ``preflight``.

        Raises:
            InvalidArgumentError: An argument is not allowed; ``field`` says which.
            UnknownAgentError: There is no such agent.
            UntrustedProjectError: The agent is a project's that runs code, and nobody has trusted it.
            RefusedError: A ceiling forbids it, or the launch needs what it cannot have; the code is a preflight's.
            LaunchError: The runner could not be started. The run is recorded as failed.
        """
        request = SpawnRequest(
            agent=agent,
            task=task,
            session_id=self.session_id,
            cwd=None if cwd is None else arguments.path(cwd, "cwd"),
            run_id=run_id,
            label=label,
            timeout_ms=timeout_ms,
            on_no_host=on_no_host,
            attached=attached,
            environ=environ,
            ceiling=None if ceiling is None else check_ceiling(ceiling, LAUNCH_SOURCE),
            tool_budget=None if tool_budget is None else budget_of(tool_budget),
            usage_budget=None if usage_budget is None else usage_budget_of(usage_budget),
            wishes=wishes_of(wishes),
        )
        return await self.launch(request)

    async def launch(self, request: SpawnRequest) -> Run:
        """As ``spawn``, with a request that is checked already."""
        given_up = threading.Event()
        try:
            # One piece of work in one thread: a cancellation between submission and launch would leave it queued.
            spec = await asyncio.to_thread(
                spawn_blocking,
                self.settings,
                self.layout,
                request,
                launcher=self._launcher,
                finder=self._finder,
                is_given_up=given_up.is_set,
            )
        except asyncio.CancelledError:
            given_up.set()
            raise
        return self._run_of(spec.run_id)

    async def spawn_all(
        self,
        tasks: Sequence[Task],
        *,
        concurrency: int | None = None,
        on_no_host: OnNoHost = OnNoHost.FAIL,
        attached: bool = False,
    ) -> list[Run]:
        """Start several runs, so many at a time, and return them in the same order without waiting for any.

        All of them are submitted, or none. They are queued at once and started in turn as others of the batch end; what
        waits when this client closes ends as ``never-started``.

        Args:
            tasks: At most ``parallel_max_tasks``.
            concurrency: How many of the batch go on at once; None is ``parallel_concurrency``. All batches of a client
                together keep to ``global_concurrency_limit``.
            on_no_host: What their questions do when no host is there.
            attached: Whether they end with this process.

        Raises:
            CapReachedError: They do not all fit; ``path`` names the first that does not. Nothing was started.
            InvalidArgumentError: An argument of one is not allowed; nothing was started.
            PisubError: As ``spawn``, for any of them.
        """
        width = self.settings.parallel_concurrency if concurrency is None else concurrency
        arguments.whole_number(width, "concurrency", lowest=1, highest=MAX_DURATION_MS)
        requests = requests_of(
            tasks, session_id=self.session_id, settings=self.settings, on_no_host=on_no_host, attached=attached
        )
        paths = [f"tasks[{number}]" for number in range(len(requests))]
        submitting = asyncio.ensure_future(
            asyncio.to_thread(submit_all, self.settings, self.layout, requests, paths=paths, finder=self._finder)
        )
        try:
            submissions = await asyncio.shield(submitting)
        except asyncio.CancelledError:
            # What is submitted is started or ended: else it would be queued for as long as this process lives.
            await asyncio.wait([submitting])
            if submitting.exception() is None:
                for each in submitting.result():
                    gone = LaunchError("its caller gave it up.")
                    await asyncio.to_thread(record_launch_error, self.layout, each.spec.run_id, gone)
            raise
        batch = [(each, self._run_of(each.spec.run_id)) for each in submissions]
        self._fanout.begin(batch, concurrency=width)
        return [run for _, run in batch]

    async def close(self) -> None:
        """Start no more runs of batches. Called by ``connect`` and ``host`` at their end."""
        await self._fanout.close()

    def _run_of(self, run_id: str) -> Run:
        return Run(run_id, layout=self.layout, bus=self.bus, settings=self.settings)

    def run(self, run_id: str) -> Run:
        """Return a run by its id, or by a prefix that fits one run of this session, else one of all.

        Raises:
            UnknownRunError: There is none.
            AmbiguousIdError: There are several.
        """
        arguments.text(run_id, "run_id")
        found = find_run(self.layout, run_id, session_id=self.session_id)
        return self._run_of(found)

    async def runs(self, *, include_finished: bool = False) -> list[RunView]:
        """Return this session's runs, newest first."""
        now_ms, mine = SystemClock().wall_ms(), self.session_id
        if not include_finished:
            return await asyncio.to_thread(live_views, self.layout, now_ms=now_ms, session_id=mine)
        return await asyncio.to_thread(
            current_views, self.layout, now_ms=now_ms, session_id=mine, include_finished=True
        )

    async def wait(
        self,
        run_id: str | None = None,
        *,
        is_all: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        stop_on_attention: bool = True,
        abort: asyncio.Event | None = None,
    ) -> WaitOutcome:
        """Wait for the first of this session's active runs to end, for all of them, or for one.

        Those that are active now are waited for, each by itself; what begins later changes nothing. A run that waits
        for a human ends the wait too. Nothing is stopped when the time passes or ``abort`` is set.

        Args:
            run_id: The one, by its id or a beginning of it that is unique in the session.
            is_all: All of them.
            timeout_ms: When to give up.
            stop_on_attention: Whether a run that is only quiet ends the wait.
            abort: Set to give up now.

        Raises:
            InvalidArgumentError: ``timeout_ms`` is not a time.
            UnknownRunError: The session has no such run.
            AmbiguousIdError: ``run_id`` begins several.
        """
        waiter = Waiter(self.layout, self.session_id, bus=self.bus, work=self.background_work)
        return await waiter.wait(
            run_id, is_all=is_all, timeout_ms=timeout_ms, stop_on_attention=stop_on_attention, abort=abort
        )

    async def wait_until_idle(
        self, *, timeout_ms: int = DEFAULT_TIMEOUT_MS, abort: asyncio.Event | None = None
    ) -> IdleOutcome:
        """Wait until nothing of this session goes on, also what begins meanwhile: for programs without a human.

        Ends early when a run has failed, or waits for a human. Nothing is stopped. See ``draining.wait_until_idle``.

        Raises:
            InvalidArgumentError: ``timeout_ms`` is not a time.
        """
        waiter = Waiter(self.layout, self.session_id, bus=self.bus, work=self.background_work)
        return await wait_until_idle(waiter, timeout_ms=timeout_ms, abort=abort)

    async def wait_in_background(
        self, run_id: str, *, timeout_ms: int = DEFAULT_TIMEOUT_MS, stop_on_attention: bool = True
    ) -> WaitSubscription:
        """Have the session's host told (``on_wait``) when a run has ended, needs somebody, or takes too long.

        Returns at once. It is told once, also by a host that comes later. Arguments and errors as for ``wait``.
        """
        waiter = Waiter(self.layout, self.session_id)
        return await waiter.subscribe(run_id, timeout_ms=timeout_ms, stop_on_attention=stop_on_attention)


@contextlib.asynccontextmanager
async def connect(
    session: str | None = None, settings: Settings | None = None, **overrides: Any
) -> AsyncGenerator[Client]:
    """Connect to the broker, starting one where none runs.

    Args:
        session: Session id; None is ``PISUB_SESSION``, else a fresh one.
        settings: Instead of reading them.
        **overrides: Single settings, by field name.

    Raises:
        BrokerUnavailableError: None runs and none could be started.
    """
    async with _connected(session, settings, overrides, kind=PeerKind.CLIENT) as client:
        yield client


@contextlib.asynccontextmanager
async def host(
    session: str | None = None,
    dialogs: Dialogs | None = None,
    on_completion: CompletionHandler | None = None,
    *,
    on_completions: CompletionsHandler | None = None,
    on_wait: WaitHandler | None = None,
    wait: bool = False,
    notify: bool | None = None,
    settings: Settings | None = None,
    **overrides: Any,
) -> AsyncGenerator[Host]:
    """Connect, and be the host of a session: its children's questions come to ``dialogs``, one at a time.

    Args:
        session: Session id; None is ``PISUB_SESSION``, else a fresh one.
        dialogs: How to ask the human; None asks in this terminal.
        on_completion: Called once for each end of a run of the session; again, marked ``redelivered``, only where an
            earlier host died during the call.
        on_completions: Called with groups of ends instead: each failure at once and alone, successes that come close
            together in one group, which says that it is quiet.
        on_wait: Called once with each wait in the background (``wait_in_background``) that is over.
        wait: Whether to wait for one's turn where the session has a host already.
        notify: Whether a human is called when a batch of questions comes, in the ways of the settings ``notify_*``;
            None does so where this terminal asks.
        settings: Instead of reading them.
        **overrides: Single settings, by field name.

    Raises:
        InvalidArgumentError: Both handlers were given.
        RoleTakenError: Another live process is the session's host, and ``wait`` is not set.
        BrokerUnavailableError: No broker runs and none could be started.
    """
    from pisub.hosting.notify import notifier_of  # noqa: PLC0415  # who only delegates needs no host
    from pisub.hosting.services import serving  # noqa: PLC0415  # likewise
    from pisub.hosting.session import HostSession, report_to_loop  # noqa: PLC0415  # likewise

    if on_completion is not None and on_completions is not None:
        raise InvalidArgumentError("Give on_completion or on_completions, not both.", field="on_completions")
    for field, handler in (
        ("on_completion", on_completion),
        ("on_completions", on_completions),
        ("on_wait", on_wait),
    ):
        if handler is not None and not callable(handler):
            raise InvalidArgumentError(f"{field} must be a function, not {type(handler).__name__}.", field=field)
    if dialogs is not None and not (hasattr(dialogs, "select") and hasattr(dialogs, "input")):
        raise InvalidArgumentError(
            f"dialogs needs the methods select and input; {type(dialogs).__name__} has not both.", field="dialogs"
        )
    is_notifying = dialogs is None if notify is None else notify
    if settings is None:
        settings, overrides = load_settings(**overrides), {}
    arguments.instance(settings, Settings, "settings")
    if dialogs is None:
        from pisub.hosting.terminal import TerminalDialogs  # noqa: PLC0415  # prompt_toolkit: only who asks there pays

        dialogs = TerminalDialogs(bell=settings.notify_bell)
    async with _connected(session, settings, overrides, kind=PeerKind.HOST) as client:
        notifier = notifier_of(client.settings, report_to_loop) if is_notifying else None
        host_session = HostSession(
            client.bus, client.layout, client.settings, client.session_id, dialogs, notifier=notifier
        )
        if on_completion is not None:
            host_session.on_completion(on_completion)
        if on_completions is not None:
            host_session.on_completions(on_completions)
        if on_wait is not None:
            host_session.on_wait(on_wait)
        async with serving(client, host_session, wait=wait) as supervisor:
            yield Host(client, host_session, supervisor)


@contextlib.asynccontextmanager
async def _connected(
    session: str | None, settings: Settings | None, overrides: Mapping[str, Any], *, kind: PeerKind
) -> AsyncGenerator[Client]:
    if settings is not None and overrides:
        raise InvalidArgumentError("Give settings or single overrides, not both.", field="settings")
    if settings is not None:
        arguments.instance(settings, Settings, "settings")
    if session is not None:
        arguments.text(session, "session")
    chosen = load_settings(**overrides) if settings is None else settings
    session_id = check_session_id(session or chosen.session or new_id())
    layout = Layout.of(chosen)
    layout.prepare()
    bus = await Bus.connect(chosen, kind=kind, session=session_id)
    client = Client(session_id=session_id, settings=chosen, layout=layout, bus=bus)
    try:
        yield client
    finally:
        try:
            await client.close()
        finally:
            await bus.close()
