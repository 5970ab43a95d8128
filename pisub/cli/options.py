"""The options of each command, a function a command. What they mean is the commands' business."""

from __future__ import annotations

import argparse
from pathlib import Path

from pisub.cli.ceilings import declare_ceiling
from pisub.cli.moments import age_ms, since
from pisub.cli.schemas import declare_schema
from pisub.protocol.limits import MAX_DURATION_MS


def seconds(text: str) -> float:
    """Read a duration in seconds: above 0, at most what a 32-bit timer holds.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 < value <= MAX_DURATION_MS / 1000:
        raise argparse.ArgumentTypeError(f"{text!r}: give seconds above 0 and at most {MAX_DURATION_MS // 1000}")
    return value


def seconds_or_ever(text: str) -> float:
    """Read a duration as ``seconds`` does, or 0, which is for ever."""
    return 0.0 if text == "0" else seconds(text)


def as_json(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json``, for a command that has no other option as well."""
    parser.add_argument("--json", action="store_true", help="print JSON with a schemaVersion")


def _session(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--session", metavar="S", help=what)


def _run_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="a run's id, or its beginning (4 characters or more)")


def _detach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-d", "--detach", action="store_true", help="print the run's id and return at once")


def _answers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--answers", metavar="FILE", type=Path, help="answer questions from a YAML or JSON list instead of the terminal"
    )


