"""The end of a runner's standard error, as it stands in the failure of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from pisub.record.tails import read_tail


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        ("", ""),
        ("one\ntwo\n", "one\ntwo"),
        ("".join(f"line {n}\n" for n in range(100)), "\n".join(f"line {n}" for n in range(70, 100))),
        ("x" * 1_000_000 + "end", "x" * 3_997 + "end"),
        ("\n".join(["y" * 999] * 40), "\n" + "\n".join(["y" * 999] * 4)),
    ],
    ids=["empty", "short", "30 lines at most", "4,000 characters at most", "both"],
)
def test_the_tail_is_the_end_and_bounded_however_long_the_log_is(tmp_path: Path, text: str, tail: str) -> None:
    log = tmp_path / "runner.stderr.log"
    log.write_text(text)
    assert len(tail) <= 4_000
    assert read_tail(log) == tail


def test_a_log_that_is_not_there_or_is_another_file_s_name_explains_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    assert (read_tail(tmp_path / "none"), read_tail(tmp_path / "link")) == ("", "")
