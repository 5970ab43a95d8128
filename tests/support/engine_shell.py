"""A shell for engines and children that are tested without a runner: it writes down what it is told."""

from __future__ import annotations

from pathlib import Path

from pisub.engines.base import AskCallback, AskTimes, EngineContext, EngineEvent
from pisub.protocol.checkpoint import AskResult, Question


class RecordingShell:
    """Implements ``pisub.engines.base.Shell``. With ``answer`` every ask is answered at once."""

    def __init__(self, answer: AskResult | None = None) -> None:
        self.events: list[EngineEvent] = []
        self.asked: list[tuple[tuple[Question, ...], str]] = []
        self.times: list[AskTimes] = []
        self.withdrawn: list[int] = []
        self._answer = answer

    def report(self, event: EngineEvent) -> None:
        """Write an event down."""
        self.events.append(event)

    def ask(self, questions: tuple[Question, ...], why: str, answer: AskCallback, times: AskTimes) -> int:
        """Write an ask down."""
        self.asked.append((questions, why))
        self.times.append(times)
        if self._answer is not None:
            answer(self._answer)
        return len(self.asked)

    def cancel_ask(self, number: int) -> None:
        """Write down that it was taken back."""
        self.withdrawn.append(number)


def context(directory: Path, *, can_ask: bool = True, sys_path: tuple[str, ...] = ()) -> EngineContext:
    """Return what an engine is told of a run whose files lie in ``directory``."""
    return EngineContext(
        run_id="run",
        session_id="session",
        agent="tester",
        task="a task",
        cwd=str(directory),
        artifacts_dir=str(directory / "artifacts"),
        output_file=str(directory / "output-0.log"),
        result_file=str(directory / "result-0.txt"),
        can_ask=can_ask,
        sys_path=sys_path,
    )
