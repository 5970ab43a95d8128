"""How runs end, with a real runner process and real agents."""

from pathlib import Path

from pisub.config import Settings
from pisub.protocol.runs import RunState
from pisub.runs.spec import RunnerSpec
from tests.support.runner_runs import RunnerProcess, execute, python_runner, submit


def test_an_agent_s_text_is_the_run_s_output(settings: Settings, tmp_path: Path) -> None:
    source = """
        async def main(child):
            child.log("at work")
            with child.tool("read", path="x"):
                pass
            child.write("notes/a.md", "# Notes")
            return f"done: {child.task}"
    """
    process, result = execute(settings, submit(settings, python_runner(tmp_path, source), cwd=tmp_path, task="count"))
    assert (result.state, result.success, result.exit_code, result.output) == (RunState.COMPLETE, True, 0, "done: count")
    assert result.artifacts == ("artifacts/notes/a.md",)
    assert process.event_types() == [
        "subagent.run.started",
        "subagent.step.started",
        "subagent.child.log",
        "subagent.tool.started",
        "subagent.tool.completed",
        "subagent.artifact.written",
        "subagent.step.completed",
        "subagent.run.completed",
    ]
    status = process.status()
    assert status is not None
    assert (status.state, status.tool_count, status.steps[0].status) == (RunState.COMPLETE, 1, "complete")
    assert process.process.returncode == 0
