"""Histories of a broker and its clients, in which whatever can happen does, and no promise of delivery is broken."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.mailbox import Mailbox
from broker.state import State
from pisub.client.bus_answers import AnswerCache, Seen
from pisub.client.bus_core import BusCore
from tests.support.simulation.run import Histories, play_many, transcript

#: What the histories of one range may take. At a thousand a second on an idle machine that is some thousands.
_WITHIN_S = 7.0
_FIXED = 0
_ROOT = Path(__file__).parents[2]


def _fresh() -> int:
    """Return a base that is new with every change of broker or client, and the same until then.

    So every change meets histories that none before it met, and a suite that passed passes again. For histories
    without end there is ``python -m benchmarks simulation``.
    """
    sources = sorted([*(_ROOT / "broker").glob("*.py"), *(_ROOT / "pisub/client").glob("bus*.py")])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).digest()
    return 10**9 + int.from_bytes(digest[:5], "big")


#: A fault that is put in is found well within so many, which are long: the rarest needs a new broker and an old role.
_ENOUGH = 5_000
_STEPS = 80


def _shown(histories: Histories, base: int) -> str:
    return f"{histories.count} histories from {base}, {histories.per_s:.0f} a second: {histories.failed}"


@pytest.mark.parametrize("base", [_FIXED, _fresh()], ids=["fixed", "fresh"])
def test_no_history_breaks_a_promise(base: int) -> None:
    histories = play_many(range(base, base + 1_000_000), within_s=_WITHIN_S)
    assert histories.failed is None, _shown(histories, base)
    assert histories.count > 100, _shown(histories, base)


def _forgets_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnswerCache, "begin", lambda *_, **__: Seen.NEW)


def _tells_no_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(State, "tell_watchers", lambda *_: None)


def _takes_any_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(State, "holds", lambda *_: True)


def _leaves_callers_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(State, "fail_calls_to", lambda *_: None)


def _keeps_unwanted_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BusCore, "give_up", BusCore.forget_claim)


def _queues_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(self: Mailbox, stamp: bytes, frame: bytes, *, kind: int, priority: int) -> None:
        in_order(self, stamp, frame, kind=kind, priority=priority)
        self._others.rotate(1)

    in_order = Mailbox.put
    monkeypatch.setattr(Mailbox, "put", put)


@pytest.mark.parametrize(
    "put_in",
    [
        _forgets_what_ran,
        _tells_no_watcher,
        _takes_any_fence,
        _leaves_callers_waiting,
        _keeps_unwanted_roles,
        _queues_out_of_order,
    ],
)
def test_a_fault_that_is_put_in_is_found(
    put_in: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(monkeypatch)
    assert play_many(range(_ENOUGH), steps=_STEPS).failed is not None


def test_the_same_seed_gives_the_same_history() -> None:
    assert transcript(7) == transcript(7)
