"""Doubles for the tests of programs that use pisub: a human that follows a script, and a clock that is set by hand."""

from __future__ import annotations

from pisub.hosting.scripted import Asked, ScriptedAnswer, ScriptedHuman, load_answers
from pisub.testing.clock import FakeClock

__all__ = ["Asked", "FakeClock", "ScriptedAnswer", "ScriptedHuman", "load_answers"]
