"""Going on with a run that has ended: a new run of the same agent, with the session of the old one.

Owns the refusals, in their order, and the claim that keeps two from going on with one run at once. No loop, no broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from pisub.agents.definition import may_ask
from pisub.agents.discovery import AgentFinder
from pisub.asking import chosen_value
from pisub.client.caller import asking_run
from pisub.client.launching import ceiling_for, resolve_launch
from pisub.client.spawn import Submission, launch_message
from pisub.client.views import current_view
from pisub.clock import SystemClock
from pisub.config import Settings, outer_depth
from pisub.errors import InvalidArgumentError, LockBusyError, RecordError, RefusedError, UnknownRunError
from pisub.ids import new_id
from pisub.preflight.plan import Wishes
from pisub.process import own_identity
from pisub.protocol.checkpoint import Answer
from pisub.protocol.limits import MAX_STEER_BYTES
from pisub.record.atomic import encode_record, exists, read_record, write_new
from pisub.record.dirs import make_dir
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.reader import RunView, read_run
from pisub.record.sessions_of_runs import ResumeClaim, continue_session, read_session
from pisub.record.submit import submit_run
from pisub.record.tree import count_charged
from pisub.record.unanswered import Unanswered, list_answered, list_unanswered, question_key
from pisub.runs.ceilings import CapabilityCeiling
from pisub.runs.lineage import check_depth
from pisub.runs.resumable import check_resumable
from pisub.runs.spec import RunSpec
from pisub.session_file import AnySessionLine, SessionAnswer, SessionHead
from pisub.utf8 import is_utf8

#: Another resume, or a reader's repair, holds the lock for milliseconds; who holds it longer is at work.
_LOCK_WAIT_S: Final = 2.0
#: Who gave an answer that came with a resume.
_BY: Final = "resume"


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants gone on with.

    Attributes:
        run_id: The run that has ended.
        message: What its agent is told.
        session_id: The caller's session, where only runs of that one may be resumed; None does not look.
        answers: To questions that the run got no answer to: by the question's text, its number among them, or its id.
        attached: Whether the new run ends with this process.
        environ: The new run's whole environment; None is the caller's.
        wishes: What else is wanted of the launch.
    """

    run_id: str
    message: str
    session_id: str | None = None
    answers: Sequence[tuple[str, str]] = ()
    attached: bool = False
    environ: Mapping[str, str] | None = None
    wishes: Wishes = Wishes()


def submit_resume(
    settings: Settings, layout: Layout, request: ResumeRequest, *, finder: AgentFinder | None = None
) -> Submission:
    """Check a request and write it down as a new run. Nothing is charged for it but the work time that was left.

    Raises:
        UnknownRunError: There is no such run, or it is another session's; code ``gone`` where it was removed as old.
        RecordCorruptError: Its spec or its session file does not parse.
        UnsafePathError: Its session file is a symlink or no regular file.
        RefusedError: It cannot be resumed; the code says why: ``run_stopped``, ``run_not_ended``, ``run_rejected``,
            ``resume_unsupported``, ``session_missing``, ``agent_changed``, ``budget_exhausted``, ``depth_exceeded``,
            ``session_in_use``, or a preflight's where a ceiling forbids it.
        LockBusyError: Another process works on its record.
        InvalidArgumentError: The message or an answer is not allowed, or its directory is gone.
        UntrustedProjectError: Its agent is a project's that nobody has trusted as it is now.
    """
    _checked_message(request.message)
    source = current_view(layout, request.run_id, now_ms=SystemClock().wall_ms())
    if request.session_id is not None and source.spec.session_id != request.session_id:
        raise UnknownRunError(f"There is no run {request.run_id} in this session.")
    check_resumable(source)
    _session_of(layout, source.run_id)
    if not Path(source.spec.cwd).is_dir():
        raise InvalidArgumentError(f"The run's working directory {source.spec.cwd} does not exist.", field="cwd")
    spec = _spec(settings, layout, finder or AgentFinder(settings), source, request)
    answers = match_answers(list_unanswered(layout, source.run_id), request.answers)
    at = spec.submitted_at
    given = tuple(
        SessionAnswer(question=each.question, answer=Answer(value=value, by=_BY, at=at)) for each, value in answers
    )
    layout.prepare()
    paths = layout.run(source.run_id)
    try:
        lock = RunLock.acquire(paths.lock, wait_s=_LOCK_WAIT_S)
    except FileNotFoundError:
        read_run(layout, source.run_id)  # says that it was removed
        raise
    if lock is None:
        raise LockBusyError(f"Run {source.run_id} is being worked on by another process: try again in a moment.")
    with lock:
        # Read under the lock: who removes old runs takes it too.
        earlier, lines = _session_of(layout, source.run_id)
        _claim(layout, source.run_id, spec)
        given = (*unnoted_answers(layout, source.run_id, lines), *given)
        make_dir(layout.run(spec.run_id).dir, fsync=layout.fsync)
        continue_session(layout.run(spec.run_id), spec, earlier, answers=given)
        submit_run(layout, spec)
    return Submission(spec=spec, message=launch_message(settings, spec, request.environ), needs_launch=True)


