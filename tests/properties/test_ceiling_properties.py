"""Ceilings against a naive model: whatever is registered, updated and disposed of, in whatever order."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pisub.config import Settings
from pisub.errors import InvalidArgumentError, RefusedError
from pisub.record.ceilings import CeilingHandle, active_ceiling, register_ceiling
from pisub.record.layout import Layout
from pisub.runs.ceilings import CapabilityCeiling, check_ceiling, intersect

NAMES = ("a", "b", "c", "d")
LISTS = st.lists(st.sampled_from(NAMES), max_size=4)
POLICIES = st.fixed_dictionaries(
    {}, optional={"allowedTools": LISTS, "allowedAgents": LISTS, "denyExtensions": st.booleans()}
).filter(bool)
SOURCES = st.sampled_from(["plan", "review", "ci"])
CEILINGS = st.builds(check_ceiling, POLICIES, SOURCES)


def allows(ceiling: CapabilityCeiling | None, name: str) -> tuple[bool, bool, bool]:
    """Return whether a tool, an agent and extensions are allowed."""
    if ceiling is None:
        return True, True, True
    return ceiling.allows_tool(name), ceiling.allows_agent(name), not ceiling.deny_extensions


@given(st.lists(CEILINGS | st.none(), max_size=6), st.randoms(use_true_random=False))
def test_the_order_and_the_grouping_of_ceilings_change_nothing(several: list[Any], random: Any) -> None:
    shuffled = list(several)
    random.shuffle(shuffled)
    at = random.randint(0, len(several))
    assert intersect(several) == intersect(shuffled)
    assert intersect(several) == intersect([intersect(several[:at]), intersect(several[at:])])
    assert intersect([*several, *several]) == intersect(several)


@given(st.lists(CEILINGS | st.none(), max_size=6), CEILINGS)
def test_one_more_ceiling_never_widens(several: list[Any], more: CapabilityCeiling) -> None:
    before, after = intersect(several), intersect([*several, more])
    for name in NAMES:
        for had, has in zip(allows(before, name), allows(after, name), strict=True):
            assert had or not has
        assert allows(after, name) == tuple(
            all(each) for each in zip(allows(before, name), allows(more, name), strict=True)
        )


class Registrations(RuleBasedStateMachine):
    """A session's registrations on disk, and a list of policies in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="psb-"))
        self.layout = Layout.of(Settings(home=self.home, fsync=False))
        self.layout.prepare()
        self.live: list[tuple[CeilingHandle, str, dict[str, Any]]] = []
        self.dead: list[CeilingHandle] = []

    def teardown(self) -> None:
        shutil.rmtree(self.home)

    @rule(source=SOURCES, policy=POLICIES)
    def register(self, source: str, policy: dict[str, Any]) -> None:
        self.live.append((register_ceiling(self.layout, "s", source, policy), source, policy))

    @precondition(lambda self: bool(self.live))
    @rule(data=st.data(), policy=POLICIES)
    def update(self, data: st.DataObject, policy: dict[str, Any]) -> None:
        at = data.draw(st.integers(0, len(self.live) - 1))
        handle, source, _ = self.live[at]
        handle.update(policy)
        self.live[at] = handle, source, policy

    @precondition(lambda self: bool(self.live))
    @rule(data=st.data(), policy=st.sampled_from([{}, {"allowedTools": "a"}, {"turns": 1}, None]))
    def update_wrongly(self, data: st.DataObject, policy: object) -> None:
        handle, _, _ = data.draw(st.sampled_from(self.live))
        try:
            handle.update(policy)
        except InvalidArgumentError:
            return
        raise AssertionError("it was taken")

    @precondition(lambda self: bool(self.live))
    @rule(data=st.data())
    def dispose(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.live) - 1))
        handle, _, _ = self.live.pop(at)
        handle.dispose()
        self.dead.append(handle)

    @precondition(lambda self: bool(self.dead))
    @rule(data=st.data())
    def use_a_disposed_one(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(self.dead))
        handle.dispose()
        try:
            handle.update({"denyExtensions": False})
        except RefusedError:
            return
        raise AssertionError("it was taken")

    @invariant()
    def what_holds_is_what_all_of_them_allow(self) -> None:
        found = active_ceiling(self.layout, "s")
        assert (found is None) is (not self.live)
        for name in NAMES:
            tools = all(name in policy.get("allowedTools", NAMES) for _, _, policy in self.live)
            agents = all(name in policy.get("allowedAgents", NAMES) for _, _, policy in self.live)
            extensions = not any(policy.get("denyExtensions", False) for _, _, policy in self.live)
            assert allows(found, name) == (tools, agents, extensions)
        assert found is None or found.sources == tuple(sorted({source for _, source, _ in self.live}))


TestRegistrations = Registrations.TestCase
TestRegistrations.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