def run(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``run``."""
    parser.add_argument("agent", metavar="AGENT", help="the agent's name (see `pisub agents`)")
    parser.add_argument(
        "task",
        metavar="TASK",
        nargs="?",
        help="what it should do; `-` reads it from standard input: use that for what is long or private, "
        "since other users of the machine see a command's arguments",
    )
    parser.add_argument("--task-file", metavar="FILE", type=Path, help="read the task from a file, byte for byte")
    _detach(parser)
    _session(parser, "the session that the run belongs to (default: PISUB_SESSION; without that a foreground run makes "
             "a fresh session, and -d uses the project's shared inbox session)")  # fmt: skip
    parser.add_argument(
        "--cwd", metavar="D", type=Path, default=None, help="the run's working directory (default: here)"
    )
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, help="deadline of its work in seconds; waiting for you is not counted"
    )
    parser.add_argument("--label", metavar="L", default="", help="a name for people, shown by ps and in questions")
    parser.add_argument(
        "--ask",
        choices=["wait", "fail"],
        help="what a question does when no host is there: wait for one (default with -d) or end as no-host",
    )
    _answers(parser)
    parser.add_argument("--output", metavar="FILE", help="also write its result to a file")
    declare_schema(parser)
    parser.add_argument("--skill", metavar="LIST", help="skills that it is given, separated by commas")
    declare_ceiling(parser, "the run")
    as_json(parser)


def ps(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ps``."""
    parser.add_argument("-a", "--all", action="store_true", help="finished runs too")
    parser.add_argument("--tree", action="store_true", help="runs below the runs that started them")
    parser.add_argument(
        "--fleet", action="store_true", help="who is at work in one session (default: this project's), in short"
    )
    _session(parser, "only runs of this session")
    as_json(parser)


def sessions(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``sessions``."""
    parser.add_argument("--live", action="store_true", help="only those that somebody should keep: they have work")
    _session(parser, "only this one")
    as_json(parser)


def external(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``external``."""
    parser.add_argument("action", choices=["list", "register", "update", "unregister"])
    parser.add_argument("id", metavar="ID", nargs="?", help="its id, unique in the session; not with list")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="source, label, state, startedAt, updatedAt, endedAt, currentAction, preview, reportPath, transcriptPath",
    )
    _session(parser, "whose host shows it (default: PISUB_SESSION, else this project's)")
    as_json(parser)


def logs(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``logs``."""
    _run_id(parser)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on until the run ends; Ctrl-C only stops looking"
    )
    parser.add_argument(
        "--since", metavar="TIME", type=since, help="only what happened since: 10m, or 2026-12-01T09:30:00Z"
    )
    parser.add_argument("--json", action="store_true", help="print each event as one JSON object per line")


def show(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``show``."""
    _run_id(parser)
    as_json(parser)


def wait(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``wait``."""
    parser.add_argument(
        "ids", metavar="ID", nargs="*", help="runs, by id or beginning; none: those of the session that go on now"
    )
    parser.add_argument("--any", action="store_true", help="return when the first of them has ended")
    parser.add_argument("--attention", action="store_true", help="return, too, when one of them needs somebody")
    _session(parser, "the session whose runs are meant where no ID is given")
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, help="give up after this many seconds; nothing is stopped"
    )
    as_json(parser)


def stop(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``stop``."""
    _run_id(parser)
    parser.add_argument(
        "--tree", action="store_true", help="also stop what outlived the run that started it, and wait for all of it"
    )
    parser.add_argument("--reason", metavar="TEXT", default="", help="kept in the record")
    parser.add_argument(
        "--declare-dead",
        action="store_true",
        help="end the record of a run that ps shows as unknown, on your word that it is gone",
    )
    as_json(parser)


def prune(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``prune``."""
    parser.add_argument(
        "--older-than", metavar="AGE", type=age_ms, default=30 * 86_400_000, help="as in 30d, the default, or 12h"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and why the rest stays")
    parser.add_argument(
        "--undelivered", action="store_true", help="also runs whose end no host has handled (see `pisub host`)"
    )
    parser.add_argument(
        "--reap", action="store_true", help="remove the files of what was set aside at once, not a day later"
    )
    as_json(parser)


def steer(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``steer``."""
    _run_id(parser)
    parser.add_argument("message", metavar="MESSAGE", help="what its agent is told; `-` reads standard input")
    parser.add_argument(
        "--mode",
        choices=["steer", "follow_up", "auto"],
        default="steer",
        help="in the middle of its work (default), after this turn, or not into a turn and else at once",
    )
    parser.add_argument(
        "--recover",
        action="store_true",
        help="where its agent does not look in time, pause the run and go on with it in a new one that is told",
    )
    as_json(parser)


def interrupt(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``interrupt``."""
    _run_id(parser)
    parser.add_argument("--reason", metavar="TEXT", default="", help="kept in the record")
    as_json(parser)


def resume(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``resume``."""
    _run_id(parser)
    parser.add_argument("message", metavar="MESSAGE", help="what its agent is told; `-` reads standard input")
    _detach(parser)
    parser.add_argument(
        "--answer",
        metavar="Q=V",
        action="append",
        default=[],
        help="an answer to a question that the run got none to; Q is its number or id in `pisub show`, or its text",
    )
    _answers(parser)
    as_json(parser)


def questions(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``questions``."""
    parser.add_argument(
        "-a", "--all", action="store_true", help="also those that got no answer, in runs that `resume` can go on with"
    )
    parser.add_argument("-w", "--watch", action="store_true", help="go on: each question as it comes, and its end")
    _session(parser, "only questions of this session")
    parser.add_argument("--json", action="store_true", help="print JSON with a schemaVersion; with --watch a line each")


def ask(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ask``."""
    parser.add_argument("question", metavar="QUESTION", nargs="+", help="what to ask; several are one batch")
    parser.add_argument("--option", metavar="O", action="append", default=[], help="a choice: give it twice or more")
    parser.add_argument("--placeholder", metavar="TEXT", default="", help="a hint in an empty field, never an answer")
    parser.add_argument("--why", metavar="TEXT", default="", help="what the answer is needed for")
    parser.add_argument(
        "--timeout", metavar="S", type=seconds_or_ever, help="how long to wait in all, in seconds; 0 is for ever"
    )
    parser.add_argument(
        "--question-timeout", metavar="S", type=seconds_or_ever, help="how long one dialog stays open; 0 is for ever"
    )
    as_json(parser)


def answer(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``answer``."""
    parser.add_argument("question", metavar="QUESTION", help="a question's id as `pisub questions` shows it")
    parser.add_argument(
        "value", metavar="VALUE", help="an option, by its text or number, or a free text; `-` reads standard input"
    )
    as_json(parser)


def decline(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``decline``."""
    parser.add_argument("question", metavar="QUESTION", help="a question's id as `pisub questions` shows it")
    parser.add_argument("--reason", metavar="TEXT", default="", help="told to the child")
    as_json(parser)


def contact(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``contact``."""
    parser.add_argument(
        "reason",
        metavar="REASON",
        help="need_decision or interview_request, which wait for the reply, or progress_update, which does not",
    )
    parser.add_argument("message", metavar="MESSAGE", nargs="?", help="what to say; `-` reads standard input")
    parser.add_argument("--interview", metavar="JSON", help="what interview_request wants to know; `-` reads it")
    parser.add_argument("--timeout", metavar="S", type=seconds, help="how long to wait for the reply, in seconds")
    as_json(parser)


def supervisor(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``supervisor``."""
    parser.add_argument("action", choices=["list", "reply"])
    parser.add_argument("message", metavar="MESSAGE", nargs="?", help="with reply; `-` reads standard input")
    parser.add_argument("--id", metavar="ID", help="with reply: the request, by its whole id")
    parser.add_argument(
        "--to", metavar="T", help="with reply: the beginning of its id or its run's, or its agent's name"
    )
    _session(parser, "the session (default: PISUB_SESSION, else the project's shared inbox session)")
    as_json(parser)


def host(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``host``."""
    _session(parser, "the session to serve (default: PISUB_SESSION, else the project's shared inbox session)")
    face = parser.add_mutually_exclusive_group()
    face.add_argument(
        "--answers", metavar="FILE", type=Path, help="answer from a YAML or JSON list instead of the terminal"
    )
    face.add_argument(
        "--stdio",
        action="store_true",
        help="ask by JSON lines on standard output and input (the Extension UI protocol), for IDEs",
    )
    declare_ceiling(parser, "the session's runs")
    as_json(parser)


def broker(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``broker``."""
    parser.add_argument("action", choices=["start", "status", "stop", "trace"])
    parser.add_argument("--force", action="store_true", help="with stop: kill a broker that does not answer")
    as_json(parser)


def rpc(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``rpc``."""
    parser.add_argument("method", metavar="METHOD", help="ping status manage spawn steer interrupt stop resume")
    parser.add_argument("--params", metavar="JSON", help="its parameters, an object; `-` reads standard input")
    _session(parser, "the session whose host is asked (default: PISUB_SESSION, else the project's inbox session)")
    as_json(parser)


def caps(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``caps``."""
    _session(parser, "the session (default: PISUB_SESSION, else the project's shared inbox session)")
    parser.add_argument(
        "--grant", metavar="N", type=int, help="let it start N runs more than its cap; in all at most the cap again"
    )
    as_json(parser)


def agents(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``agents``."""
    _where(parser)
    _session(parser, "the session whose ceiling is shown (default: PISUB_SESSION, else the project's inbox session)")
    as_json(parser)


def _where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cwd", metavar="D", type=Path, help="the project to look in (default: here)")
    parser.add_argument(
        "--scope", choices=["user", "project", "both"], default="both", help="whose agents, beside builtin ones"
    )


def preflight(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``preflight``."""
    parser.add_argument("agent", metavar="AGENT", help="the agent's name (see `pisub agents`)")
    parser.add_argument("task", metavar="TASK", nargs="?", help="what it should do; `-` reads standard input")
    _where(parser)
    _session(parser, "the session that the run would belong to (default: PISUB_SESSION, else the inbox session)")
    parser.add_argument("--run-id", metavar="ID", help="the id that the run would have: it is part of its paths")
    parser.add_argument("--context", metavar="C", help="fresh or fork")
    parser.add_argument("--model", metavar="M", help="a model, for an agent that is a prompt")
    parser.add_argument("--thinking", metavar="L", help="a level of thinking, likewise")
    parser.add_argument("--skill", metavar="LIST", help="skills, separated by commas")
    parser.add_argument("--output", metavar="FILE", help="a file that the result is written to")
    declare_schema(parser)
    declare_ceiling(parser, "the run")
    as_json(parser)


def trust(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``trust``."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="the project's directory")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    as_json(parser)


def demo(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``demo``."""
    parser.add_argument(
        "directory", metavar="DIR", type=Path, nargs="?", help="the directory to survey (default: here)"
    )
    parser.add_argument(
        "--answers", metavar="FILE", type=Path, help="answer from a YAML or JSON list instead of the terminal"
    )
    as_json(parser)


def value(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``structured-output``."""
    parser.add_argument(
        "value", metavar="JSON", nargs="?", default="-", help="the value; `-`, or none, reads standard input"
    )
    as_json(parser)
