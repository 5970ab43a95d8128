"""Launches on this machine: by the nursery that fits this process, else by a new interpreter.

Neither way puts the environment, the task or a path of the user's into argv or into a file.
"""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from pisub.config import Settings, daemon_environment, interpreter_environment
from pisub.errors import InvalidArgumentError, LaunchError, ProtocolError
from pisub.ids import check_id
from pisub.launch import Program, program
from pisub.launchers.base import Launched
from pisub.launchers.key import installed_files, own_surroundings
from pisub.launchers.nursery import NurseryPaths, NurserySilentError, NurseryUnavailableError, launch_by_nursery
from pisub.launchers.protocol import LaunchAnswer, check_environment, decode_answer, encode_letter, request_for
from pisub.paths import ensure_private_dir, runtime_dir
from pisub.runs.spec import LaunchMessage

#: A nursery may leave between our connecting and its reading, once; twice in a row something else is wrong.
_ATTEMPTS: Final = 2
#: A new interpreter answers in 0.2 s; this is for a machine that thrashes.
_EXEC_TIMEOUT_S: Final = 30.0
#: What of a failed interpreter's standard error an error quotes.
_TAIL_BYTES: Final = 2_000


class LocalLauncher:
    """Starts runners in this machine, each in a session of its own, so that they outlive who asked for them.

    Args:
        settings: Where the nursery is, and whether there is one.
        find_program: How the runner program is started; None is pisub's own.
    """

    def __init__(self, settings: Settings, *, find_program: Callable[[], Program] | None = None) -> None:
        self._settings = settings
        self._find_program = find_program or functools.partial(program, "runner")
        # As they are now: this process goes on with the code that it has loaded. A nursery that sees other files
        # on the disk than it has loaded leaves by itself.
        self._files = functools.cache(installed_files)

    async def launch(self, message: LaunchMessage) -> Launched:
        """See ``Launcher.launch``. Works in a thread; the loop is free meanwhile."""
        return await asyncio.to_thread(self.launch_blocking, message)

    def launch_blocking(self, message: LaunchMessage) -> Launched:
        """Start a runner and wait until its process exists: milliseconds, or a second where a nursery must start.

        Raises:
            LaunchError: No runner was started, or none is known to have been: reconcile the run.
            InvalidArgumentError: The directory or a variable's name cannot be used.
            EnvironmentTooLargeError: The environment exceeds ``limits.MAX_ENVIRONMENT_BYTES``.
        """
        check_id(message.run_id)
        check_environment(message.environ)
        if not Path(message.cwd).is_dir():
            raise InvalidArgumentError(f"{message.cwd} is not a directory.", field="cwd")
        letter = encode_letter(message)
        if self._settings.nursery and sys.platform == "linux":
            paths = NurseryPaths(ensure_private_dir(runtime_dir(self._settings)), own_surroundings(self._files()).key())
            for _ in range(_ATTEMPTS):
                try:
                    return _launched(
                        launch_by_nursery(
                            paths,
                            request_for(message),
                            letter,
                            find_program=self._find_program,
                            idle_exit_ms=self._settings.idle_exit_ms,
                        ),
                        "nursery",
                    )
                except NurserySilentError:
                    break
                except NurseryUnavailableError:
                    continue
        return _launched(_launch_by_exec(letter, self._find_program()), "exec")


def _launched(answer: LaunchAnswer, via: Literal["nursery", "exec"]) -> Launched:
    if answer.process is None:
        raise LaunchError(answer.message, code=answer.code or None)
    return Launched(answer.process, via)


def _launch_by_exec(letter: bytes, start: Program) -> LaunchAnswer:
    """Start an interpreter for one run. It forks the runner, answers, and stays behind only to see it end."""
    try:
        starter = subprocess.Popen(
            # By its name it is a nursery, too: what cleans up after a run knows from it whom to leave alone.
            [*start.argv, "nursery", "--one"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**daemon_environment(), **interpreter_environment(), **start.environ},
            start_new_session=True,
            cwd="/",
            umask=0o077,
        )
    except OSError as error:
        raise LaunchError(f"{start.argv[0]} cannot be started: {error.strerror}.") from error
    with starter:
        try:
            answer, errors = starter.communicate(letter, timeout=_EXEC_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            starter.kill()
            raise LaunchError(f"A new runner did not answer within {_EXEC_TIMEOUT_S:g} s.") from error
    try:
        return decode_answer(answer)
    except ProtocolError as error:
        tail = errors[-_TAIL_BYTES:].decode("utf-8", "replace").strip()
        raise LaunchError(f"A new runner ended with exit code {starter.returncode}: {tail}") from error
