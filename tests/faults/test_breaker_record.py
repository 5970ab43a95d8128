"""What lies in the place of a file of the record is refused by name, and hides and holds up nothing but itself."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pisub.config import Settings
from pisub.errors import InvalidArgumentError, PisubError, RecordError, UnsafePathError
from pisub.ids import new_id
from pisub.process import own_identity
from pisub.protocol.checkpoint import Answer, Question
from pisub.record.atomic import exists, read_bytes
from pisub.record.layout import Layout
from pisub.record.lock import RunLock, is_held
from pisub.record.model import AskRecord, OutcomeKind, QuestionOutcome
from pisub.record.questions import close_open_asks, list_open_asks, open_ask, record_outcome
from pisub.record.reader import list_runs
from pisub.runs.reconcile import reconcile_all
from runner.enforcer import enforce_stop
from tests.support.runner_runs import python_runner, submit


def bind(path: Path) -> None:
    """Put a Unix socket there; the name must be short, hence the directory."""
    with socket.socket(socket.AF_UNIX) as made:
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            made.bind(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)


STRANGERS: dict[str, Callable[[Path], None]] = {
    "directory": lambda path: path.mkdir(),
    "symlink": lambda path: path.symlink_to("/nonexistent"),
    "fifo": os.mkfifo,
    "socket": bind,
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_whatever_has_a_file_s_name_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    tmp_path.chmod(0o700)
    path = tmp_path / "file"
    STRANGERS[kind](path)
    looks: tuple[Callable[[Path], object], ...] = (read_bytes, is_held, RunLock.acquire)
    for look in looks:
        with pytest.raises(UnsafePathError, match=str(path)):
            look(path)


def test_a_run_that_the_system_will_not_let_us_read_hides_no_other(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout.of(settings)
    specs = [submit(settings, python_runner(tmp_path, ""), cwd=tmp_path) for _ in range(3)]
    broken = layout.run(specs[1].run_id).spec.name, layout.run(specs[1].run_id).dir.stat().st_ino
    real_open = os.open

    def failing_open(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None and (path, os.fstat(dir_fd).st_ino) == broken:
            raise OSError(5, "Input/output error", path)
        return real_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", failing_open)
    problems: dict[str, PisubError] = {}
    views = list_runs(layout, on_problem=problems.__setitem__)
    assert {view.run_id for view in views} == {specs[0].run_id, specs[2].run_id}
    assert set(problems) == {specs[1].run_id}
    assert isinstance(problems[specs[1].run_id], RecordError)


def test_a_damaged_ask_does_not_hold_up_the_end_of_its_run(settings: Settings, tmp_path: Path) -> None:
    layout = Layout.of(settings)
    spec = submit(settings, python_runner(tmp_path, ""), cwd=tmp_path)
    asks = [ask_of(layout, spec.run_id) for _ in range(2)]
    damaged = layout.run(spec.run_id).ask(asks[0]).dir
    damaged.rename(tmp_path / "elsewhere")
    damaged.touch()
    assert close_open_asks(layout, spec.run_id, reason="over", at=1) == 2
    assert [exists(layout.open_asks / each) for each in asks] == [False, False]
    assert list_open_asks(layout) == []


def test_an_answer_that_is_no_text_is_refused_and_the_question_stays_open(settings: Settings, tmp_path: Path) -> None:
    layout = Layout.of(settings)
    spec = submit(settings, python_runner(tmp_path, ""), cwd=tmp_path)
    ask_id = ask_of(layout, spec.run_id)
    answer = Answer(value="half \ud800", by="cli", at=1)
    outcome = QuestionOutcome(ask_id=ask_id, number=1, kind=OutcomeKind.ANSWERED, answer=answer, at=1)
    with pytest.raises(InvalidArgumentError) as caught:
        record_outcome(layout, spec.run_id, outcome)
    assert caught.value.field == "answer"
    assert [view.open_numbers for view in list_open_asks(layout)] == [(1,)]


def ask_of(layout: Layout, run_id: str) -> str:
    """Open an ask of one question and return its id."""
    ask_id = new_id()
    record = AskRecord(
        ask_id=ask_id,
        run_id=run_id,
        session_id="a-session",
        agent="tester",
        questions=(Question("Which?"),),
        asked_at=1,
        asker=own_identity(),
    )
    assert open_ask(layout, record)
    return ask_id


def test_what_cannot_be_looked_at_is_not_taken_for_missing(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout.of(settings)
    spec = submit(settings, python_runner(tmp_path, ""), cwd=tmp_path)
    forbidden = layout.run(spec.run_id)
    real_lstat = Path.lstat

    def failing_lstat(path: Path) -> os.stat_result:
        if forbidden.dir in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return real_lstat(path)

    monkeypatch.setattr(Path, "lstat", failing_lstat)
    with pytest.raises(PermissionError):
        exists(forbidden.spec)
    problems: dict[str, PisubError] = {}
    assert reconcile_all(layout, now_ms=1, on_problem=problems.__setitem__) == []
    assert set(problems) == {spec.run_id}
    assert enforce_stop(forbidden, own_identity(), now_ms=1) is False
