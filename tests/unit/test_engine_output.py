"""Output of a child program: bounded files, and a text that is small or in a file."""

import hashlib
from pathlib import Path

from pisub.engines.output import BoundedLog, ResultText


def test_a_log_takes_what_fits_and_says_what_is_missing(tmp_path: Path) -> None:
    log = BoundedLog(str(tmp_path / "log"), 5)
    for piece in (b"abc", b"defg", b"h"):
        log.write(piece)
    assert (log.is_full, log.lost_bytes) == (True, 3)
    log.close()
    assert (tmp_path / "log").read_bytes() == b"abcde\n[pisub: 3 more bytes of output were not kept]\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_small_text_makes_no_file(tmp_path: Path) -> None:
    text = ResultText(str(tmp_path / "result"), preview=5, limit=100)
    text.write(b"abc")
    text.write(b"de")
    assert text.finish() == ("abcde", "", 0, "")
    assert list(tmp_path.iterdir()) == []


def test_a_larger_text_is_whole_in_its_file_and_its_beginning_here(tmp_path: Path) -> None:
    path = tmp_path / "result"
    text = ResultText(str(path), preview=5, limit=8)
    for piece in (b"abc", b"def", b"ghijk", b"l"):
        text.write(piece)
    assert text.finish() == ("abcde", str(path), 8, hashlib.sha256(b"abcdefgh").hexdigest())
    assert path.read_bytes() == b"abcdefgh"
