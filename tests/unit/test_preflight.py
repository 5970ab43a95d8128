"""A preflight: what it answers, in which order it looks, what it leaves untouched, and its digests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pisub.agents.discovery import AgentFinder
from pisub.agents.packages import InstalledPackages
from pisub.config import Settings
from pisub.errors import InvalidArgumentError
from pisub.preflight import Accepted, LaunchContract, ModelInfo, PreflightRequest, Refused, Wishes, preflight
from pisub.preflight.contract import Candidate
from pisub.record.layout import Layout
from pisub.runs.ceilings import check_ceiling

MODELS = (ModelInfo(provider="p", id="one"), ModelInfo(provider="p", id="two"))


class World:
    """A project, a user's folder, and preflights in them."""

    def __init__(self, base: Path) -> None:
        self.root = base / "project"
        self.user = base / "user/agents"
        (self.root / ".git").mkdir(parents=True)
        self.settings = Settings(home=base / "home")
        self.layout = Layout.of(self.settings)

    def agent(self, name: str, keys: str = "", *, body: str = "Do it.", folder: Path | None = None) -> Path:
        path = (folder or self.root / ".pisub/agents") / f"{name.replace('/', '.')}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\nname: {name}\ndescription: d\n{keys}\n---\n{body}\n")
        return path

    def skill(self, name: str, text: str = "How to.") -> Path:
        path = self.root / f".pisub/skills/{name}/SKILL.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\nname: {name}\ndescription: d\n---\n{text}\n")
        return path

    def ask(self, agent: str = "a", *, recorded: bool = True, **fields: Any) -> Accepted | Refused:
        wishes = {key: fields.pop(key) for key in tuple(fields) if key in Wishes.__struct_fields__}
        values: dict[str, Any] = {"agent": agent, "task": "t", "cwd": self.root, **fields}
        finder = AgentFinder(self.settings, user_folder=self.user, packages=InstalledPackages(list))
        request = PreflightRequest(wishes=Wishes(**wishes), **values)
        return preflight(self.settings, self.layout if recorded else None, finder, request)

    def contract(self, agent: str = "a", **fields: Any) -> LaunchContract:
        answer = self.ask(agent, **fields)
        assert isinstance(answer, Accepted), answer
        return answer.contract

    def refused(self, agent: str = "a", **fields: Any) -> Refused:
        answer = self.ask(agent, **fields)
        assert isinstance(answer, Refused)
        return answer


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


#: What makes each of the contract's checks fail, in the order in which they are made.
FAULTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("invalid_cwd", {"cwd": Path("/nowhere/at/all")}),
    ("unsupported_mode", {"context": "both"}),
    ("invalid_artifact_dir", {"artifact_dir": "here"}),
    ("invalid_intercom_bridge", {"intercom_bridge": {"mode": "never"}}),
    ("missing_agent", {"agent": "broken"}),
    ("ambiguous_agent", {"agent": "twin"}),
    ("missing_agent", {"agent": "nobody"}),
    ("invalid_extension_bindings", {"extension_bindings": {"x": 1}}),
    ("restricted_agent", {"ceiling": check_ceiling({"allowedAgents": ["b"], "allowedTools": ["grep"]}, "plan")}),
    ("missing_skill", {"skill": "pisub"}),
    ("thinking_ceiling", {"thinking": "high", "thinking_ceiling": "low"}),
    ("denied_required_tool", {"skill": "gone", "host_available_builtins": ["grep"]}),
    ("missing_skill", {"skill": "gone"}),
)
NAMES = {5: "broken", 6: "twin", 7: "nobody"}


def prepared(world: World) -> None:
    world.agent("a", "model: one")
    world.agent("broken", "timeoutMs: soon")
    world.agent("twin", "package: x")
    (world.root / ".pisub/agents/twin.md").rename(world.root / ".pisub/agents/1.md")
    world.agent("twin", "package: y")


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_each_fault_has_its_code(world: World, number: int) -> None:
    prepared(world)
    code, fields = FAULTS[number]
    assert world.refused(**fields).code == code


@pytest.mark.parametrize("first", range(len(FAULTS) - 1))
def test_of_two_faults_the_earlier_check_answers(world: World, first: int) -> None:
    prepared(world)
    for code, fields in [FAULTS[first]]:
        for _, later in FAULTS[first + 1 :]:
            # What both need cannot be wrong in two ways at once.
            if not fields.keys() & later.keys():
                assert world.refused(**(later | fields)).code == code, later


def test_a_broken_file_is_one_diagnostic_and_an_unknown_name_none(world: World) -> None:
    prepared(world)
    broken = world.refused("broken")
    assert "invalid configuration" in broken.message
    assert [(each.code, each.severity) for each in broken.diagnostics] == [("missing_agent", "error")]
    unknown = world.refused("nobody")
    assert unknown.diagnostics == ()
    for words in (str(world.root), str(world.user), "not there", "x.twin", "surveyor"):
        assert words in unknown.message


