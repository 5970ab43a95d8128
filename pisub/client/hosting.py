"""What a program has that hosts a session: its own questions, its place, and what it delegates."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pisub.asking import check_questions
from pisub.clock import SystemClock
from pisub.protocol.checkpoint import AskResult, Question

if TYPE_CHECKING:
    from pisub.client.api import Client
    from pisub.client.status import SessionStatus, StatusQuery
    from pisub.hosting.session import HostSession
    from pisub.hosting.supervisor import Supervisor
    from pisub.liveness import Release


class Host:
    """A session's host: it answers children's questions and receives completions. Made by ``host``.

    Attributes:
        client: The connection.
        external_runs: Work of others that is shown beside its runs.
        supervisor: What its children want to know from the session itself (``child.contact_supervisor``).
    """

    def __init__(self, client: Client, session: HostSession, supervisor: Supervisor) -> None:
        self.client = client
        self.supervisor = supervisor
        self._session = session
        self.spawn = client.spawn
        self.spawn_all = client.spawn_all
        self.delegate = client.delegate
        self.run = client.run
        self.runs = client.runs
        self.preflight = client.preflight
        self.register_agent = client.register_agent
        self.register_ceiling = client.register_ceiling
        self.wait = client.wait
        self.wait_until_idle = client.wait_until_idle
        self.wait_in_background = client.wait_in_background
        self.background_work = client.background_work
        self.questions = client.questions
        self.fleet = client.fleet
        self.session_is_live = client.session_is_live
        self.external_runs = session.external_runs

    @property
    def session_id(self) -> str:
        """The session that this host serves."""
        return self.client.session_id

    @property
    def is_host(self) -> bool:
        """Whether it holds the role now. Without, it waits for its turn and shows no dialogs."""
        return self._session.is_host

    async def ask(
        self,
        questions: Question | str | Sequence[Question | str],
        *,
        why: str = "",
        timeout_ms: int | None = None,
        question_timeout_ms: int | None = None,
        abort: asyncio.Event | None = None,
    ) -> AskResult:
        """Ask this host's own human, in the same queue as its children, and wait for what becomes of it.

        Nothing of it is on disk, and only this host's dialogs can answer it: whoever asks ends with the host that asks.
        What the environment does is a status of the result, never an exception: ``no-host`` where this process waits
        for its turn as the host, ``cancelled`` where the host ends first. Cancelling the waiting task takes the
        questions back.

        Args:
            questions: One question or a batch, shown one after another without another asker in between.
            why: What the answers are needed for; shown with the first dialog.
            timeout_ms: Time for the whole batch from its first dialog; None is the settings', 0 waits for ever.
            question_timeout_ms: Time for one dialog; likewise.
            abort: Set to take the questions back, and get ``cancelled`` with the answers so far.

        Raises:
            InvalidArgumentError: A question or a time is not allowed; ``field`` says which.
        """
        from pisub.hosting.requests import own_ask  # noqa: PLC0415  # who only delegates needs no host

        settings = self.client.settings
        ask = own_ask(
            check_questions(questions),
            self.session_id,
            why=why,
            asked_at=SystemClock().wall_ms(),
            timeout_ms=settings.ask_timeout_ms if timeout_ms is None else timeout_ms,
            question_timeout_ms=settings.question_timeout_ms if question_timeout_ms is None else question_timeout_ms,
        )
        return await self._session.ask(ask, abort)

    async def status(self, query: StatusQuery | None = None) -> SessionStatus:
        """Return the session's status, as ``client.status`` does; where nothing in particular is asked, from memory.

        Memory is used while this process holds the role, hears of its runs, and read them less than a second ago. Such
        an answer has no ``details``.

        Args:
            query: What is to be known; None is the whole session in short.

        Raises:
            InvalidArgumentError: It cannot be answered; ``field`` says why.
            UnknownRunError: There is no such run, or no such step of it.
            AmbiguousIdError: The beginning of an id fits several.
        """
        return await self._session.live.status(query)

    def announce_liveness(self, registry: Any, *, session_file: str | None = None) -> Release:
        """Tell whoever reclaims idle sessions, through its registry, when this one has work that is waited for.

        A registry of another version or shape, or one that fails, is left alone. Ends with this host.

        Args:
            registry: A ``pisub.liveness.LivenessRegistry``, or what is like one.
            session_file: The session's file, where its runs may be recorded under that.

        Returns:
            Takes the registration back; it may be called twice.
        """
        return self._session.liveness.announce(registry, session_file)

    async def wait_for_turn(self) -> None:
        """Return when it holds the role, or has held it: at once, unless the session had a host already."""
        await self._session.wait_for_turn()
