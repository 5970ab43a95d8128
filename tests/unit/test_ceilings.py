"""Capability ceilings: what is one, how several meet, and what a registration is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pisub.client.launching import ceiling_for, require_schedulable
from pisub.config import Settings
from pisub.errors import InvalidArgumentError, PisubError, RecordCorruptError, RefusedError
from pisub.process import own_identity
from pisub.record.atomic import encode_record, write_new
from pisub.record.ceilings import CeilingRegistration, active_ceiling, register_ceiling
from pisub.record.layout import Layout
from pisub.runs.ceilings import CapabilityCeiling, check_ceiling, intersect, parse_stored, require_agent


def ceiling(source: str = "s", **policy: Any) -> CapabilityCeiling:
    return check_ceiling(policy, source)


def test_lists_are_trimmed_sorted_and_each_entry_is_there_once() -> None:
    found = check_ceiling({"allowedTools": [" b ", "a", "b"], "allowedAgents": ("Z", "a.b")}, " plan ")
    assert found == CapabilityCeiling(
        version=1, allowed_tools=("a", "b"), allowed_agents=("Z", "a.b"), deny_extensions=False, sources=("plan",)
    )


@pytest.mark.parametrize(
    ("policy", "source", "field"),
    [
        ({}, "s", "ceiling"),
        (None, "s", "ceiling"),
        ([], "s", "ceiling"),
        ({"allowTools": []}, "s", "ceiling"),
        ({"allowedTools": [], "sources": ["x"]}, "s", "ceiling"),
        ({"allowedTools": "read"}, "s", "allowedTools"),
        ({"allowedTools": None}, "s", "allowedTools"),
        ({"allowedTools": [""]}, "s", "allowedTools"),
        ({"allowedTools": ["a b"]}, "s", "allowedTools"),
        ({"allowedTools": ["a/b"]}, "s", "allowedTools"),
        ({"allowedTools": ["a\n"]}, "s", None),
        ({"allowedTools": ["ä"]}, "s", "allowedTools"),
        ({"allowedTools": [1]}, "s", "allowedTools"),
        ({"allowedAgents": ["a" * 129]}, "s", "allowedAgents"),
        ({"allowedAgents": ["a"] * 257}, "s", "allowedAgents"),
        ({"denyExtensions": 1}, "s", "denyExtensions"),
        ({"denyExtensions": None}, "s", "denyExtensions"),
        ({"denyExtensions": True}, " ", "source"),
        ({"denyExtensions": True}, "a\x07b", "source"),
        ({"denyExtensions": True}, "ä" * 129, "source"),
        ({"denyExtensions": True}, 5, "source"),
    ],
)
def test_what_is_no_ceiling_is_refused_by_its_field(policy: object, source: object, field: str | None) -> None:
    if field is None:  # white space around an entry is trimmed, whatever it is
        assert check_ceiling(policy, source).allowed_tools == ("a",)
        return
    with pytest.raises(InvalidArgumentError) as caught:
        check_ceiling(policy, source)
    assert caught.value.field == field


def test_the_bounds_themselves_are_allowed() -> None:
    entries = [f"{number:0128d}" for number in range(256)]
    assert len(check_ceiling({"allowedTools": entries}, "ä" * 128).allowed_tools or ()) == 256


@pytest.mark.parametrize(
    ("several", "expected"),
    [
        ([], None),
        ([None, None], None),
        ([ceiling(denyExtensions=False)], ((None, None, False), ("s",))),
        (
            [ceiling("review", allowedTools=["read", "grep", "write"]),
             ceiling("plan", allowedTools=["read", "grep"], denyExtensions=True)],
            ((("grep", "read"), None, True), ("plan", "review")),
        ),
        ([ceiling(allowedTools=["a"]), None, ceiling(allowedAgents=["x"])], ((("a",), ("x",), False), ("s",))),
        ([ceiling(allowedTools=["a"]), ceiling(allowedTools=["b"])], (((), None, False), ("s",))),
        ([ceiling(allowedTools=[]), ceiling(allowedTools=["b"])], (((), None, False), ("s",))),
        ([ceiling(allowedTools=[]), ceiling(allowedAgents=[])], (((), (), False), ("s",))),
    ],
)  # fmt: skip
def test_ceilings_meet_by_intersection(several: list[CapabilityCeiling | None], expected: Any) -> None:
    found = intersect(several)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert ((found.allowed_tools, found.allowed_agents, found.deny_extensions), found.sources) == expected


def test_agents_are_allowed_by_their_canonical_names_and_case_counts() -> None:
    require_agent(None, "x")
    require_agent(ceiling(allowedTools=[]), "x")
    limit = ceiling("plan", allowedAgents=["b", "a"])
    require_agent(limit, "a")
    for name in ("A", "c"):
        with pytest.raises(RefusedError) as caught:
            require_agent(limit, name)
        assert caught.value.code == "restricted_agent"
        assert caught.value.message.endswith(f"does not allow agent {name!r}. Allowed agents: a, b.")
    with pytest.raises(RefusedError, match=r"\(none\)"):
        require_agent(ceiling(allowedAgents=[]), "a")


def test_a_stored_ceiling_that_is_none_is_an_error_and_no_permission() -> None:
    sound = ceiling("plan", allowedTools=[])
    assert parse_stored(msgspec.json.decode(msgspec.json.encode(sound))) == sound
    stored = msgspec.to_builtins(sound)
    for change in ({"version": 2}, {"sources": "plan"}, {"sources": [1]}, {"allowedTools": "x"}, {"denyExtensions": 1}):
        with pytest.raises(msgspec.ValidationError):
            parse_stored(stored | change)
    for key in ("version", "sources", "denyExtensions"):
        with pytest.raises(msgspec.ValidationError):
            parse_stored({name: value for name, value in stored.items() if name != key})


@pytest.fixture
def layout(settings: Settings) -> Layout:
    found = Layout.of(settings)
    found.prepare()
    return found


def test_registrations_meet_update_whole_and_end_alone(layout: Layout) -> None:
    assert active_ceiling(layout, "s") is None
    first = register_ceiling(layout, "s", "plan", {"allowedTools": ["read", "grep"]})
    second = register_ceiling(layout, "s", "plan", {"allowedTools": ["read", "bash"]})
    assert active_ceiling(layout, "s") == ceiling("plan", allowedTools=["read"])
    assert active_ceiling(layout, "other") is None
    second.update({"denyExtensions": True})
    assert active_ceiling(layout, "s") == ceiling("plan", allowedTools=["grep", "read"], denyExtensions=True)
    with pytest.raises(InvalidArgumentError):
        second.update({"allowedTools": "all"})
    assert second.ceiling == ceiling("plan", denyExtensions=True)
    first.dispose()
    first.dispose()
    assert active_ceiling(layout, "s") == ceiling("plan", denyExtensions=True)
    with pytest.raises(RefusedError) as caught:
        first.update({"denyExtensions": False})
    assert caught.value.code == "disposed"
    second.dispose()
    assert active_ceiling(layout, "s") is None


def test_a_registration_that_is_no_ceiling_leaves_nothing(layout: Layout) -> None:
    for session, policy in (("s", {}), ("\0", {"denyExtensions": True})):
        with pytest.raises(PisubError):
            register_ceiling(layout, session, "plan", policy)
    assert active_ceiling(layout, "s") is None


def test_a_dead_owners_registration_is_over_and_removed_by_the_next(layout: Layout) -> None:
    gone = msgspec.structs.replace(own_identity(), start_ticks=1)
    register_ceiling(layout, "s", "live", {"allowedTools": ["a"]})
    directory = layout.session("s").ceilings
    left = CeilingRegistration(session_id="s", owner=gone, ceiling=ceiling("dead", allowedTools=[]))
    write_new(directory / "left.json", encode_record(left), fsync=False)
    assert active_ceiling(layout, "s") == ceiling("live", allowedTools=["a"])
    register_ceiling(layout, "s", "next", {"allowedAgents": ["x"]})
    assert not (directory / "left.json").exists()


def test_a_registration_that_cannot_be_read_lets_nothing_start(layout: Layout) -> None:
    register_ceiling(layout, "s", "plan", {"allowedTools": ["a"]})
    write_new(layout.session("s").ceilings / "odd.json", b'{"sessionId": "s"}', fsync=False)
    with pytest.raises(RecordCorruptError):
        ceiling_for(layout, "s", None)


def test_no_schedule_is_kept_while_a_ceiling_is_active_even_one_that_restricts_nothing(layout: Layout) -> None:
    require_schedulable(layout, "s")
    handle = register_ceiling(layout, "s", "plan", {"denyExtensions": False})
    with pytest.raises(RefusedError, match="Cannot persist a schedule while a capability ceiling is active") as caught:
        require_schedulable(layout, "s")
    assert caught.value.code == "ceiling_active"
    handle.dispose()
    require_schedulable(layout, "s")


def test_no_path_of_a_registration_is_open_to_others(layout: Layout) -> None:
    register_ceiling(layout, "s", "plan", {"allowedTools": ["a"]})
    directory: Path = layout.session("s").ceilings
    assert directory.stat().st_mode & 0o777 == 0o700
    assert [each.stat().st_mode & 0o777 for each in directory.iterdir()] == [0o600]
