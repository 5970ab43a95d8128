"""Where agents are found, and which of several wins."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pisub.agents import frontmatter
from pisub.agents.discovery import Catalog, discover, find_project_root
from pisub.config import Settings
from pisub.errors import InvalidAgentError, UnknownAgentError


def agent(folder: Path, name: str, *, keys: str = "", file: str | None = None) -> Path:
    path = folder / (file or f"{name}.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: {folder.parent.name}\n{keys}\n---\nbody\n")
    return path


def found(tmp_path: Path) -> Catalog:
    return discover(Settings(), tmp_path / "project", user_folder=tmp_path / "user" / "agents")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    return root


def test_the_surveyor_is_there_everywhere(tmp_path: Path, project: Path) -> None:
    surveyor = found(tmp_path).get("survey")
    assert (surveyor.name, surveyor.source, surveyor.can_ask) == ("surveyor", "builtin", True)
    assert surveyor.runner is not None
    assert surveyor.runner.target == "pisub.agents.surveyor.agent:survey"


def test_a_higher_source_replaces_a_lower_one(tmp_path: Path, project: Path) -> None:
    folders = [tmp_path / "user/agents", project / ".claude/agents", project / ".pi/agents", project / ".pisub/agents"]
    for count in range(1, 5):
        agent(folders[count - 1], "surveyor")
        catalog = found(tmp_path)
        top = catalog.get("surveyor")
        assert top.file == folders[count - 1] / "surveyor.md"
        assert len(catalog.shadowed_by(top)) == count
        assert catalog.diagnostics == ()


def test_agents_are_found_in_subfolders_but_chains_and_plain_markdown_are_none(tmp_path: Path, project: Path) -> None:
    agent(project / ".pisub/agents", "deep", file="team/one/deep.md")
    agent(project / ".pisub/agents", "chain", file="x.chain.md")
    (project / ".pisub/agents/README.md").write_text("# Our agents\n")
    catalog = found(tmp_path)
    assert ([each.name for each in catalog.agents], catalog.diagnostics) == (["deep", "surveyor"], ())


def test_the_project_is_the_nearest_directory_with_agents_or_git(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    assert find_project_root(inner) == inner or inner.is_relative_to(find_project_root(inner)) is not False
    (tmp_path / "a" / ".git").write_text("gitdir: elsewhere")
    assert find_project_root(inner) == tmp_path / "a"
    (tmp_path / "a" / "b" / ".claude" / "agents").mkdir(parents=True)
    assert find_project_root(inner) == tmp_path / "a" / "b"


def test_a_malformed_higher_file_blocks_its_name_and_hides_no_other(tmp_path: Path, project: Path) -> None:
    agent(tmp_path / "user/agents", "one")
    agent(tmp_path / "user/agents", "two")
    bad = agent(project / ".pisub/agents", "one", keys="runner: {type: nothing}")
    catalog = found(tmp_path)
    assert [each.name for each in catalog.agents] == ["surveyor", "two"]
    assert [(each.file, each.line, each.field, each.is_blocking) for each in catalog.diagnostics] == [
        (str(bad), 4, "runner.type", True)
    ]
    with pytest.raises(InvalidAgentError, match="invalid configuration") as caught:
        catalog.get("one")
    assert (caught.value.file, caught.value.line, caught.value.field) == (str(bad), 4, "runner.type")


def test_a_malformed_lower_file_blocks_nothing(tmp_path: Path, project: Path) -> None:
    agent(tmp_path / "user/agents", "one", keys="runner: {type: nothing}")
    top = agent(project / ".pisub/agents", "one")
    catalog = found(tmp_path)
    assert catalog.get("one").file == top
    assert [each.is_blocking for each in catalog.diagnostics] == [False]


def test_a_file_without_a_description_is_passed_over_with_a_note(tmp_path: Path, project: Path) -> None:
    agent(tmp_path / "user/agents", "one")
    path = project / ".pisub/agents/one.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: one\n---\n")
    catalog = found(tmp_path)
    assert catalog.get("one").source == "user"
    assert [(each.field, each.is_blocking) for each in catalog.diagnostics] == [("description", False)]


def test_odd_files_become_diagnostics(tmp_path: Path, project: Path) -> None:
    folder = project / ".pisub/agents"
    folder.mkdir(parents=True)
    (folder / "bytes.md").write_bytes(b"---\nname: bytes\ndescription: \xff\n---\n")
    os.mkfifo(folder / "pipe.md")
    (folder / "gone.md").symlink_to(folder / "nowhere")
    (folder / "big.md").write_bytes(b"---\n" + b"x" * (1 << 21))
    catalog = found(tmp_path)
    assert [(each.name, each.line, each.is_blocking) for each in catalog.diagnostics] == [
        ("big", None, True),
        ("bytes", 3, True),
        ("gone", None, True),
        ("pipe", None, True),
    ]
    assert [each.name for each in catalog.agents] == ["surveyor"]


def test_a_name_that_is_not_utf8_is_a_diagnostic(tmp_path: Path, project: Path) -> None:
    folder = project / ".pisub/agents"
    folder.mkdir(parents=True)
    with open(os.fsencode(folder) + b"/\xff.md", "wb") as file:  # noqa: PTH123  # pathlib has no bytes
        file.write(b"---\nname: odd\ndescription: d\n---\n")
    assert [(each.name, each.is_blocking) for each in found(tmp_path).diagnostics] == [("odd", True)]


def test_of_two_files_with_one_name_in_a_folder_the_first_wins_and_it_is_said(tmp_path: Path, project: Path) -> None:
    first = agent(project / ".pisub/agents", "one", file="a.md")
    second = agent(project / ".pisub/agents", "one", file="b.md")
    catalog = found(tmp_path)
    assert catalog.get("one").file == first
    assert [(each.file, each.field) for each in catalog.diagnostics] == [(str(second), "name")]


def test_an_alias_of_two_agents_is_an_error_that_names_both(tmp_path: Path, project: Path) -> None:
    agent(project / ".pisub/agents", "one", keys="alias: x")
    agent(project / ".pisub/agents", "two", keys="alias: x")
    with pytest.raises(InvalidAgentError, match="one, two"):
        found(tmp_path).get("x")


def test_an_unknown_name_gets_names_that_are_near(tmp_path: Path, project: Path) -> None:
    with pytest.raises(UnknownAgentError, match="Did you mean surveyor"):
        found(tmp_path).get("surveyr")


def test_two_hundred_agents_are_found_fast_and_only_their_heads_are_parsed(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(200):
        path = agent(project / ".pisub/agents", f"agent-{number}", keys="tools: [read, bash]\nmodel: small")
        path.write_text(path.read_text() + "x: [" * 5_000)
    blocks: list[str] = []
    real = frontmatter.parse

    def parse(block: str) -> frontmatter.Mapping:
        blocks.append(block)
        return real(block)

    monkeypatch.setattr(frontmatter, "parse", parse)
    began = time.perf_counter()
    catalog = found(tmp_path)
    took = time.perf_counter() - began
    assert len(catalog.agents) == 201
    assert max(len(block) for block in blocks) < 500
    assert took < 1.0  # 60 ms on an idle machine; the bound leaves room for a busy one
