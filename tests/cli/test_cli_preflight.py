"""`pisub agents` and `pisub preflight` as a user types them, and what `--allow-…` means for runs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pisub.agents.trust import trust
from pisub.cli.exits import Exit
from pisub.record.ceilings import register_ceiling
from pisub.record.layout import Layout
from tests.support.eventually import HANG_S, eventually
from tests.support.project import Project, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")


def add(project: Project, name: str, keys: str) -> Path:
    path = project.root / f".pisub/agents/{name}.md"
    path.write_text(f"---\nname: {name}\ndescription: d\n{keys}\n---\nDo it.\n")
    trust(project.settings, project.root)
    return path


def test_agents_says_where_each_comes_from_and_what_it_replaces(project: Project, private_places: Path) -> None:
    mine = add(project, "scout", "runner: {type: external-cli, argv: [cat]}")
    (private_places / "config/config.toml").write_text("[agents.oracle]\ndisabled = true\n")
    outcome = project.pisub("agents")
    assert outcome.code == 0
    lines = {line.split()[0]: line for line in outcome.out.splitlines()}
    assert lines["scout"].split()[1:3] == ["project", "external-cli"]
    assert "(needs a model engine)" in lines["worker"]
    assert "oracle" not in lines
    assert f"scout is the project's ({mine}), instead of builtin (" in outcome.err
    assert "disabled in config.toml: oracle" in outcome.err
    assert "prompts that need a model engine, and none is configured" in outcome.err
    document = project.pisub("agents", "--json").json
    (scout,) = [each for each in document["agents"] if each["name"] == "scout"]
    assert (scout["source"], scout["file"], scout["needsEngine"]) == ("project", str(mine), False)
    assert [each["source"] for each in scout["shadows"]] == ["builtin"]
    assert document["disabled"] == ["oracle"]
    assert {each["name"] for each in project.pisub("agents", "--scope", "user", "--json").json["agents"]} == {
        "delegate", "researcher", "reviewer", "scout", "surveyor", "worker",
    }  # fmt: skip


def test_a_program_runs_a_builtin_prompt_where_the_configuration_names_one(
    project: Project, private_places: Path
) -> None:
    refused = project.pisub("run", "-d", "scout", "look")
    assert (refused.code, "needs a model engine" in refused.err) == (Exit.USAGE, True)
    (private_places / "config/config.toml").write_text(
        '[agents.scout]\nrunner = {type = "external-cli", argv = ["cat"]}\n'
    )
    run_id = project.launch("scout", "The place of X.")
    assert project.pisub("wait", run_id).code == 0
    out = project.pisub("result", run_id).out
    assert out.startswith("You look around in a codebase")
    assert out.endswith("\n\nThe place of X.\n")


def test_restricted_agents_stay_visible_in_a_section_of_their_own(project: Project) -> None:
    layout = Layout.of(project.settings)
    layout.prepare()
    register_ceiling(layout, "s", "plan", {"allowedAgents": ["echo"]})
    out = project.pisub("agents", "--session", "s").out
    free, _, restricted = out.partition("Restricted agents (not executable in this session; capability ceiling: plan)")
    assert [line.split()[0] for line in free.splitlines() if line] == ["AGENT", "echo"]
    assert "surveyor" in restricted
    document = project.pisub("agents", "--session", "s", "--json").json
    assert [each["name"] for each in document["agents"] if not each["isRestricted"]] == ["echo"]
    assert document["ceiling"]["sources"] == ["plan"]
    assert "Restricted" not in project.pisub("agents", "--session", "other").out


def test_preflight_shows_the_digest_that_a_run_then_reports(project: Project) -> None:
    options = ("--allow-tools", "read, ext:checkpoint-bridge", "--output", "r.md")
    shown = project.pisub("preflight", "echo", "the task", "--json", *options).json
    assert (shown["kind"], shown["ok"]) == ("preflight", True)
    run_id = project.launch("echo", "the task", *options)
    assert project.pisub("wait", run_id).code == 0
    run = project.pisub("show", run_id, "--json").json
    digest = shown["contract"]["launchContractDigest"]
    assert [run[key]["launchContractDigest"] for key in ("status", "result")] == [digest, digest]
    assert run["spec"]["launch"]["launchContractDigest"] == digest
    assert run["status"]["definitionDigest"] == shown["contract"]["agent"]["definitionDigest"]
    assert (project.root / "r.md").read_text() == "the task"
    again = project.pisub("preflight", "echo", "the task", "--json", "--run-id", run_id, *options).json
    assert again["contract"]["digest"] == run["status"]["contractDigest"]
    text = project.pisub("preflight", "echo", "the task", *options).out
    assert digest in text
    assert "0 tools removed, 0 extension entries removed (capability ceiling: launch)" in text


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (("nobody", "x"), "missing_agent", Exit.NOT_FOUND),
        (("broken", "x"), "missing_agent", Exit.NOT_FOUND),
        (("echo", "x", "--skill", "gone"), "missing_skill", Exit.NOT_FOUND),
        (("echo", "x", "--cwd", "/nowhere/at/all"), "invalid_cwd", Exit.USAGE),
        (("echo", "x", "--context", "both"), "unsupported_mode", Exit.USAGE),
        (("echo", "x", "--allow-agents", ""), "restricted_agent", Exit.REFUSED),
        (("worker", "x", "--allow-tools", "read"), "denied_required_tool", Exit.REFUSED),
    ],
)
def test_what_cannot_be_launched_has_a_code_and_an_exit_code(
    project: Project, arguments: tuple[str, ...], code: str, exit_code: Exit
) -> None:
    add(project, "broken", "timeoutMs: soon")
    before = sorted(project.root.rglob("*"))
    outcome = project.pisub("preflight", *arguments)
    assert outcome.code == exit_code
    assert f"not launched: {code}: " in outcome.err
    document = project.pisub("preflight", *arguments, "--json")
    assert (document.code, document.json["ok"], document.json["code"]) == (exit_code, False, code)
    assert sorted(project.root.rglob("*")) == before
    assert not Layout.of(project.settings).runs.exists()


def test_a_run_with_a_ceiling_of_its_own_is_refused_or_narrowed(project: Project) -> None:
    refused = project.pisub("run", "-d", "echo", "x", "--allow-agents", "talk")
    assert (refused.code, "does not allow agent 'echo'" in refused.err) == (Exit.REFUSED, True)
    (project.root / "answers.yaml").write_text("[]\n")
    asked = project.pisub("run", "ask", "x", "--deny-extensions", "--answers", "answers.yaml")
    assert (asked.code, "may not ask" in asked.err) == (Exit.FAILED, True)


def test_a_host_puts_a_ceiling_over_its_session_and_takes_it_along_when_it_ends(project: Project) -> None:
    (project.root / "answers.yaml").write_text("[]\n")
    host = project.start("host", "--session", "s", "--answers", "answers.yaml", "--allow-agents", "talk")
    try:

        def is_refused() -> bool:
            return project.pisub("preflight", "echo", "--session", "s").code == Exit.REFUSED

        eventually(is_refused, what="the ceiling holds")
        assert project.pisub("run", "-d", "echo", "x", "--session", "s").code == Exit.REFUSED
        assert project.pisub("run", "-d", "talk", "x", "--session", "s").code == Exit.OK
        assert project.pisub("run", "-d", "echo", "x", "--session", "other").code == Exit.OK
    finally:
        host.send_signal(signal.SIGKILL)
        host.communicate(timeout=HANG_S)
    assert project.pisub("run", "-d", "echo", "x", "--session", "s").code == Exit.OK
