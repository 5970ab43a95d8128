"""The ``external-cli`` engine: a program of the user's, the prompt on its standard input, the result on its output.

The program is started by its argv, never through a shell, in a process group of its own. It is driven from the main
thread by one selector. Ending its descendants is the runner's work, not the engine's.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from pisub.config import caller_environment
from pisub.engines.base import (
    ChildProcessStarted,
    EngineContext,
    OutputBytes,
    Settled,
    Shell,
    Steered,
    SteeringKnown,
    ToolEnded,
    ToolStarted,
)
from pisub.engines.capture import FAILED, TOOL_NAME, Capture
from pisub.engines.output import BoundedLog, ResultText
from pisub.engines.structured_file import NoStructuredFile, StructuredFile
from pisub.errors import StructuredOutputError
from pisub.protocol.limits import KIB, MAX_RESULT_TEXT_BYTES
from pisub.runs.spec import RunnerSpec
from pisub.runs.steering import AckState, SteerMessage

#: After the program has ended, a descendant that holds its output is listened to for this long (contract, runs 3.2).
DRAIN_S = 1.0
_CHUNK_BYTES = 64 * KIB
#: The end of standard error that an error message carries.
_ERROR_TAIL_BYTES = 2 * KIB


class CommandEngine:
    """One program, run once."""

    def __init__(self, runner: RunnerSpec, context: EngineContext, shell: Shell) -> None:
        self._argv = runner.argv
        self._context = context
        self._shell = shell
        self._lock = threading.Lock()
        self._wake: int | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        """Have the program's group sent SIGTERM. Thread-safe, idempotent."""
        with self._lock:
            self._is_cancelled = True
            if self._wake is not None:
                with contextlib.suppress(BlockingIOError):  # full of wakes already
                    os.write(self._wake, b"x")

    def steer(self, message: SteerMessage) -> None:
        """Refuse: a program reads its prompt once, from standard input, and nothing after it."""
        text = "An external-cli agent cannot be steered: stop it, and run it again with another task."
        self._shell.report(Steered(message.id, AckState.FAILED, text))

    def close_steering(self) -> None:
        """Do nothing: no message is kept here."""

    def run(self) -> Settled:
        """Start the program and see it to its end."""
        self._shell.report(SteeringKnown(is_supported=False))
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        with self._lock:
            self._wake = wake_write
        try:
            return self._start_with_schema(wake_read)
        finally:
            with self._lock:  # the number may be another file's in a moment
                self._wake = None
            os.close(wake_write)
            os.close(wake_read)

    def _start_with_schema(self, wake: int) -> Settled:
        """Start the program with a place for its structured result, and take that where it ended well."""
        if self._context.output_schema is None:
            return self._start(wake, {})
        try:
            file = StructuredFile(self._context.output_schema)
        except OSError as error:
            sentence = f"The directory for its structured result cannot be made: {error.strerror}."
            return Settled(error=sentence, reason=FAILED)
        with file:
            settled = self._start(wake, file.variables)
            if settled.error is not None or settled.was_cancelled:
                return settled
            return self._capture(self._context.output_schema, file, settled)

    def _capture(self, schema: Mapping[str, Any], file: StructuredFile, settled: Settled) -> Settled:
        capture = Capture(schema)
        try:
            value = file.read()
        except NoStructuredFile as problem:
            if not str(problem):
                return capture.settle(settled)
            error = f"The program's structured result cannot be taken: {problem}."
            return msgspec.structs.replace(settled, error=error, reason=FAILED)
        self._shell.report(ToolStarted(1, TOOL_NAME))
        is_error = True
        try:
            capture.take(value)
            is_error = False
        except StructuredOutputError as error:
            return msgspec.structs.replace(settled, error=error.message, reason=FAILED)
        finally:
            self._shell.report(ToolEnded(1, TOOL_NAME, is_error))
        return capture.settle(settled)

    def _start(self, wake: int, variables: Mapping[str, str]) -> Settled:
        if self._is_cancelled:
            return Settled(was_cancelled=True)
        if not self._argv:
            return Settled(error="The agent names no program: its argv is empty.", reason="program-not-found")
        program = self._argv[0]
        try:
            process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._context.cwd,
                env={**caller_environment(), **variables},
                process_group=0,
                bufsize=0,
            )
        except FileNotFoundError:
            sentence = f"The program {program!r} was not found: give its full path, or put it on PATH."
            return Settled(error=sentence, reason="program-not-found")
        except (OSError, ValueError) as error:
            return Settled(
                error=f"The program {program!r} could not be started: {error}.", reason="program-not-started"
            )
        self._shell.report(ChildProcessStarted(process.pid))
        log = BoundedLog(self._context.output_file, self._context.max_output_bytes)
        text = ResultText(
            self._context.result_file, preview=MAX_RESULT_TEXT_BYTES, limit=self._context.max_output_bytes
        )
        try:
            tail = self._converse(process, wake, log, text)
        finally:
            log.close()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        return self._settle(process.returncode, text, tail)

    def _converse(self, process: subprocess.Popen[bytes], wake: int, log: BoundedLog, text: ResultText) -> bytes:
        """Feed the prompt, take the output, until the program has ended and its output too, or the drain is over."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        prompt = memoryview(_prompt(self._context))
        tail = bytearray()
        drain_until: float | None = None
        exit_watch = os.pidfd_open(process.pid)
        with selectors.DefaultSelector() as selector:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(wake, selectors.EVENT_READ, "wake")
            selector.register(exit_watch, selectors.EVENT_READ, "exit")
            selector.register(process.stdout, selectors.EVENT_READ, "stdout")
            selector.register(process.stderr, selectors.EVENT_READ, "stderr")
            selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
            open_outputs = 2
            try:
                while drain_until is None or open_outputs:
                    wait_s = None if drain_until is None else drain_until - time.monotonic()
                    if wait_s is not None and wait_s <= 0:
                        break
                    for key, _ in selector.select(wait_s):
                        match key.data:
                            case "wake":
                                os.read(wake, 64)
                                if drain_until is None:
                                    # Not reaped yet, so the group's number is still the program's.
                                    _signal_group(process.pid)
                            case "exit":
                                selector.unregister(exit_watch)
                                process.wait()
                                drain_until = time.monotonic() + DRAIN_S
                            case "stdin":
                                prompt = _feed(process, prompt)
                                if not prompt:
                                    selector.unregister(process.stdin)
                                    process.stdin.close()
                            case stream:
                                data = os.read(key.fd, _CHUNK_BYTES)
                                if not data:
                                    selector.unregister(key.fd)
                                    open_outputs -= 1
                                    continue
                                self._take(stream, data, log, text)
                                if stream == "stderr":
                                    tail += data
                                    del tail[:-_ERROR_TAIL_BYTES]
            finally:
                os.close(exit_watch)
        return bytes(tail)

    def _take(self, stream: str, data: bytes, log: BoundedLog, text: ResultText) -> None:
        if not log.is_full:
            self._shell.report(OutputBytes(stream, data))
        log.write(data)
        if stream == "stdout":
            text.write(data)

    def _settle(self, code: int | None, result: ResultText, tail: bytes) -> Settled:
        text, path, size, digest = result.finish()
        error, reason = None, None
        exit_code = code if code is not None and code >= 0 else None
        if not self._is_cancelled and code:
            how = f"ended with exit code {code}" if code > 0 else f"was ended by {_signal_name(-code)}"
            said = tail.decode("utf-8", "replace").strip()
            error = f"{shlex.quote(self._argv[0])} {how}." + (
                f" The end of its standard error:\n{said}" if said else ""
            )
            reason = "exit-code" if code > 0 else "signal"
        return Settled(
            text=text,
            error=error,
            reason=reason,
            exit_code=exit_code,
            was_cancelled=self._is_cancelled,
            text_file=path,
            text_bytes=size,
            text_sha256=digest,
        )


def _prompt(context: EngineContext) -> bytes:
    """Return what the program reads: the task alone, byte for byte, unless the agent has instructions of its own."""
    parts = (context.system_prompt, context.task) if context.system_prompt else (context.task,)
    return "\n\n".join(parts).encode("utf-8", "surrogateescape")


def _feed(process: subprocess.Popen[bytes], prompt: memoryview) -> memoryview:
    """Write what the pipe takes; return what is left, nothing when the program does not want more."""
    assert process.stdin is not None
    try:
        return prompt[os.write(process.stdin.fileno(), prompt[:_CHUNK_BYTES]) :] if prompt else prompt
    except BlockingIOError:
        return prompt
    except BrokenPipeError:
        return prompt[:0]


def _signal_group(group: int) -> None:
    # It may have ended, or changed its user: the runner ends what is left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
