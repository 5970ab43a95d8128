"""The commands and their options. It builds the parser, and imports no command: the chosen one is imported by name.

``COMMANDS`` is the table of contents: name, module, one line of help, and the function that declares the options.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import msgspec

from pisub.cli import options
from pisub.cli.exits import help_table
from pisub.errors import InvalidArgumentError
from pisub.version import __version__

Declare = Callable[[argparse.ArgumentParser], None]


class CommandLineError(InvalidArgumentError):
    """The arguments do not fit the command. ``usage`` is the command whose ``--help`` says how they would."""

    def __init__(self, message: str, *, usage: str = "pisub") -> None:
        super().__init__(message)
        self.usage = usage


class Command(msgspec.Struct, frozen=True):
    """One subcommand. Its module in ``pisub.cli.commands`` has ``run(arguments, console, settings) -> Exit``."""

    name: str
    module: str
    help: str
    declare: Declare


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandLineError(message, usage=self.prog)


COMMANDS: Final[tuple[Command, ...]] = (
    Command("run", "run", "give an agent a task", options.run),
    Command("ps", "ps", "list runs", options.ps),
    Command("sessions", "sessions", "list sessions, and say which are live", options.sessions),
    Command("external", "external", "show work that is no run of pisub's beside a session's runs", options.external),
    Command("logs", "logs", "show what a run did", options.logs),
    Command("show", "show", "show everything about one run", options.show),
    Command("result", "result", "print a run's result", options.show),
    Command("wait", "wait", "wait until runs have ended", options.wait),
    Command("stop", "stop", "stop a run and everything that it started", options.stop),
    Command("steer", "steer", "send a working run's agent a message", options.steer),
    Command("interrupt", "interrupt", "pause a run, so that it can be resumed", options.interrupt),
    Command("resume", "resume", "go on with a run that has ended", options.resume),
    Command("prune", "prune", "remove runs that ended long ago", options.prune),
    Command("questions", "questions", "list open questions", options.questions),
    Command("ask", "ask", "ask the human, from a program inside a run", options.ask),
    Command("answer", "answer", "answer a question", options.answer),
    Command("decline", "answer", "say that a question will not be answered", options.decline),
    Command(
        "structured-output", "structured_output", "give a run's structured result, from its program", options.value
    ),
    Command("contact", "contact", "say something to the session that started a run, from inside it", options.contact),
    Command("supervisor", "supervisor", "what children want from the session that started them", options.supervisor),
    Command("host", "host", "answer a session's questions in this terminal", options.host),
    Command("rpc", "rpc", "have a session's host do something, by RPC v1", options.rpc),
    Command("caps", "caps", "show how much a session may start, or let it start more", options.caps),
    Command("broker", "broker", "start, look at, trace or stop the broker", options.broker),
    Command("agents", "agents", "list agents", options.agents),
    Command("preflight", "preflight", "show what exactly a run would be launched with", options.preflight),
    Command("trust", "trust", "let a project's agents run code", options.trust),
    Command("doctor", "doctor", "check this machine's setup", options.as_json),
    Command("smoke", "smoke", "check that questions reach a human, in a directory of its own", options.as_json),
    Command("demo", "demo", "survey a directory, with two questions for you", options.demo),
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line; ``arguments.command`` names the chosen ``Command``."""
    parser = _Parser(
        prog="pisub",
        description="Delegate work to agents in detached processes, and let them ask you.",
        epilog=help_table(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pisub {__version__}")
    choices = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    for command in COMMANDS:
        child = choices.add_parser(
            command.name,
            help=command.help,
            description=textwrap.fill(f"{command.help[0].upper()}{command.help[1:]}.", 100),
            epilog="`pisub --help` lists the exit codes.",
            allow_abbrev=False,
        )
        command.declare(child)
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return what a command line says.

    Raises:
        CommandLineError: It fits no command.
    """
    arguments, unknown = build_parser().parse_known_args(argv)
    if unknown:
        raise CommandLineError(f"unrecognized arguments: {' '.join(unknown)}", usage=f"pisub {arguments.command}")
    return arguments


def command_named(name: str) -> Command:
    """Return the command with this name, which the parser has checked."""
    return next(command for command in COMMANDS if command.name == name)