def test_other_bridge_faults_have_the_same_code(world: World) -> None:
    world.agent("a")
    for fields in ({"orchestrator_target": "  "}, {"orchestrator_target": 5}, {"intercom_bridge": []}):
        assert world.refused(**fields).code == "invalid_intercom_bridge"


def test_a_program_takes_no_bindings(world: World) -> None:
    world.agent("a", "runner: {type: external-cli, argv: [cat]}")
    assert world.refused(extension_bindings={"x/1": 1}).code == "unsupported_mode"


def test_a_model_that_the_host_lacks_is_raised_and_an_inherited_one_is_believed(world: World) -> None:
    world.agent("a", "model: three")
    world.agent("b")
    with pytest.raises(InvalidArgumentError, match="Unknown subagent model"):
        world.ask(available_models=MODELS)
    own = ModelInfo(provider="q", id="own")
    assert world.contract("b", available_models=MODELS, parent_model=own).model == "q/own"


def test_a_program_chooses_its_model_itself(world: World) -> None:
    world.agent("a", "model: three\nrunner: {type: external-cli, argv: [cat]}")
    contract = world.contract(available_models=MODELS)
    assert (contract.model, contract.model_candidates) == (None, ())


RUNNER = "runner: {type: external-cli, argv: [cat]}"


@pytest.mark.parametrize(
    ("keys", "fields", "words"),
    [
        (RUNNER, {}, []),
        (RUNNER, {"context": "fork"}, ["fork"]),
        (RUNNER, {"recorded": False}, ["sessionRoot"]),
        (RUNNER, {"recorded": False, "session_root": Path("/s")}, []),
        (RUNNER, {"recorded": False, "session_dir": Path("/s")}, []),
        (RUNNER, {"nested_root_run_id": "r"}, ["nested"]),
        ("", {}, ["engine"]),
        ("model: one", {}, ["availableModels", "engine"]),
        ("model: one", {"available_models": MODELS}, ["engine"]),
        ("", {"intercom_bridge": {"instructionFile": "named.txt"}}, ["orchestratorTarget", "engine"]),
        ("", {"intercom_bridge": {"instructionFile": "named.txt"}, "orchestrator_target": "me"}, ["engine"]),
        ("", {"intercom_bridge": {"instructionFile": "named.txt", "mode": "off"}}, ["engine"]),
        ("model: one", {"context": "fork", "recorded": False}, ["fork", "sessionRoot", "availableModels", "engine"]),
    ],
)
def test_what_only_a_host_could_prove_is_said(
    world: World, keys: str, fields: dict[str, Any], words: list[str]
) -> None:
    world.agent("a", keys)
    (world.root / "named.txt").write_text("Ask {orchestratorTarget}.")
    notes = world.contract(**fields).diagnostics
    assert [(each.code, each.severity) for each in notes] == [("host_required", "host-required")] * len(words)
    for note, word in zip(notes, words, strict=True):
        assert word in note.message


def test_an_instruction_file_that_cannot_be_read_is_a_warning_and_the_default_text_is_used(world: World) -> None:
    world.agent("a")
    plain = world.contract()
    odd = world.contract(intercom_bridge={"instructionFile": "gone.txt"})
    assert ("instruction_file", "warning") in [(each.code, each.severity) for each in odd.diagnostics]
    assert odd.launch_contract_digest == plain.launch_contract_digest


def test_the_session_and_the_record_have_their_places_by_the_run_and_none_is_made(world: World) -> None:
    world.agent("a", RUNNER)
    roots = world.contract(run_id="r1", session_root=Path("/s")).roots
    assert (roots.session_root, roots.session_dir, roots.session_file) == (
        "/s/r1", "/s/r1/run-0", "/s/r1/run-0/session.jsonl",
    )  # fmt: skip
    roots = world.contract(run_id="r1", session_root=Path("/s"), session_dir=Path("/d")).roots
    assert (roots.session_dir, roots.session_file) == ("/d/r1/run-0", "/d/r1/run-0/session.jsonl")
    paths = world.layout.runs / "r1"
    roots = world.contract(run_id="r1", artifacts=False).roots
    assert (roots.session_file, roots.artifacts_dir) == (str(paths / "session.jsonl"), None)
    assert msgspec.to_builtins(roots.lifecycle) == {
        "asyncDir": str(paths),
        "resultPath": str(paths / "result.json"),
        "statusPath": str(paths / "status.json"),
        "eventsPath": str(paths / "events.jsonl"),
        "processTerminalPath": str(paths / "process-terminal.json"),
        "processTerminalCandidatePath": str(paths / "process-terminal.json"),
    }
    assert not world.layout.root.exists()


def everything(directory: Path) -> dict[str, tuple[int, ...]]:
    def walk() -> Iterator[Path]:
        for folder, _, files in os.walk(directory):
            yield Path(folder)
            yield from (Path(folder, name) for name in files)

    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in walk()}