def match_answers(unanswered: Sequence[Unanswered], answers: Sequence[tuple[str, str]]) -> list[tuple[Unanswered, str]]:
    """Return which question each answer is for, and the value that it means.

    Raises:
        InvalidArgumentError: It names none of them, or two name one, or the value is no answer to it.
    """
    found: dict[str, tuple[Unanswered, str]] = {}
    for name, text in answers:
        each = _question_named(unanswered, name)
        if each.reference in found:
            raise InvalidArgumentError(
                f"Two answers are for the question {each.question.text[:80]!a}.", field="answers"
            )
        found[each.reference] = each, chosen_value(each.question, text)
    return list(found.values())


def remaining_ms(source: RunView) -> int | None:
    """Return the work time that a run had left; None without a deadline."""
    if source.spec.timeout_ms is None:
        return None
    left = None if source.status is None else source.status.remaining_ms
    return source.spec.timeout_ms if left is None else left


def unnoted_answers(layout: Layout, run_id: str, lines: Sequence[AnySessionLine]) -> tuple[SessionAnswer, ...]:
    """Return the answers that humans gave to a run which died before it wrote them into its session."""
    heads = [at for at, line in enumerate(lines) if isinstance(line, SessionHead)]
    noted = Counter(
        question_key(line.question)
        for line in lines[heads[-1] :]
        if isinstance(line, SessionAnswer) and line.answer.by != _BY
    )
    found: list[SessionAnswer] = []
    for question, answer in list_answered(layout, run_id):
        key = question_key(question)
        if noted[key]:
            noted[key] -= 1
        else:
            found.append(SessionAnswer(question=question, answer=answer))
    return tuple(found)


def _session_of(layout: Layout, run_id: str) -> tuple[bytes, list[AnySessionLine]]:
    """Read a run's session; of a run that was removed meanwhile, say so."""
    try:
        return read_session(layout.run(run_id))
    except RefusedError:
        read_run(layout, run_id)
        raise


def _question_named(unanswered: Sequence[Unanswered], name: str) -> Unanswered:
    for at, each in enumerate(unanswered, start=1):
        if name in (str(at), each.question.text, each.reference):
            return each
    fits = [each for each in unanswered if len(name) >= 4 and each.reference.startswith(name.lower())]
    if len(fits) == 1:
        return fits[0]
    listed = "; ".join(f"{at}) {each.question.text[:60]!a}" for at, each in enumerate(unanswered, start=1))
    raise InvalidArgumentError(
        f"{name[:80]!a} names none of the run's questions without an answer: {listed or 'there is none'}.",
        field="answers",
    )


def _checked_message(message: str) -> str:
    text = message.strip()
    if not text or not is_utf8(text):
        raise InvalidArgumentError("The message is empty, or no UTF-8: say what the agent should do.", field="message")
    if len(text.encode()) > MAX_STEER_BYTES:
        raise InvalidArgumentError(f"The message has more than {MAX_STEER_BYTES} bytes.", field="message")
    return text


