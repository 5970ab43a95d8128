"""Where agents are found, and which of several wins."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pisub.agents import frontmatter
from pisub.agents.catalog import Catalog, Scope
from pisub.agents.discovery import AgentFinder, builtin_names, discover, find_project_root
from pisub.agents.packages import InstalledPackages, package_folders
from pisub.config import Settings
from pisub.errors import AmbiguousAgentError, InvalidAgentError, UnknownAgentError

BUILTIN = {"delegate", "oracle", "researcher", "reviewer", "scout", "surveyor", "worker"}


def agent(folder: Path, name: str, *, keys: str = "", file: str | None = None) -> Path:
    path = folder / (file or f"{name}.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: {folder.parent.name}\n{keys}\n---\nbody\n")
    return path


def added(catalog: Catalog) -> list[str]:
    """The agents that are not pisub's own."""
    return [each.name for each in catalog.agents if each.source != "builtin"]


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
    assert (added(catalog), catalog.diagnostics) == (["deep"], ())


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
    assert added(catalog) == ["two"]
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
    assert added(catalog) == []


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
    with pytest.raises(AmbiguousAgentError, match="one, two"):
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
    assert len(added(catalog)) == 200
    assert max(len(block) for block in blocks) < 1_000
    assert took < 1.0  # 60 ms on an idle machine; the bound leaves room for a busy one


def finder(tmp_path: Path, settings: Settings | None = None, *packages: tuple[str, Path]) -> AgentFinder:
    installed = InstalledPackages(lambda: list(packages))
    return AgentFinder(settings or Settings(), user_folder=tmp_path / "user/agents", packages=installed)


def test_a_file_is_read_again_only_when_it_changed(tmp_path: Path, project: Path) -> None:
    folder = project / ".pisub/agents"
    for number in range(200):
        agent(folder, f"agent-{number}")
    finds = finder(tmp_path)
    assert len(added(finds.find(project))) == 200
    first = finds.files_read
    assert first == 200 + len(BUILTIN)
    assert len(added(finds.find(project))) == 200
    assert finds.files_read == first
    text = (folder / "agent-7.md").read_text()
    (folder / "agent-7.md").write_text(text.replace("name: agent-7", "name: agent-x"))  # as long as before
    agent(folder, "new")
    (folder / "agent-8.md").unlink()
    names = added(finds.find(project))
    assert (len(names), finds.files_read) == (200, first + 2)
    assert {"agent-x", "new"} <= set(names)
    assert not {"agent-7", "agent-8"} & set(names)


def test_a_repaired_file_is_used_without_a_restart(tmp_path: Path, project: Path) -> None:
    path = agent(project / ".pisub/agents", "one", keys="timeoutMs: soon")
    finds = finder(tmp_path)
    with pytest.raises(InvalidAgentError):
        finds.find(project).get("one")
    path.write_text(path.read_text().replace("soon", "1000"))
    assert finds.find(project).get("one").timeout_ms == 1000


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("user", ["mine", "one", "packed"]),
        ("project", ["one", "packed", "ours"]),
        ("both", ["mine", "one", "packed", "ours"]),
        ("anything", ["mine", "one", "packed", "ours"]),
    ],
)
def test_a_scope_leaves_out_whose_agents_are_not_wanted(
    tmp_path: Path, project: Path, scope: Scope, expected: list[str]
) -> None:
    agent(tmp_path / "pack", "packed")
    for folder, name in ((tmp_path / "user/agents", "mine"), (project / ".pi/agents", "ours")):
        agent(folder, name)
        agent(folder, "one")
    catalog = finder(tmp_path, None, ("acme", tmp_path / "pack")).find(project, scope=scope)
    assert sorted(added(catalog)) == sorted(expected)
    assert {each.name for each in catalog.agents} >= BUILTIN
    one = catalog.get("one")
    assert one.source == ("user" if scope == "user" else "project")
    assert [each.source for each in catalog.shadowed_by(one)] == ["project" if scope == "user" else "user"]


def test_the_order_is_builtin_package_user_project_runtime(tmp_path: Path, project: Path) -> None:
    finds = finder(tmp_path, None, ("acme", tmp_path / "pack"))
    sources: list[str] = []
    for folder in (tmp_path / "pack", tmp_path / "user/agents", project / ".claude/agents"):
        sources.append(finds.find(project).get("scout").source)
        agent(folder, "scout")
    top = finds.find(project).get("scout")
    assert [*sources, top.source] == ["builtin", "package", "user", "project"]
    assert [each.source for each in finds.find(project).shadowed_by(top)] == ["user", "package", "builtin"]


