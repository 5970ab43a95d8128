"""External runs, line by line of the contract (integrations 4, and 9 number 21)."""

from typing import Any

import msgspec
import pytest

from pisub.errors import InvalidArgumentError
from pisub.fleet.external import MAX_MOMENT, REGISTRY_KEY, ExternalRuns, key_of

RUN = {"id": "r", "sessionId": "s", "source": "shell", "label": "a build", "state": "running", "startedAt": 5}


def known(*runs: dict[str, Any]) -> ExternalRuns:
    registry = ExternalRuns()
    for run in runs:
        registry.register(RUN | run)
    return registry


def ids(registry: ExternalRuns, session_id: str = "s") -> list[str]:
    return [each.id for each in registry.snapshot(session_id)]


def refused(field: str, **fields: Any) -> str:
    registry = ExternalRuns()
    with pytest.raises(InvalidArgumentError) as caught:
        registry.register(RUN | fields)
    assert caught.value.field == field
    assert registry.records == {}
    return caught.value.message


def test_its_name_and_version_are_the_contract_s() -> None:
    assert (REGISTRY_KEY, ExternalRuns.version) == ("pi-subagents.external-runs.v2", 2)
    assert key_of("s", "r") == "s\0r"


def test_a_record_is_registered_changed_listed_and_removed_once() -> None:
    registry = known({})
    registry.update("s", "r", {"state": "completed", "endedAt": 9, "preview": "fine", "reportPath": "/no/such"})
    assert msgspec.to_builtins(registry.snapshot("s")) == (
        RUN | {"state": "completed", "endedAt": 9, "preview": "fine", "reportPath": "/no/such"},
    )
    assert registry.unregister("s", "r")
    assert not registry.unregister("s", "r")
    assert registry.snapshot("s") == ()


@pytest.mark.parametrize("field", ["id", "sessionId", "source", "label", "state", "startedAt"])
def test_a_field_that_must_be_there_is_named(field: str) -> None:
    registry = ExternalRuns()
    with pytest.raises(InvalidArgumentError, match=f"{field} is missing"):
        registry.register({key: value for key, value in RUN.items() if key != field})


@pytest.mark.parametrize("field", ["id", "sessionId"])
@pytest.mark.parametrize("value", ["a\nb", " a", "a ", "a\0b", "\x1b[31ma", "a\ufeff", "a  b"], ids=ascii)
def test_a_name_that_is_not_safe_to_show_is_refused(field: str, value: str) -> None:
    assert "display-safe" in refused(field, **{field: value})


@pytest.mark.parametrize(("field", "most"), [("id", 160), ("sessionId", 4_096)])
def test_a_name_that_is_too_long_is_refused(field: str, most: int) -> None:
    known({field: "x" * most})
    refused(field, **{field: "x" * (most + 1)})


@pytest.mark.parametrize(
    ("field", "most"),
    [("source", 160), ("label", 160), ("currentAction", 160), ("preview", 4_096), ("reportPath", 4_096),
     ("transcriptPath", 4_096)],
)  # fmt: skip
def test_a_text_is_made_clean_and_cut(field: str, most: int) -> None:
    (run,) = known({field: "\x1b[31mred \n" + "x" * 4_000}).snapshot("s")
    document = msgspec.to_builtins(run)
    assert document[field] == ("red " + "x" * 4_000)[:most]


@pytest.mark.parametrize("state", ["paused", "blocked", "complete", "", None, 1])
def test_a_state_that_is_none_is_refused(state: object) -> None:
    refused("state", state=state)


@pytest.mark.parametrize("field", ["startedAt", "updatedAt", "endedAt"])
@pytest.mark.parametrize("value", [-1, 1.0, True, "5", None, MAX_MOMENT + 1, 2**53 - 1])
def test_a_moment_that_is_none_is_refused(field: str, value: object) -> None:
    refused(field, **{field: value})


def test_an_unknown_field_is_named() -> None:
    assert "'cwd'" in refused("cwd", cwd="/")


@pytest.mark.parametrize("field", ["id", "sessionId", "source", "cwd"])
def test_an_update_cannot_touch_what_stays(field: str) -> None:
    registry = known({})
    with pytest.raises(InvalidArgumentError, match="unknown field"):
        registry.update("s", "r", {field: "x"})


def test_an_update_changes_all_or_nothing() -> None:
    registry = known({})
    with pytest.raises(InvalidArgumentError):
        registry.update("s", "r", {"label": "new", "state": "bad"})
    assert registry.snapshot("s")[0].label == "a build"


def test_there_is_one_of_an_id_in_a_session_and_one_in_each() -> None:
    registry = known({}, {"sessionId": "t"})
    with pytest.raises(InvalidArgumentError, match="already"):
        registry.register(RUN)
    with pytest.raises(InvalidArgumentError, match="no external run"):
        registry.update("u", "r", {})


def test_a_hundred_are_known_in_all() -> None:
    registry = known(*({"id": f"r{number}", "sessionId": f"s{number % 7}"} for number in range(100)))
    with pytest.raises(InvalidArgumentError, match="the most"):
        registry.register(RUN | {"id": "more"})
    assert registry.unregister("s0", "r0")
    registry.register(RUN | {"id": "more"})


def test_active_first_then_the_latest_then_by_id() -> None:
    registry = known(
        {"id": "old", "state": "completed", "endedAt": 7},
        {"id": "new", "state": "failed", "endedAt": 8, "updatedAt": 9},
        {"id": "b"},
        {"id": "a"},
        {"id": "late", "state": "queued", "updatedAt": 6},
    )
    assert ids(registry) == ["late", "a", "b", "new", "old"]


def test_twenty_are_shown() -> None:
    assert len(ids(known(*({"id": f"r{number}"} for number in range(30))))) == 20


def test_a_snapshot_fits_into_32_kib_and_loses_the_last() -> None:
    registry = known(*({"id": f"r{number:02}", "preview": "x" * 4_000} for number in range(12)))
    shown = registry.snapshot("s")
    assert [each.id for each in shown] == [f"r{number:02}" for number in range(len(shown))]
    assert len(msgspec.json.encode(shown)) <= 32_768 < len(msgspec.json.encode(shown)) + 4_200


class Hostile(dict[str, Any]):
    """Somebody's code."""

    def __getitem__(self, key: str) -> Any:
        pytest.fail("code of a record was called")

    def __iter__(self) -> Any:
        pytest.fail("code of a record was called")


@pytest.mark.parametrize(
    "bad",
    [{}, None, 3, Hostile(), RUN | {"state": "odd"}, RUN | {"id": "other"}],
    ids=["empty", "none", "3", "hostile", "state", "key"],
)
def test_a_bad_record_of_this_session_is_an_error_with_its_key_and_hurts_no_other_session(bad: object) -> None:
    registry = known({"id": "good"}, {"sessionId": "t"})
    registry.records[key_of("s", "r")] = bad
    with pytest.raises(InvalidArgumentError, match="External run s\0r: "):
        registry.snapshot("s")
    assert ids(registry, "t") == ["r"]
    told: list[str] = []
    shown = registry.snapshot("s", ignore_malformed=True, on_malformed_record=told.append)
    assert [each.id for each in shown] == ["good"]
    assert [each.startswith("External run s\0r: ") for each in told] == [True]
    assert ids(registry) == ["good"]


def test_a_record_that_another_put_there_and_is_one_is_shown() -> None:
    registry = known({})
    registry.records[key_of("s", "r")] = dict(RUN, label="\x1b[31mreplaced")
    registry.records[3] = "no key"  # type: ignore[index]
    assert [each.label for each in registry.snapshot("s")] == ["replaced"]
