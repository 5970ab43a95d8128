"""What the surveyor reads out of source and build files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pisub.agents.surveyor.analyse import analyse_file
from pisub.agents.surveyor.git import parse_history
from pisub.agents.surveyor.imports import build_graph, outside_packages
from pisub.agents.surveyor.languages import language_of
from pisub.agents.surveyor.model import Commit, Definition, EntryPoint, GitFacts, Import, Note, SourceFacts
from tests.support.survey_trees import SHOP, make_tree, survey_of


def facts(path: str, text: str, *, is_executable: bool = False) -> SourceFacts:
    return analyse_file(path, text, language_of(path), is_generated=False, is_executable=is_executable)


def test_a_python_file_is_read_by_its_syntax_tree() -> None:
    assert facts("src/shop/app.py", SHOP["src/shop/app.py"]) == SourceFacts(
        imports=(
            Import("os"),
            Import("requests"),
            Import("", 1, ("stock",)),
            Import("money", 1, ("Price",)),
        ),
        definitions=(Definition("function", "main", 8, "Run it: a | b."),),
        notes=(Note("TODO", 13, "ask `who` pays | how"),),
    )


@pytest.mark.parametrize("text", ["def (:", "\0", "(" * 5_000, "-" * 100_000 + "1", "x = '\\d'\n" + "(" * 300])
def test_python_that_does_not_parse_is_named_and_no_error(text: str) -> None:
    assert facts("a.py", text).problem.startswith("does not parse")


def test_invalid_escapes_of_others_are_not_our_warnings() -> None:
    assert facts("a.py", "import os\nx = '\\d'\n").imports == (Import("os"),)


def test_imports_in_functions_and_for_type_checking_are_lazy() -> None:
    text = (
        "if TYPE_CHECKING:\n    import a\nelse:\n    import b\n"
        "try:\n    import c\nexcept E:\n    def f():\n        import d\n"
    )
    assert [(each.module, each.is_lazy) for each in facts("x.py", text).imports] == [
        ("a", True),
        ("b", False),
        ("c", False),
        ("d", True),
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("pyproject.toml", [EntryPoint("script", "shop", "shop.app:main")]),
        ("package.json", [EntryPoint("npm main", "web/index.js"), EntryPoint("npm script", "build", "tsc | cat")]),
        ("Makefile", [EntryPoint("make target", "all"), EntryPoint("make target", "test")]),
        ("Dockerfile", [EntryPoint("ENTRYPOINT", "Dockerfile", '["shop"]')]),
        ("src/shop/__main__.py", [EntryPoint("python module", "src/shop/__main__.py")]),
    ],
)
def test_entry_points_are_found_in_build_files(path: str, expected: list[EntryPoint]) -> None:
    assert list(facts(path, SHOP[path]).entry_points) == expected


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pyproject.toml", "x = ["),
        ("pyproject.toml", "project = 1"),
        ("pyproject.toml", "x = " + "[" * 20_000),
        ("package.json", "[1]"),
        ("package.json", "[" * 100_000),
        ("package.json", '{"bin": 3, "scripts": []}'),
        ("Cargo.toml", "bin = [1]"),
    ],
)
def test_a_broken_build_file_is_no_error(path: str, text: str) -> None:
    assert all(each.name == "" for each in facts(path, text).entry_points)


def test_an_executable_with_an_interpreter_is_an_entry_point() -> None:
    found = analyse_file("run", "#!/bin/sh -e\n", "Shell", is_generated=False, is_executable=True)
    assert found.entry_points == (EntryPoint("executable", "run", "/bin/sh -e"),)


@pytest.mark.parametrize(
    ("path", "text", "count", "frameworks"),
    [
        ("tests/test_app.py", SHOP["tests/test_app.py"], 2, ("pytest",)),
        ("shop/app.py", "def test_x(): ...\n", 0, ()),
        ("web/index.test.ts", SHOP["web/index.test.ts"], 2, ()),
        ("a_test.go", "func TestX(t *testing.T) {}\n", 1, ("go test",)),
        ("src/lib.rs", "#[test]\nfn x() {}\n#[tokio::test]\n", 2, ("cargo test",)),
    ],
)
def test_tests_are_counted(path: str, text: str, count: int, frameworks: tuple[str, ...]) -> None:
    found = facts(path, text)
    assert (found.test_count, found.test_frameworks) == (count, frameworks)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = 1  # TODO(ann): later", [Note("TODO", 1, "(ann): later")]),
        ("// FIXME", [Note("FIXME", 1, "")]),
        (" * HACK - no */", [Note("HACK", 1, "no")]),
        ("todo = 'TODO'", []),
        ("// MASTODON TODOS", []),
    ],
)
def test_notes_are_words_in_comments(line: str, expected: list[Note]) -> None:
    assert list(facts("a.c", line).notes) == expected


def test_files_are_joined_by_their_imports(tmp_path: Path) -> None:
    survey = survey_of(make_tree(tmp_path, SHOP))
    graph = build_graph(survey.files)
    assert graph.edges == {
        "src/shop/__main__.py": ("src/shop/app.py",),
        "src/shop/app.py": ("src/shop/money.py", "src/shop/stock.py"),
        "src/shop/lazy.py": ("src/shop/app.py",),
        "src/shop/money.py": ("src/shop/stock.py",),
        "src/shop/stock.py": ("src/shop/money.py",),
        "tests/test_app.py": ("src/shop/app.py",),
        "web/index.js": ("web/lib/tool.ts",),
        "web/lib/tool.ts": ("web/index.js",),
    }
    assert graph.cycles() == (
        ("src/shop/money.py", "src/shop/stock.py"),
        ("web/index.js", "web/lib/tool.ts"),
    )
    assert outside_packages(survey.files, frozenset({"os"})) == {
        "requests": 1,
        "pytest": 1,
        "left": 1,
        "@scope/pkg": 1,
    }


def test_a_lazy_import_makes_no_cycle(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a.py": "import b\n", "b.py": "def f():\n    import a\n"})
    graph = build_graph(survey_of(tmp_path).files)
    assert (graph.edges, graph.cycles()) == ({"a.py": ("b.py",), "b.py": ("a.py",)}, ())


def test_a_chain_deeper_than_the_stack_is_no_error(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"m{n}.py": f"import m{n + 1}\n" for n in range(1_500)} | {"m1500.py": "import m0\n"})
    assert [len(group) for group in build_graph(survey_of(tmp_path).files).cycles()] == [1501]


def test_git_output_is_read_with_any_bytes() -> None:
    log = b"abc\n2024-01-02\nAnn\nFirst | commit\0\xff\n2024-01-01\n\xff\n\0broken"
    names = b"\na.py\0b\xff\0\na.py\0\nb\xff\0c\0"
    assert parse_history(log, names) == GitFacts(
        (Commit("abc", "2024-01-02", "Ann", "First | commit"), Commit("\ufffd", "2024-01-01", "\ufffd", "")),
        (("a.py", 2), ("b\udcff", 2)),
        500,
    )
    assert parse_history(b"", b"") is None
