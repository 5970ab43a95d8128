"""Structured delegation against a naive model: messages in any order, repeated and lost, and a history that fills.

The model keeps no state but the log of what happened, and decides each question by reading all of it.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pisub.hosting import delegation_core as core
from pisub.hosting.delegation_core import DelegationCore, Launch, Publish, answer
from pisub.hosting.delegation_request import Attempt
from pisub.protocol.delegation import DelegationResponse, DelegationStarted

BOUND = 6
ATTEMPTS = [Attempt(f"r{request}", f"o{owner}", f"n{node}") for request in "123" for owner in "12" for node in "12"]
#: What may happen: a message that arrives (a lost one is not there, one repeated is there twice), a run that ends.
KINDS = ["request", "request", "invalid", "cancel", "end", "fail", "reset"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(ATTEMPTS)), max_size=80)

Log = list[tuple[str, Attempt]]


def payload(attempt: Attempt, **more: Any) -> dict[str, Any]:
    identity = {"requestId": attempt.request_id, "ownerRunId": attempt.owner_run_id, "nodeId": attempt.node_id}
    return {**identity, "agent": "a", "task": "t", "context": "fresh", "cwd": "/", "result": {"kind": "text"}, **more}


class Model:
    """Reads the log since the last reset."""

    def __init__(self) -> None:
        self.log: Log = []

    def has(self, kind: str, attempt: Attempt) -> bool:
        return (kind, attempt) in self.log

    def is_active(self, attempt: Attempt) -> bool:
        return self.has("started", attempt) and not self.has("settled", attempt)

    def waiting(self, log: Log) -> set[Attempt]:
        """Return cancellations that no request has met."""
        found: set[Attempt] = set()
        for kind, attempt in log:
            if kind == "cancel kept":
                found.add(attempt)
            elif kind == "cancel met":
                found.discard(attempt)
        return found

    def is_full(self) -> bool:
        """Tell whether either history was ever full."""
        return any(
            max(len(self.waiting(self.log[:end])), len({each for kind, each in self.log[:end] if kind == "settled"}))
            >= BOUND
            for end in range(len(self.log) + 1)
        )

    def step(self, kind: str, attempt: Attempt) -> list[str]:  # noqa: PLR0911  # a return for each thing that can come
        """Return what is to come of an event, as short words."""
        if kind in ("request", "invalid"):
            if self.is_active(attempt) or self.has("settled", attempt):
                return []
            if kind == "invalid":
                return self.answer("invalid_request", attempt, is_kept=not self.is_full())
            if attempt in self.waiting(self.log):
                self.log.append(("cancel met", attempt))
                return self.answer("cancelled", attempt)
            if self.is_full():
                return self.answer("unavailable_context", attempt, is_kept=False)
            if any(self.is_active(each) for each in ATTEMPTS if each.node == attempt.node):
                return self.answer("duplicate_node", attempt)
            self.log.append(("started", attempt))
            return ["started", "launch"]
        if kind == "cancel":
            if self.is_active(attempt):
                is_first = not self.has("aborted", attempt)
                self.log.append(("aborted", attempt))
                return ["abort"] if is_first else []
            if len(self.waiting(self.log)) < BOUND:
                self.log.append(("cancel kept", attempt))
            return []
        if kind == "reset":
            running = [each for each in ATTEMPTS if self.is_active(each)]
            self.log.clear()
            return ["abort"] * len(running)
        if not self.is_active(attempt):
            return []
        status = {"end": "completed", "fail": "failed"}[kind]
        return self.answer("cancelled" if self.has("aborted", attempt) else status, attempt)

    def answer(self, status: str, attempt: Attempt, *, is_kept: bool = True) -> list[str]:
        if is_kept:
            self.log.append(("settled", attempt))
        return [status]


def event(kind: str, attempt: Attempt) -> core.DelegationEvent:
    match kind:
        case "request":
            return core.RequestCame(payload(attempt))
        case "invalid":
            return core.RequestCame(payload(attempt, version=1))
        case "cancel":
            return core.CancelCame(dict(list(payload(attempt).items())[:3]))
        case "reset":
            return core.Reset()
        case _:
            return core.Ended(attempt, answer(attempt, {"end": "completed", "fail": "failed"}[kind]))


def word(effect: core.DelegationEffect) -> str:
    match effect:
        case Publish(DelegationStarted()):
            return "started"
        case Publish(DelegationResponse(status=status)):
            return status
        case Launch():
            return "launch"
        case _:
            return "abort"


@given(STEPS)
@settings(max_examples=300)
def test_whatever_order_messages_come_in_the_answers_are_the_model_s(steps: list[tuple[str, Attempt]]) -> None:
    machine, model = DelegationCore(history=BOUND), Model()
    for kind, attempt in steps:
        effects = machine.handle(event(kind, attempt))
        assert [word(each) for each in effects] == model.step(kind, attempt)


@given(STEPS, st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_each_attempt_is_launched_and_answered_at_most_once(steps: list[tuple[str, Attempt]], random: Any) -> None:
    machine = DelegationCore(history=1_000)
    launched: list[Attempt] = []
    answered: list[tuple[str, str | None, str | None]] = []
    copies = [each for each in steps if each[0] != "reset"] * 2
    random.shuffle(copies)
    ends = [("end", attempt) for attempt in ATTEMPTS]
    for kind, attempt in [*copies, *ends]:
        for effect in machine.handle(event(kind, attempt)):
            match effect:
                case Launch(delegation):
                    launched.append(delegation.attempt)
                case Publish(DelegationResponse() as response):
                    answered.append((response.request_id, response.owner_run_id, response.node_id))
                case _:
                    pass
    assert len(set(launched)) == len(launched)
    assert len(set(answered)) == len(answered)
    asked = {tuple(attempt) for kind, attempt in copies if kind in ("request", "invalid")}
    assert set(answered) == asked


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=10,
    )
    | st.dictionaries(
        st.sampled_from(
            [*payload(ATTEMPTS[0]), "toolBudget", "skill", "timeoutMs", "intercomBridge", "version", "tasks"]
        ),
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just({"kind": "text"}) | st.just(["a"]),
    )
)
@settings(max_examples=300)
def test_any_payload_is_an_answer_or_silence(found: Any) -> None:
    machine = DelegationCore()
    assert len(machine.handle(core.RequestCame(found))) <= 2
    assert machine.handle(core.CancelCame(found)) in ([], machine.handle(core.Reset()))