def test_an_installed_package_is_found_by_its_entry_point_without_being_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_pack").mkdir()
    (tmp_path / "acme_pack/__init__.py").write_text("raise RuntimeError('imported')\n")
    agent(tmp_path / "acme_pack/agents", "packed")
    info = tmp_path / "acme_pack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-pack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[pisub.agents]\nacme = acme_pack.agents\ngone = acme_pack.nothing\nx = nowhere\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert package_folders() == [("acme", tmp_path / "acme_pack/agents")]


def test_installed_packages_are_looked_up_again_when_an_import_directory_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    found: list[int] = []
    installed = InstalledPackages(lambda: found.append(1) or [])  # type: ignore[func-returns-value]
    installed.folders()
    installed.folders()
    assert len(found) == 1
    os.utime(tmp_path, ns=(1, 1))
    installed.folders()
    assert len(found) == 2


def test_a_local_name_finds_a_packaged_agent_unless_it_fits_several(tmp_path: Path, project: Path) -> None:
    folder = project / ".pisub/agents"
    agent(folder, "bar", keys="package: foo", file="1.md")
    assert found(tmp_path).get(" bar ").name == "foo.bar"
    agent(folder, "bar", keys="package: baz", file="2.md")
    assert found(tmp_path).get("foo.bar").name == "foo.bar"
    with pytest.raises(AmbiguousAgentError, match=r"Ambiguous agent name 'bar': baz\.bar, foo\.bar"):
        found(tmp_path).get("bar")
    with pytest.raises(UnknownAgentError):
        found(tmp_path).get("Foo.bar")


@pytest.mark.parametrize(
    ("broken", "wanted", "blocks"),
    [
        ("bar", "bar", True),  # before ambiguity
        ("foo/bar", "bar", False),  # a packaged one blocks its whole name only
        ("foo/bar", "foo.bar", True),
    ],
)
def test_what_a_broken_file_of_the_project_blocks(
    tmp_path: Path, project: Path, broken: str, wanted: str, blocks: bool
) -> None:
    agent(tmp_path / "user/agents", "bar", keys="package: baz")
    package, _, name = broken.rpartition("/")
    keys = f"package: {package}\ntimeoutMs: x" if package else "timeoutMs: x"
    agent(project / ".pisub/agents", name, keys=keys)
    catalog = found(tmp_path)
    if blocks:
        with pytest.raises(InvalidAgentError, match="invalid configuration"):
            catalog.get(wanted)
    else:
        assert catalog.get(wanted).name == "baz.bar"


def test_the_configuration_disables_and_changes_agents(tmp_path: Path, project: Path) -> None:
    agent(project / ".pisub/agents", "one", keys="tools: read, bash")
    settings = Settings(agents={"scout": {"disabled": True}, "one": {"tools": ["read"]}, "worker": {"timeoutMs": "x"}})
    catalog = finder(tmp_path, settings).find(project)
    assert catalog.get("one").tools == ("read",)
    with pytest.raises(InvalidAgentError, match="disabled"):
        catalog.get("scout")
    with pytest.raises(InvalidAgentError, match=r"config\.toml: timeoutMs"):
        catalog.get("worker")
    assert [each.name for each in catalog.shadowed if each.is_disabled] == ["scout"]


def test_a_runtime_agent_that_collides_with_any_configured_one_stops_discovery(tmp_path: Path, project: Path) -> None:
    agent(tmp_path / "user/agents", "hidden", keys="alias: h")
    agent(project / ".pisub/agents", "hidden")
    for name in ("hidden", "h"):
        finds = finder(tmp_path)
        finds.runtime.register(name, {"description": "d", "systemPrompt": "p"}, builtin=builtin_names())
        with pytest.raises(InvalidAgentError, match="collides"):
            finds.find(project, scope="project")
    finds = finder(tmp_path)
    registration = finds.runtime.register("own", {"description": "d", "systemPrompt": "p"}, builtin=builtin_names())
    assert finds.find(project).get("own").source == "runtime"
    registration.dispose()
    with pytest.raises(UnknownAgentError):
        finds.find(project).get("own")


def test_every_builtin_agent_is_sound_and_says_what_it_may_do(tmp_path: Path, project: Path) -> None:
    catalog = found(tmp_path)
    assert {each.name for each in catalog.agents} == BUILTIN
    for each in catalog.agents:
        assert len(each.system_prompt) > 200
        assert each.runs_code is (each.name == "surveyor")
    assert [each.name for each in catalog.agents if each.can_ask] == ["surveyor", "worker"]
