"""Plain JSON, patterns and schemas: each bound at its edge, and what a hostile schema gets."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pisub.errors import InvalidArgumentError
from pisub.protocol.limits import MAX_JSON_DEPTH, MAX_JSON_ENTRIES, MAX_SCHEMA_BYTES, MAX_STRUCTURED_BYTES
from pisub.schemas import PlainJsonError, StructuredSchema, check_schema, plain_json
from pisub.schemas.patterns import PatternError, longest_text, pattern_cost

VERDICT = {
    "type": "object",
    "properties": {"verdict": {"type": "string"}, "marks": {"type": "array", "items": {"type": "integer"}}},
    "required": ["verdict"],
    "additionalProperties": False,
}


def problems(schema: dict[str, Any], value: object) -> list[str]:
    try:
        StructuredSchema(check_schema(schema)).check(value)
    except ValueError as error:
        return str(error).splitlines()
    return []


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_plain_data_is_copied_and_nothing_stays_shared() -> None:
    shared = {"a": [1, 2.5, True, None, "ä"]}
    copy = plain_json((shared, shared), max_bytes=1_000)
    assert copy == [shared, shared]
    copy[0]["a"].append("changed")
    assert copy[1] == shared == {"a": [1, 2.5, True, None, "ä"]}


def test_minus_zero_becomes_zero() -> None:
    assert math.copysign(1, plain_json(-0.0, max_bytes=10)) == 1


class Sly(dict[str, Any]):
    def items(self) -> Any:
        raise AssertionError("a value's own methods are never called")


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        {1: "key"},
        {None: 1},
        object(),
        {1, 2},
        b"bytes",
        "\ud800",
        {"\udfff": 1},
        2**53,
        Sly(a=1),
        nested(MAX_JSON_DEPTH + 2),
        [None] * (MAX_JSON_ENTRIES + 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_json_data_is_invalid(value: object) -> None:
    with pytest.raises(PlainJsonError) as raised:
        plain_json(value, max_bytes=MAX_STRUCTURED_BYTES * 10)
    assert raised.value.reason == "invalid"


def test_a_cycle_is_invalid_and_ends() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(PlainJsonError):
        plain_json(cycle, max_bytes=1_000)


def test_the_bounds_are_of_depth_entries_and_encoded_bytes() -> None:
    assert plain_json(nested(MAX_JSON_DEPTH + 1), max_bytes=1_000)  # the outermost container is depth 0
    assert len(plain_json([0] * MAX_JSON_ENTRIES, max_bytes=MAX_STRUCTURED_BYTES)) == MAX_JSON_ENTRIES
    assert plain_json("ä" * 4, max_bytes=10) == "ä" * 4  # eight bytes and two quotes
    for value in ("ä" * 5, "x" * 11, ["\n" * 6]):
        with pytest.raises(PlainJsonError) as raised:
            plain_json(value, max_bytes=10)
        assert raised.value.reason == "too_large"


@pytest.mark.parametrize(
    ("pattern", "degree"),
    [
        (r"^[a-z]+$", 1),
        (r"[a-z]+$", 2),
        (r"^\d{4}-\d{2}-\d{2}$", 0),
        (r"^[\w.+-]+@[\w-]+\.[\w.-]+$", 3),
        (r"[]a\]]+", 2),
        (r"^(?P<a>a+)(?:b|c)x?$", 2),
        (r"^\(\[{2}a{,3}$", 0),
    ],
)
def test_a_pattern_costs_what_its_open_repetitions_cost(pattern: str, degree: int) -> None:
    assert pattern_cost(pattern).degree == degree
    assert longest_text(pattern_cost(pattern)) > 100


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|a)*b", "((a?){9})*", r"(a)\1", "(?=a)", "(?i)a", "(?>a)", "(?P=x)", "(", "a" * 1_025, "(a|b){65}"],
)
def test_a_pattern_without_a_bound_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        pattern_cost(pattern)


def test_what_can_be_tried_in_too_many_ways_leaves_no_text_to_try() -> None:
    assert longest_text(pattern_cost("(a?){50}a{50}")) == 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"verdict": "good", "marks": [1]}, []),
        ({}, ["$: 'verdict' is a required property"]),
        ({"verdict": 1}, ["$.verdict: 1 is not of type 'string'"]),
        ({"verdict": "x", "marks": [1, "a"]}, ["$.marks[1]: 'a' is not of type 'integer'"]),
        ({"verdict": "x", "more": 1}, ["$: not allowed here: 'more'"]),
        ({"verdict": math.nan}, ["$.verdict: nan is no JSON number"]),
    ],
)
def test_a_problem_names_its_place(value: object, expected: list[str]) -> None:
    assert problems(VERDICT, value) == expected


def test_at_most_eight_problems_are_told() -> None:
    assert len(problems({"items": {"type": "string"}}, list(range(100)))) == 8


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ([], "must be a JSON Schema object"),
        ("{}", "must be a JSON Schema object"),
        ({"type": "nope"}, "$.type"),
        ({"properties": {"a": {"minimum": "1"}}}, "$.properties.a.minimum"),
        ({"$ref": "https://example.org/schema"}, "not local"),
        ({"items": {"$ref": "other.json#/a"}}, "$.items.$ref"),
        ({"$dynamicRef": "#a"}, "not supported"),
        ({"unevaluatedProperties": False}, "not supported"),
        ({"items": {"pattern": "(a+)+"}}, "$.items.pattern"),
        ({"patternProperties": {"(a|b)*c": {}}}, "$.patternProperties"),
        ({"default": math.nan}, "no JSON number"),
        ({"description": "x" * MAX_SCHEMA_BYTES}, "bytes"),
        (nested(3), "must be a JSON Schema object"),
    ],
)
def test_a_bad_schema_is_refused_with_its_place(schema: object, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^invalid outputSchema: ") as raised:
        check_schema(schema)
    assert says in raised.value.message
    assert raised.value.field == "output_schema"


def test_a_schema_of_exactly_the_bound_is_taken() -> None:
    rest = len('{"description":""}')
    assert check_schema({"description": "x" * (MAX_SCHEMA_BYTES - rest)})


def test_local_references_hold_and_names_are_no_keywords() -> None:
    schema = {
        "$defs": {"name": {"type": "string"}},
        "properties": {"$ref": {"type": "integer"}, "pattern": {"$ref": "#/$defs/name"}, "more": {"$ref": "#"}},
        "const": {"$ref": "https://example.org"},
    }
    assert check_schema(schema) == schema
    schema.pop("const")
    assert problems(schema, {"$ref": 1, "pattern": "x", "more": {"pattern": "y"}}) == []
    assert problems(schema, {"more": {"more": {"pattern": 1}}}) == ["$.more.more.pattern: 1 is not of type 'string'"]


def test_references_that_lead_nowhere_back_or_apart_end_as_a_problem() -> None:
    assert "leads nowhere" in problems({"$ref": "#/nope"}, 1)[0]
    assert "without end" in problems({"$ref": "#"}, 1)[0]
    doubling: dict[str, Any] = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    schema = check_schema({"$defs": {**doubling, "a40": {}}, "$ref": "#/$defs/a0"})
    with pytest.raises(ValueError, match="takes more than 1000 steps"):
        StructuredSchema(schema, max_steps=1_000).check(1)


def test_a_text_too_long_for_its_pattern_is_a_problem_and_no_wait() -> None:
    assert problems({"pattern": "[a-z]+[0-9]+x"}, "a" * 100_000)[0].startswith("$: the text has 100000 characters")
    assert (
        "too long" in problems({"patternProperties": {"a+b+c": {}}, "additionalProperties": False}, {"a" * 9_999: 1})[0]
    )


def test_unique_items_are_compared_as_json_schema_does() -> None:
    schema = {"uniqueItems": True}
    assert problems(schema, [1, True, "1", [1], {"a": 1}, None, 0, False]) == []
    for twice in ([1, 1.0], [{"a": 1, "b": [2.0]}, {"b": [2], "a": 1}], [[], []]):
        assert problems(schema, twice)
    assert problems(schema, list(range(50_000))) == []


def test_a_value_over_its_bound_does_not_fit() -> None:
    assert problems({}, "x" * MAX_STRUCTURED_BYTES) == [
        f"$: it has {MAX_STRUCTURED_BYTES + 2} bytes as JSON; at most {MAX_STRUCTURED_BYTES} are allowed"
    ]
    assert problems({}, "x" * (MAX_STRUCTURED_BYTES - 2)) == []
