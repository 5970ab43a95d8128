"""Doubles for the tests of programs that use pisub: a human by script, fake time, a session without processes."""

from __future__ import annotations

from pisub.hosting.scripted import Asked, ScriptedAnswer, ScriptedHuman, load_answers
from pisub.testing.broker import MemoryBroker, broker
from pisub.testing.clock import FakeClock
from pisub.testing.fake_time import FakeTimeLoop, run
from pisub.testing.session import Ended, MemorySession, session

__all__ = [
    "Asked",
    "Ended",
    "FakeClock",
    "FakeTimeLoop",
    "MemoryBroker",
    "MemorySession",
    "ScriptedAnswer",
    "ScriptedHuman",
    "broker",
    "load_answers",
    "run",
    "session",
]
