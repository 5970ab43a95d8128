import pytest

from pisub.errors import InvalidArgumentError, InvalidIdError
from pisub.ids import (
    ID_LENGTH,
    check_id,
    check_prefix,
    check_session_id,
    is_address,
    is_id,
    is_role,
    new_id,
    session_key,
)

HOSTILE = [
    "", "../x", "/etc/passwd", "x" * 5_000, "\0" * 26, "a" * 25 + "\n", "0" * 25 + "о", "0" * 25 + "I", "0" * 27,
    "0123456789abcdefghjkmnpq.r", "8" + "0" * 25, "０" * 26, "0" * 25 + "l",
]  # fmt: skip


def test_an_id_has_26_unambiguous_characters_and_sorts_by_time() -> None:
    early, late = new_id(at_ms=1_000), new_id(at_ms=1_001)
    assert len(early) == ID_LENGTH
    assert is_id(early)
    assert early < late


def test_ids_made_in_one_millisecond_differ() -> None:
    assert len({new_id(at_ms=5) for _ in range(1_000)}) == 1_000


def test_an_id_holds_its_time_in_its_first_ten_characters() -> None:
    assert new_id(at_ms=0)[:10] == "0000000000"
    assert new_id(at_ms=(1 << 48) - 1)[:10] == "7zzzzzzzzz"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_that_is_no_id_is_refused_and_quoted_short(text: str) -> None:
    assert not is_id(text)
    with pytest.raises(InvalidIdError) as caught:
        check_id(text)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isascii()


def test_a_prefix_is_folded_and_needs_four_characters() -> None:
    assert check_prefix("01AB") == "01ab"
    for text in ("01a", "", "01a/", "0" * 27, "01a\n"):
        with pytest.raises(InvalidIdError, match="at least 4"):
            check_prefix(text)


@pytest.mark.parametrize("text", ["", " a", "a ", "a\nb", "a\0", "x" * 257, "\ud800", "\u202eabc"])
def test_a_session_id_is_printable_and_bounded(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_session_id(text)
    assert caught.value.field == "session"


def test_a_session_id_never_becomes_a_path() -> None:
    key = session_key("../../etc/passwd")
    assert len(key) == 32
    assert set(key) <= set("0123456789abcdef")
    assert key != session_key("../../etc/passwe")


def test_addresses_and_roles_have_one_spelling() -> None:
    assert is_address("run:01j9z3")
    assert not any(map(is_address, ("", ":a", "a@b", "a b", "a\n", "ä", "a" * 129)))
    assert is_role("host")
    assert not any(map(is_role, ("", "Host", "1a", "a:b", "a" * 65)))
