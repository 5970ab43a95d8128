"""What reading commands may load: they answer in well under 150 ms because of it."""

import subprocess
import sys

import pytest

HEAVY = {"zmq", "asyncio", "prompt_toolkit", "structlog", "yaml", "psutil"}


def loaded_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.splitlines()}


@pytest.mark.parametrize(
    "command", [["ps"], ["ps", "-a", "--json"], ["questions"], ["show", "0000000000"], ["logs", "0000000000"],
                ["wait", "0000000000"], ["stop", "0000000000"], ["result", "0000000000"]]
)  # fmt: skip
def test_reading_commands_load_nothing_heavy(command: list[str]) -> None:
    assert loaded_by(f"from pisub.cli.main import main\nmain({command!r})") & HEAVY == set()


def test_importing_pisub_loads_nothing_but_itself() -> None:
    assert loaded_by("import pisub") & (HEAVY | {"msgspec"}) == set()


def test_every_public_name_can_be_had() -> None:
    loaded_by("import pisub\nfor name in pisub.__all__: getattr(pisub, name)\nassert callable(pisub.host)")
