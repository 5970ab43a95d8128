"""The page about structured results: its agent and its program are run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pisub.agents.trust import trust
from pisub.config import load_settings
from tests.support.documents import ROOT, blocks

PAGE = ROOT / "docs/delegation.md"


def agent_of(directory: Path, name: str, runner: dict[str, object]) -> None:
    agents = directory / ".pisub/agents"
    agents.mkdir(parents=True, exist_ok=True)
    (agents / f"{name}.md").write_text(f"---\nname: {name}\ndescription: d\nrunner: {json.dumps(runner)}\n---\n")
    trust(load_settings(), directory)


def run(directory: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv], cwd=directory, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_agent_and_the_program_give_what_the_page_says(tmp_path: Path) -> None:
    agent, program = blocks(PAGE, "python")[:2]
    (tmp_path / "review.py").write_text(agent.text)
    (tmp_path / "program.py").write_text(program.text)
    agent_of(tmp_path, "review", {"type": "python", "target": "review:review"})
    done = run(tmp_path, "program.py")
    said = "complete {'verdict': 'good', 'score': 9} I looked at everything.\n"
    assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_the_program_that_delegates_gets_what_the_page_says(tmp_path: Path) -> None:
    agent, _, program = blocks(PAGE, "python")
    (tmp_path / "review.py").write_text(agent.text.replace('"score": "high"', '"score": 9'))
    (tmp_path / "delegate.py").write_text(program.text)
    agent_of(tmp_path, "review", {"type": "python", "target": "review:review"})
    done = run(tmp_path, "delegate.py")
    said = "completed {'verdict': 'good', 'score': 9}\ntool_budget_exhausted None\n"
    assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_the_command_of_a_program_gives_its_value(tmp_path: Path) -> None:
    (command,) = [each.text for each in blocks(PAGE, "console") if "structured-output" in each.text]
    script = command.removeprefix("$ ").replace("pisub ", f"{sys.executable} -m pisub ")
    agent_of(tmp_path, "script", {"type": "external-cli", "argv": ["sh", "-c", script]})
    (tmp_path / "schema.json").write_text('{"required": ["verdict"]}')
    done = run(tmp_path, "-m", "pisub", "run", "script", "x", "--schema", "schema.json")
    assert done.stdout == '{"verdict":"good","score":9}\n', done.stderr
