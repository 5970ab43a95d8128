"""Moments and ages as people type them."""

import argparse

import pytest

from pisub.cli.moments import Since, age_ms, since

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("90s", NOW_MS - 90_000),
        ("10m", NOW_MS - 600_000),
        ("2h", NOW_MS - 7_200_000),
        ("1d", NOW_MS - 86_400_000),
        ("0s", NOW_MS),
        ("2026-12-01T09:30:00Z", 1_796_117_400_000),
        ("2026-12-01T10:30+01:00", 1_796_117_400_000),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_an_age_counts_back_from_now_and_a_moment_is_a_moment(text: str, begin: int) -> None:
    assert since(text).begin(NOW_MS) == begin


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2026-12-01T09:30:00", "has no time zone"),
        ("2026-12-01", "has no time zone"),
        ("2026-02-30T00:00:00Z", "neither an age"),
        ("-5m", "neither an age"),
        ("5", "neither an age"),
        ("1e3s", "neither an age"),
        ("٥m", "neither an age"),
        ("yesterday", "neither an age"),
        ("", "neither an age"),
    ],
)
def test_what_is_neither_is_refused_with_the_way_out(text: str, says: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=says):
        since(text)


def test_an_age_has_six_digits_at_most() -> None:
    assert age_ms("999999d") == 999_999 * 86_400_000
    with pytest.raises(argparse.ArgumentTypeError):
        age_ms("1000000s")


def test_an_age_of_nothing_is_not_the_beginning_of_time() -> None:
    assert Since(age_ms=0).begin(NOW_MS) == NOW_MS
