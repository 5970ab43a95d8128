import inspect

import pytest

from pisub import errors
from pisub.cli.exits import MEANINGS, Exit, exit_for_error, exit_for_run, help_table, markdown_table
from pisub.errors import PisubError, UntrustedProjectError
from pisub.protocol.runs import RunState


def test_every_code_has_a_meaning_and_a_row_in_both_tables() -> None:
    assert set(MEANINGS) == set(Exit)
    assert len(help_table().splitlines()) == len(Exit) + 1
    assert len(markdown_table().splitlines()) == len(Exit) + 2


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        (RunState.COMPLETE, None, Exit.OK),
        (RunState.FAILED, "agent-error", Exit.FAILED),
        (RunState.FAILED, "timeout", Exit.TIMED_OUT),
        (RunState.STOPPED, None, Exit.STOPPED),
        (RunState.REJECTED, None, Exit.FAILED),
        (RunState.RUNNING, None, Exit.NOT_FINISHED),
        (RunState.QUEUED, None, Exit.NOT_FINISHED),
        (RunState.PAUSED, None, Exit.NOT_FINISHED),
    ],
)
def test_the_exit_code_follows_the_run(state: RunState, reason: str | None, code: Exit) -> None:
    assert exit_for_run(state, reason=reason) is code


def test_no_error_of_ours_ends_a_command_with_0_or_as_a_bug() -> None:
    kinds = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, PisubError)]
    codes = {kind: exit_for_error(kind("why")) for kind in kinds}
    assert not {kind for kind, code in codes.items() if code in {Exit.OK, Exit.INTERNAL}}
    assert codes[UntrustedProjectError] is Exit.UNTRUSTED
