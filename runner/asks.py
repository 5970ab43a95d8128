"""One ask of a child, from its first call to the host to its one result: the rules, without files or messages.

The outcome files decide; what a host replies, and every nudge, only says when to read them. An ask is open until all
its questions have an outcome, or something ends it early: then each question without one gets one (create-once, so an
answer that was written a moment before still wins), and the result is computed from the winners.

Pure: no input or output. Time is monotonic seconds, passed in.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import assert_never

import msgspec

from pisub.protocol.checkpoint import AskResult, AskStatus
from pisub.protocol.limits import HOST_GRACE_S
from pisub.record.model import OutcomeKind, QuestionOutcome
from pisub.runs.spec import OnNoHost

#: An open ask looks at its files, and for a host, at least this often.
REREAD_S = 5.0
#: A call that met nobody although a host holds the role is made again after this long.
RETRY_S = 0.2

_MISSING_BECOMES = {
    AskStatus.TIMEOUT: OutcomeKind.EXPIRED,
    AskStatus.ERROR: OutcomeKind.FAILED,
}


class AskEvent(msgspec.Struct, frozen=True):
    """Base of what can happen to an ask."""


class Opened(AskEvent, frozen=True):
    """The ask is on disk."""


class HostReplied(AskEvent, frozen=True):
    """The host's result. Its answers are taken where no file has one: a host need not share our disk."""

    result: AskResult


class HostFailed(AskEvent, frozen=True):
    """The host answered the call with an error of its own."""

    message: str


class HostUnreached(AskEvent, frozen=True):
    """The call met nobody, or its host went while it was open."""


class RoleFound(AskEvent, frozen=True):
    """Who holds the role. ``vacated_s_ago`` is None where nobody ever held it, as far as the broker knows."""

    is_held: bool
    vacated_s_ago: float | None = None


class BrokerLost(AskEvent, frozen=True):
    """There is no connection to a broker, so nobody can be asked for now."""


class HostAppeared(AskEvent, frozen=True):
    """A host took the role, or the connection came back: call (again)."""


class OutcomesRead(AskEvent, frozen=True):
    """What the outcome files say, by question number, from 1."""

    outcomes: Mapping[int, QuestionOutcome]


class TakenBack(AskEvent, frozen=True):
    """The asker no longer wants to know."""

    reason: str


class WaitedEnough(AskEvent, frozen=True):
    """The time is over that the asker itself wanted to wait."""


class AskTick(AskEvent, frozen=True):
    """Time passed."""


#: What is heard of the host and of the way to it.
HostNews = HostReplied | HostFailed | HostUnreached | RoleFound | BrokerLost | HostAppeared
AnyAskEvent = HostNews | Opened | OutcomesRead | TakenBack | WaitedEnough | AskTick


class AskEffect(msgspec.Struct, frozen=True):
    """Base of what an ask can want done."""


class CallHost(AskEffect, frozen=True):
    """Call the role with the whole batch, as an idempotent call without a time limit."""


class FindHost(AskEffect, frozen=True):
    """Ask the broker who holds the role."""


class ReadOutcomes(AskEffect, frozen=True):
    """Read the outcome files, and say so by ``OutcomesRead``."""


class SaveAnswers(AskEffect, frozen=True):
    """Write the host's answers where no file has one (create-once), then read again."""

    result: AskResult


class Finish(AskEffect, frozen=True):
    """Give every question without an outcome this one, compute the result, write it, hand it over. Last effect."""

    status: AskStatus
    reason: str
    missing: OutcomeKind
    #: Whether a host may still show a dialog for it, and must be told.
    must_tell_host: bool


AnyAskEffect = CallHost | FindHost | ReadOutcomes | SaveAnswers | Finish


class _Host(enum.Enum):
    """What is known of the host."""

    CALLED = "called"  # a call is open
    SOUGHT = "sought"  # the broker was asked who it is
    AWAITED = "awaited"  # nobody is there; somebody may come
    DONE = "done"  # it replied