def _spec(settings: Settings, layout: Layout, finder: AgentFinder, source: RunView, request: ResumeRequest) -> RunSpec:
    """Return the new run: the agent as it is now and may run, with no right that the old one did not have."""
    left = remaining_ms(source)
    old = source.spec
    caller = asking_run(layout)
    run_id = new_id()
    resolved = resolve_launch(
        settings,
        layout,
        finder,
        agent=old.agent.name,
        task=old.task,
        cwd=Path(old.cwd),
        run_id=run_id,
        ceiling=ceiling_for(layout, old.session_id, caller, *ceilings_of(source)),
        wishes=msgspec.structs.replace(request.wishes, output_schema=old.output_schema),
    )
    if resolved.agent.runner.type != old.agent.runner.type:
        raise RefusedError(
            f"Agent {old.agent.name} was {old.agent.runner.type} and is {resolved.agent.runner.type} now: "
            "run it afresh.",
            code="agent_changed",
        )
    if left is not None and left <= 0:
        raise RefusedError(
            f"Run {source.run_id} used up its work time: there is none left to go on with.", code="budget_exhausted"
        )
    agent = msgspec.structs.replace(resolved.agent, can_ask=may_ask(resolved.agent.can_ask, old.agent.can_ask))
    depth = max(old.depth, outer_depth() if caller is None else caller.spec.depth + 1)
    limit = settings.max_depth if caller is None else min(settings.max_depth, caller.spec.max_depth)
    check_depth(depth, limit)
    own_limit = limit if agent.max_depth is None else min(limit, agent.max_depth)
    process = own_identity()
    return msgspec.structs.replace(
        old,
        run_id=run_id,
        agent=agent,
        submitter=process,
        submitted_at=SystemClock().wall_ms(),
        attached_to=process if request.attached else None,
        depth=depth,
        max_depth=min(old.max_depth, own_limit),
        timeout_ms=left,
        max_spawns_per_run=_spawns_left(layout, old),
        launch=resolved.facts,
        capability_ceiling=resolved.ceiling,
        capability_audit=resolved.audit,
        resumed_from=source.run_id,
        resume_message=_checked_message(request.message),
    )


def ceilings_of(source: RunView) -> tuple[CapabilityCeiling | None, ...]:
    """Return every copy of a run's ceiling in its record: whoever changed one has changed nothing by it."""
    copies = [source.spec.capability_ceiling]
    if source.status is not None:
        copies += [source.status.capability_ceiling, *(each.capability_ceiling for each in source.status.steps)]
    if source.result is not None:
        copies += [source.result.capability_ceiling, *(each.capability_ceiling for each in source.result.results)]
    return tuple(copies)


def _spawns_left(layout: Layout, source: RunSpec) -> int:
    """Return how many runs may be started below the new run: a tree's cap is carried, not begun anew."""
    return max(0, source.max_spawns_per_run - count_charged(layout, source.run_id))


def _claim(layout: Layout, source_id: str, spec: RunSpec) -> None:
    """Say that this run is gone on with; its lock is held.

    Raises:
        RefusedError: Another run goes on with it, and has not ended.
    """
    paths = layout.run(source_id)
    number = 1
    while exists(paths.resumed(number)):
        number += 1
    last = read_record(paths.resumed(number - 1), ResumeClaim) if number > 1 else None
    if last is not None and _is_live(layout, last.run_id):
        raise RefusedError(
            f"Run {source_id} is being gone on with by run {last.run_id} (claimed by process {last.pid}): wait for "
            "that one, or steer it.",
            code="session_in_use",
        )
    claim = ResumeClaim(
        source_run_id=source_id, run_id=spec.run_id, claimed_at=spec.submitted_at, pid=spec.submitter.pid
    )
    if not write_new(paths.resumed(number), encode_record(claim), fsync=False):
        raise RecordError(f"{paths.resumed(number)} was made by somebody without the run's lock.")


def _is_live(layout: Layout, run_id: str) -> bool:
    try:
        return not current_view(layout, run_id, now_ms=SystemClock().wall_ms()).state.is_terminal
    except UnknownRunError:
        return False  # whoever claimed it died before the run was submitted, or it was removed since
