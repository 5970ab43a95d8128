"""Which projects' agents may run code."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from pisub.agents.definition import AgentDefinition
from pisub.agents.discovery import discover
from pisub.agents.trust import agents_digest, is_trusted, require_trust, trust
from pisub.config import Settings
from pisub.errors import RecordCorruptError, UntrustedProjectError

CODE = '---\nname: mine\ndescription: d\nrunner: {type: python, target: "m:f"}\n---\n'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / ".pisub" / "agents"
    folder.mkdir(parents=True)
    (folder / "mine.md").write_text(CODE)
    (folder / "prompt.md").write_text("---\nname: prompt\ndescription: d\n---\n")
    return tmp_path / "project"


def get(project: Path, settings: Settings, name: str = "mine", user_folder: Path = Path("/nowhere")) -> AgentDefinition:
    return discover(settings, project, user_folder=user_folder).get(name)


def test_a_project_agent_that_runs_code_needs_trust_and_the_error_names_the_way(
    project: Path, settings: Settings
) -> None:
    agent = get(project, settings)
    with pytest.raises(UntrustedProjectError, match=f"pisub trust {project}"):
        require_trust(settings, agent)
    trust(settings, project)
    require_trust(settings, agent)
    assert is_trusted(settings, project)


def test_what_changes_after_it_was_shown_is_not_trusted_by_the_yes(project: Path, settings: Settings) -> None:
    shown = agents_digest(project)
    (project / ".pisub/agents/helper.py").write_text("print()")
    with pytest.raises(UntrustedProjectError, match="changed while they were looked at"):
        trust(settings, project, shown=shown)
    assert not is_trusted(settings, project)
    trust(settings, project, shown=agents_digest(project))
    assert is_trusted(settings, project)


def test_builtin_user_and_prompt_only_agents_need_none(project: Path, settings: Settings) -> None:
    require_trust(settings, get(project, settings, "surveyor"))
    require_trust(settings, get(project, settings, "prompt"))
    require_trust(settings, get(project.parent, settings, "mine", project / ".pisub/agents"))


@pytest.mark.parametrize("folder", [".pisub/agents", ".pi/agents", ".claude/agents"])
def test_a_changed_folder_needs_trust_again_and_the_error_says_so(
    project: Path, settings: Settings, folder: str
) -> None:
    trust(settings, project)
    (project / folder).mkdir(parents=True, exist_ok=True)
    (project / folder / "helper.py").write_text("print()")
    with pytest.raises(UntrustedProjectError, match="changed since it was trusted"):
        require_trust(settings, get(project, settings))
    trust(settings, project)
    require_trust(settings, get(project, settings))


def test_byte_code_that_a_run_writes_changes_nothing(project: Path, settings: Settings) -> None:
    trust(settings, project)
    cache = project / ".pisub/agents/__pycache__"
    cache.mkdir()
    (cache / "m.pyc").write_bytes(b"x")
    assert is_trusted(settings, project)


def test_a_project_is_known_by_its_real_path(tmp_path: Path, project: Path, settings: Settings) -> None:
    (tmp_path / "link").symlink_to(project)
    trust(settings, tmp_path / "link")
    assert is_trusted(settings, project)


def test_a_folder_behind_a_symlink_counts_by_where_it_is(tmp_path: Path, project: Path, settings: Settings) -> None:
    outside = tmp_path / "outside"
    (project / ".pisub/agents").rename(outside)
    (project / ".pisub/agents").symlink_to(outside)
    trust(settings, project)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in outside.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (project / ".pisub/agents").unlink()
    (project / ".pisub/agents").symlink_to(copy)
    assert not is_trusted(settings, project)


def test_a_folder_that_cannot_be_read_whole_cannot_be_trusted(project: Path, settings: Settings) -> None:
    with (project / ".pisub/agents/huge.bin").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UntrustedProjectError, match="cannot be read whole"):
        trust(settings, project)


def test_names_and_contents_cannot_be_confused(project: Path) -> None:
    folder = project / ".pisub/agents"
    (folder / "a").write_text("b")
    first = agents_digest(project)
    (folder / "a").unlink()
    (folder / "ab").write_text("")
    assert agents_digest(project) != first


def test_the_record_is_private_and_a_broken_one_is_not_reported_as_missing(project: Path, settings: Settings) -> None:
    trust(settings, project)
    assert settings.home is not None
    (path,) = (settings.home / "trust").iterdir()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
    path.write_text("{")
    with pytest.raises(RecordCorruptError, match="trust record"):
        is_trusted(settings, project)