class AskMachine:
    """One ask. Not thread-safe.

    Args:
        count: How many questions.
        on_no_host: What happens when nobody holds the role.
    """

    def __init__(self, count: int, on_no_host: OnNoHost) -> None:
        self._count = count
        self._on_no_host = on_no_host
        self._host = _Host.AWAITED
        self._hint: tuple[AskStatus, str] | None = None
        self._reread_at: float | None = None
        self._retry_at: float | None = None
        self._no_host_at: float | None = None
        self._is_finished = False

    @property
    def is_finished(self) -> bool:
        """Whether ``Finish`` was given out."""
        return self._is_finished

    def next_deadline(self) -> float | None:
        """Return when to hand in an ``AskTick`` at the latest."""
        if self._is_finished:
            return None
        return min((at for at in (self._reread_at, self._retry_at, self._no_host_at) if at is not None), default=None)

    def handle(self, event: AnyAskEvent, now: float) -> list[AnyAskEffect]:
        """Take one event; return what is to be done, in order."""
        if self._is_finished:
            return []
        match event:
            case HostReplied() | HostFailed() | HostUnreached() | RoleFound() | BrokerLost() | HostAppeared():
                return self._hear(event, now)
            case Opened():
                self._reread_at = now + REREAD_S
                return self._call()
            case OutcomesRead(outcomes):
                return self._read(outcomes)
            case TakenBack(reason):
                return self._finish(AskStatus.CANCELLED, reason)
            case WaitedEnough():
                return self._finish(AskStatus.TIMEOUT, "The asker did not want to wait longer.")
            case AskTick():
                return self._tick(now)
            case _:
                assert_never(event)

    def _hear(self, event: HostNews, now: float) -> list[AnyAskEffect]:
        match event:
            case HostReplied(result):
                self._host = _Host.DONE
                self._hint = (result.status, result.reason)
                return [SaveAnswers(result)]
            case HostFailed(message):
                self._host = _Host.DONE
                self._hint = (AskStatus.ERROR, message)
                return [ReadOutcomes()]
            case HostUnreached():
                self._host = _Host.SOUGHT
                return [FindHost()]
            case RoleFound():
                return self._found(event, now)
            case BrokerLost():
                self._await_host(now, HOST_GRACE_S)
                return []
            case HostAppeared():
                # Also while the role is looked up: what the broker says of it then is older than this.
                return self._call() if self._host in (_Host.AWAITED, _Host.SOUGHT) else []
            case _:
                assert_never(event)

    def _call(self) -> list[AnyAskEffect]:
        self._host = _Host.CALLED
        self._retry_at = self._no_host_at = None
        return [CallHost()]

    def _found(self, event: RoleFound, now: float) -> list[AnyAskEffect]:
        if self._host is not _Host.SOUGHT:
            return []
        if event.is_held:
            self._host = _Host.AWAITED
            self._retry_at = now + RETRY_S
            return []
        ago = event.vacated_s_ago
        left = 0.0 if ago is None else HOST_GRACE_S - ago
        if self._on_no_host is OnNoHost.FAIL and left <= 0:
            return self._no_host()
        self._await_host(now, left)
        return []

    def _await_host(self, now: float, grace_s: float) -> None:
        if self._host is _Host.DONE:
            return
        self._host = _Host.AWAITED
        if self._on_no_host is OnNoHost.FAIL and self._no_host_at is None:
            self._no_host_at = now + grace_s

    def _tick(self, now: float) -> list[AnyAskEffect]:
        if self._no_host_at is not None and now >= self._no_host_at:
            return self._no_host()
        if self._retry_at is not None and now >= self._retry_at:
            return self._call()
        if self._reread_at is not None and now >= self._reread_at:
            self._reread_at = now + REREAD_S
            again = self._host is _Host.AWAITED and self._on_no_host is OnNoHost.WAIT
            return [ReadOutcomes(), *(self._call() if again else ())]
        return []

    def _read(self, outcomes: Mapping[int, QuestionOutcome]) -> list[AnyAskEffect]:
        spoiled = [each for each in outcomes.values() if each.kind is not OutcomeKind.ANSWERED]
        if len(outcomes) == self._count and not spoiled:
            return self._finish(AskStatus.OK, "")
        if self._hint is not None:  # the host is through with it: nothing more will come
            status, reason = self._hint
            if status is AskStatus.OK:  # it says ok, but the files do not have it all
                status, reason = AskStatus.ERROR, "The host said ok without an answer to every question."
            return self._finish(status, reason)
        return self._finish(_status_of(spoiled), spoiled[0].reason) if spoiled else []

    def _no_host(self) -> list[AnyAskEffect]:
        return self._finish(AskStatus.NO_HOST, "No host serves this session: nobody can be asked.")

    def _finish(self, status: AskStatus, reason: str) -> list[AnyAskEffect]:
        self._is_finished = True
        missing = _MISSING_BECOMES.get(status, OutcomeKind.CANCELLED)
        return [Finish(status, reason, missing, must_tell_host=self._host is _Host.CALLED)]


def compute_result(
    ask_id: str, count: int, outcomes: Mapping[int, QuestionOutcome], *, status: AskStatus, reason: str
) -> AskResult:
    """Return what the child gets. All questions answered is ``ok``, whatever was about to end the ask.

    Args:
        ask_id: The ask.
        count: How many questions.
        outcomes: The winning outcome of every question, by number from 1.
        status: How the ask ends where an answer is missing; ``ok`` is not believed then.
        reason: Why, for a person.
    """
    answers = tuple(
        each.answer if (each := outcomes.get(number)) is not None and each.kind is OutcomeKind.ANSWERED else None
        for number in range(1, count + 1)
    )
    if all(answer is not None for answer in answers):
        return AskResult(status=AskStatus.OK, answers=answers, ask_id=ask_id)
    if status is AskStatus.OK:
        status = _status_of([each for each in outcomes.values() if each.kind is not OutcomeKind.ANSWERED])
    return AskResult(status=status, answers=answers, reason=reason, ask_id=ask_id)


def _status_of(spoiled: list[QuestionOutcome]) -> AskStatus:
    kinds = {each.kind for each in spoiled}
    if OutcomeKind.FAILED in kinds:
        return AskStatus.ERROR
    if kinds & {OutcomeKind.DECLINED, OutcomeKind.EXPIRED}:
        return AskStatus.TIMEOUT_OR_CANCELLED
    return AskStatus.CANCELLED
