"""What launchers and nurseries say to each other."""

import os

import msgspec
import pytest

from pisub.errors import EnvironmentTooLargeError, InvalidArgumentError, ProtocolError
from pisub.launchers.key import own_surroundings
from pisub.launchers.protocol import (
    LaunchAnswer,
    LaunchRequest,
    check_environment,
    decode_answer,
    decode_letter,
    decode_request,
    encode_letter,
    encode_packet,
    memory_file,
    request_for,
)
from pisub.process import ProcessIdentity
from pisub.protocol.limits import MAX_ENVIRONMENT_BYTES
from pisub.runs.spec import LaunchMessage

ODD = os.fsdecode(b"\xff\xfe=\n")


def message(**changes: object) -> LaunchMessage:
    plain = LaunchMessage(run_id="r", home="/h", runtime_dir="/r", environ={"A": "b"}, cwd="/")
    return msgspec.structs.replace(plain, **changes)


@pytest.mark.parametrize(
    "letter",
    [
        message(),
        message(environ={"ODD": ODD, "EMPTY": "", "ÜÑ": "€"}, cwd=f"/{ODD}", home=f"/{ODD}", runtime_dir=f"/x{ODD}"),
        message(sys_path=("", "/a", f"/{ODD}"), umask=0, nofile=(10, -1)),
    ],
)
def test_a_launch_message_arrives_as_it_was_sent_whatever_its_bytes(letter: LaunchMessage) -> None:
    assert decode_letter(encode_letter(letter)) == letter


def test_no_part_of_a_launch_message_decodes() -> None:
    data = encode_letter(message())
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_letter(data[:end])


def test_a_request_names_the_run_and_nothing_else_of_the_launch() -> None:
    request = request_for(message(environ={"TOKEN": "secret"}))
    assert request == LaunchRequest(1, "r", b"/h", b"/r")
    assert decode_request(encode_packet(request)) == request


def test_a_request_of_another_version_is_refused() -> None:
    with pytest.raises(ProtocolError, match="version 2"):
        decode_request(encode_packet(LaunchRequest(2, "r", b"/h", b"/r")))


@pytest.mark.parametrize(
    "answer", [LaunchAnswer(process=ProcessIdentity(pid=3, start_ticks=9)), LaunchAnswer(code="c", message="m")]
)
def test_an_answer_is_a_process_or_a_reason(answer: LaunchAnswer) -> None:
    assert decode_answer(encode_packet(answer)) == answer


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01", b"[]", b"\x81\xa7version\xa1x"])
def test_other_bytes_are_a_protocol_error(data: bytes) -> None:
    for decode in (decode_request, decode_letter):
        with pytest.raises(ProtocolError):
            decode(data)


@pytest.mark.parametrize("environ", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}])
def test_what_no_process_can_have_in_its_environment_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_environment(environ)
    assert caught.value.field == "environ"


def test_an_environment_over_the_bound_is_refused_and_one_at_it_is_not() -> None:
    most = MAX_ENVIRONMENT_BYTES - len("A") - 2
    check_environment({"A": "x" * most})
    with pytest.raises(EnvironmentTooLargeError) as caught:
        check_environment({"A": "x" * (most + 1)})
    assert caught.value.code == "environment_too_large"


def test_a_memory_file_holds_what_was_written_and_has_no_name() -> None:
    descriptor = memory_file(b"abc" * 100_000)
    try:
        assert os.pread(descriptor, 1_000_000, 0) == b"abc" * 100_000
        assert os.fstat(descriptor).st_nlink == 0
    finally:
        os.close(descriptor)


def test_the_key_is_the_same_for_the_same_surroundings() -> None:
    assert own_surroundings().key() == own_surroundings().key()


@pytest.mark.parametrize(
    "change",
    [
        {"executable": "/other/python"},
        {"prefix": "/other"},
        {"version": "9"},
        {"files": "0"},
        {"flags": (1,)},
        {"encoding": "ascii"},
        {"interpreter": {"LD_PRELOAD": "x.so"}},
        {"hard_limits": {}},
        {"user": (1, 2)},
        {"cgroup": "0::/other"},
        {"namespaces": {"pid": "pid:[1]"}},
    ],
)
def test_the_key_differs_with_all_that_a_fork_inherits_for_good(change: dict[str, object]) -> None:
    mine = own_surroundings()
    assert msgspec.structs.replace(mine, **change).key() != mine.key()


def test_pythonpath_is_not_part_of_the_key_and_loader_variables_are(monkeypatch: pytest.MonkeyPatch) -> None:
    before = own_surroundings().key()
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    assert own_surroundings().key() == before
    monkeypatch.setenv("LD_LIBRARY_PATH", os.fsdecode(b"/odd\xff"))
    assert own_surroundings().key() != before