def test_a_preflight_changes_nothing(world: World, tmp_path: Path) -> None:
    world.agent("a", "skills: s\noutput: out/r.md")
    world.skill("s")
    before = everything(tmp_path)
    world.contract(session_root=tmp_path / "sessions", context="fork", artifact_dir="project")
    world.refused("nobody")
    assert everything(tmp_path) == before


def test_what_is_shadowed_is_listed_of_all_scopes(world: World) -> None:
    world.agent("scout", RUNNER)
    mine = world.agent("scout", RUNNER, folder=world.user)
    agent = world.contract("scout", agent_scope="project").agent
    assert [(each.source, each.selected) for each in agent.shadowed_candidates] == [("builtin", False), ("user", False)]
    assert Candidate(name="scout", source="user", file_path=str(mine)) in agent.shadowed_candidates


def test_the_configured_context_counts_before_the_agents(world: World, tmp_path: Path) -> None:
    session = tmp_path / "session.jsonl"
    session.touch()
    world.agent("a", "defaultContext: fork")
    fields: dict[str, Any] = {"parent_session_file": session, "parent_leaf_id": "leaf"}
    assert world.contract(**fields).context == "fork"
    assert world.contract(**(fields | {"parent_session_file": tmp_path / "gone"})).context == "fresh"
    world.settings = Settings(home=tmp_path / "home", default_context="fresh")
    assert world.contract(**fields).context == "fresh"
    assert world.contract(**fields, context="fork").context == "fork"


def digests(contract: LaunchContract) -> tuple[str, str, str]:
    return contract.agent.definition_digest, contract.launch_contract_digest, contract.digest


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({}, (False, False, False)),
        ({"run_id": "other"}, (False, False, True)),
        ({"context": "fork"}, (False, False, True)),
        ({"task": "other"}, (False, True, True)),
        ({"model": "two"}, (False, True, True)),
        ({"fast": True}, (False, True, True)),
        ({"fast": False}, (False, False, False)),
        ({"thinking": "high"}, (False, True, True)),
        ({"skill": False}, (False, True, True)),
        ({"skill": ["s"]}, (False, False, False)),
        ({"output": "r.md"}, (False, True, True)),
        ({"output_mode": "inline"}, (False, False, False)),
        ({"output": "r.md", "output_mode": "file-only"}, (False, True, True)),
        ({"output_schema": {"type": "object"}}, (False, True, True)),
        ({"extension_bindings": {"x/1": 1}}, (False, True, True)),
        ({"intercom_bridge": {"mode": "off"}}, (False, True, True)),
        ({"ceiling": check_ceiling({"allowedTools": ["read"]}, "plan")}, (False, True, True)),
        ({"ceiling": check_ceiling({"denyExtensions": False}, "plan")}, (False, False, True)),
    ],
)
def test_equal_inputs_give_equal_digests_and_others_those_that_cover_them(
    world: World, fields: dict[str, Any], changed: tuple[bool, bool, bool]
) -> None:
    world.agent("a", "model: one\ntools: read, write\nskills: s")
    world.skill("s")
    base = digests(world.contract())
    assert digests(world.contract()) == base
    found = digests(world.contract(**fields))
    assert tuple(a != b for a, b in zip(base, found, strict=True)) == changed
    assert {len(each) for each in found} == {64}


def test_an_edit_of_the_file_changes_all_three_and_one_of_a_skill_the_last_two(world: World) -> None:
    world.agent("a", "skills: s")
    world.skill("s")
    base = digests(world.contract())
    world.skill("s", "Another way.")
    skilled = digests(world.contract())
    assert [a == b for a, b in zip(base, skilled, strict=True)] == [True, False, False]
    world.agent("a", "skills: s", body="Do it well.")
    edited = digests(world.contract())
    assert [a == b for a, b in zip(skilled, edited, strict=True)] == [False, False, False]


def test_a_comment_in_the_file_shows_in_the_definition(world: World) -> None:
    world.agent("a")
    base = world.contract().agent.definition_digest
    world.agent("a", "# a comment")
    assert world.contract().agent.definition_digest != base


def test_the_bridge_never_changes_the_definition_and_widens_no_empty_list(world: World) -> None:
    for name, keys in (("a", "tools: read"), ("b", "tools:"), ("c", "tools: mcp:x/y"), ("d", "")):
        world.agent(name, keys)
        on, off = world.contract(name), world.contract(name, intercom_bridge={"mode": "off"})
        assert on.agent.definition_digest == off.agent.definition_digest
        assert on.launch_contract_digest != off.launch_contract_digest
        assert (on.intercom_bridge.active, off.intercom_bridge.active) == (True, False)
        expected = {"a": ("read", "contact_supervisor"), "b": (), "c": (), "d": None}[name]
        assert on.tools.effective_allowlist == expected
        assert on.tools.mcp == off.tools.mcp


def test_the_contract_holds_no_prompt_and_no_task(world: World) -> None:
    world.agent("a", body="A secret prompt.")
    text = msgspec.json.encode(world.ask(task="A secret task.")).decode()
    assert "secret" not in text
