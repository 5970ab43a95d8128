"""Requests of children to their supervisor, on disk: create-once files, and one end each, whoever is first.

``runs/<run_id>/supervisor/<id>.request.json`` by the child, ``<id>.end.json`` by whoever replies or gives up, and the
marker ``open-contacts/<id>`` while it is open. Nothing here waits or tells anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pisub.errors import PisubError, QuestionClosedError, RecordError, UnknownRunError
from pisub.ids import check_id, is_id
from pisub.record.atomic import encode_record, read_bytes, read_record, remove, write_new
from pisub.record.dirs import check_dir, list_names, make_dir
from pisub.record.layout import Layout
from pisub.record.reader import as_problem, read_run
from pisub.runs.supervision import EndKind, Lifecycle, SupervisorEnd, SupervisorRequest, lifecycle


def post_request(layout: Layout, request: SupervisorRequest) -> None:
    """Write a request. By the child only.

    Raises:
        RecordError: The run has no directory.
        OSError: The disk is full, or the like. Nothing can be found of it then.
    """
    run = layout.run(request.run_id)
    if not check_dir(run.dir):
        raise RecordError(f"Run {request.run_id} has no directory: it cannot reach its supervisor.")
    make_dir(run.supervisor)
    write_new(run.supervisor / f"{request.id}.request.json", encode_record(request), fsync=layout.fsync)
    if not check_dir(layout.open_contacts):
        make_dir(layout.open_contacts)
    # Last: a request is found when it is whole. A child that dies before has asked nobody.
    write_new(layout.open_contacts / request.id, request.run_id.encode(), fsync=False)


def end_request(
    layout: Layout, request: SupervisorRequest, kind: EndKind, message: str, *, now_ms: int
) -> SupervisorEnd:
    """Give a request its end, unless it has one. Returns the one that it has then.

    Raises:
        OSError: The disk is full, or the like; the request is still open.
    """
    path = layout.run(request.run_id).supervisor / f"{check_id(request.id, what='request id')}.end.json"
    end = SupervisorEnd(request_id=request.id, created_at=now_ms, kind=kind, message=message)
    if not write_new(path, encode_record(end), fsync=layout.fsync):
        end = read_record(path, SupervisorEnd) or end
    remove(layout.open_contacts / request.id)
    return end


def read_end(layout: Layout, request: SupervisorRequest) -> SupervisorEnd | None:
    """Read the end of a request; None while it is open."""
    return read_record(layout.run(request.run_id).supervisor / f"{request.id}.end.json", SupervisorEnd)


def list_requests(
    layout: Layout,
    session_id: str,
    *,
    now_ms: int,
    on_problem: Callable[[str, PisubError], None] | None = None,
) -> list[SupervisorRequest]:
    """Read what waits for this session, oldest first. What is over is ended here and not returned.

    Args:
        layout: The record.
        session_id: Requests of another session are not looked at further.
        now_ms: Unix time in milliseconds.
        on_problem: Told the id and the error of each that cannot be read. It hides no other.
    """
    found: list[SupervisorRequest] = []
    for request_id in sorted(filter(is_id, list_names(layout.open_contacts))):
        try:
            request = _read(layout, request_id)
            if request is None or request.orchestrator_session_id != session_id:
                continue
            state = lifecycle(
                request,
                session_id=session_id,
                is_ended=read_end(layout, request) is not None,
                is_run_over=_is_over(layout, request.run_id),
                now_ms=now_ms,
            )
            match state:
                case Lifecycle.PENDING:
                    found.append(request)
                case Lifecycle.RESOLVED:
                    remove(layout.open_contacts / request_id)
                case Lifecycle.EXPIRED:
                    end_request(layout, request, EndKind.EXPIRED, "Nobody replied in time.", now_ms=now_ms)
                case Lifecycle.INACTIVE if request.expects_reply:
                    end_request(layout, request, EndKind.CANCELLED, "The run is over.", now_ms=now_ms)
                case Lifecycle.INACTIVE:
                    found.append(request)  # news of a run that is over is news all the same
                case Lifecycle.WRONG_SESSION:
                    pass
        except (PisubError, OSError) as error:
            if on_problem is not None:
                on_problem(request_id, as_problem(f"Request {request_id}", error))
    return found


def requests_of(layout: Layout, run_id: str, *, but: Collection[str] = ()) -> list[SupervisorRequest]:
    """Read what a run has ever asked its supervisor, oldest first.

    Args:
        layout: The record.
        run_id: The run.
        but: Ids that are known already.

    Raises:
        RecordCorruptError: One does not parse.
    """
    directory = layout.run(run_id).supervisor
    suffix = ".request.json"
    ids = sorted(name.removesuffix(suffix) for name in list_names(directory) if name.endswith(suffix))
    found = (read_record(directory / f"{each}{suffix}", SupervisorRequest) for each in ids if each not in but)
    return [each for each in found if each is not None]


def pending_of(layout: Layout, run_id: str) -> list[SupervisorRequest]:
    """Return a run's requests that wait for a reply, oldest first.

    Raises:
        RecordCorruptError: One does not parse.
    """
    return [each for each in requests_of(layout, run_id) if each.expects_reply and read_end(layout, each) is None]


def reply_to_request(layout: Layout, request: SupervisorRequest, message: str, *, now_ms: int) -> SupervisorEnd:
    """Reply to a request.

    Raises:
        QuestionClosedError: It has its end already: somebody was first, or the child waits no more.
        OSError: The disk is full, or the like; it is still open.
    """
    end = end_request(layout, request, EndKind.REPLIED, message, now_ms=now_ms)
    if (end.kind, end.created_at, end.message) != (EndKind.REPLIED, now_ms, message):
        raise QuestionClosedError(f"Request {request.id} was {end.kind} already.")
    return end


def _read(layout: Layout, request_id: str) -> SupervisorRequest | None:
    data = read_bytes(layout.open_contacts / request_id)
    run_id = "" if data is None else data.decode("ascii", "replace")
    if not is_id(run_id):
        return None
    request = read_record(layout.run(run_id).supervisor / f"{request_id}.request.json", SupervisorRequest)
    if request is None:
        remove(layout.open_contacts / request_id)  # its run was pruned
        return None
    return request if (request.id, request.run_id) == (request_id, run_id) else None


def _is_over(layout: Layout, run_id: str) -> bool:
    try:
        return read_run(layout, run_id).state.is_terminal
    except UnknownRunError:
        return False
