"""Questions that ended without an answer, in runs that can be gone on with: what `pisub questions --all` adds."""

from __future__ import annotations

from pisub.cli.console import safe, safe_line
from pisub.errors import RefusedError
from pisub.protocol.base import Record
from pisub.record.atomic import exists
from pisub.record.layout import Layout
from pisub.record.reader import OnProblem, list_runs
from pisub.record.unanswered import list_unanswered
from pisub.runs.resumable import check_resumable


class UnansweredQuestion(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One of them. ``number`` is what ``pisub resume --answer`` takes, beside ``id`` and ``text``."""

    id: str
    number: int
    run_id: str
    state: str
    agent: str
    text: str
    options: tuple[str, ...]


def find_unanswered(layout: Layout, *, session_id: str | None, on_problem: OnProblem) -> list[UnansweredQuestion]:
    """Return them, newest run first. Runs that another one has gone on with are left out. Reads every run."""
    found: list[UnansweredQuestion] = []
    for view in list_runs(layout, session_id=session_id, include_finished=True, on_problem=on_problem):
        paths = layout.run(view.run_id)
        try:
            check_resumable(view)
        except RefusedError:
            continue
        if exists(paths.resumed(1)) or not exists(paths.session):
            continue
        found += [
            UnansweredQuestion(
                id=each.reference,
                number=number,
                run_id=view.run_id,
                state=view.state.value,
                agent=view.spec.agent.name,
                text=each.question.text,
                options=tuple(each.question.options),
            )
            for number, each in enumerate(list_unanswered(layout, view.run_id), start=1)
        ]
    return found


def unanswered_block(each: UnansweredQuestion) -> str:
    """Return one of them for people."""
    lines = [
        f"run {each.run_id} ({safe_line(each.agent)}, {each.state}), question {each.number}: no answer",
        *(f"  {line}" for line in safe(each.text).split("\n")),
        *(f"    {at}) {safe_line(option)}" for at, option in enumerate(each.options, start=1)),
    ]
    return "\n".join(lines)
