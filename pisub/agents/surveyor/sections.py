"""The sections of the report. Each is a function from the survey to lines of Markdown; pure, in a stable order."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from pisub.agents.surveyor.imports import ImportGraph, outside_packages
from pisub.agents.surveyor.languages import NOT_CODE
from pisub.agents.surveyor.markdown import code, counted, plain, size, table
from pisub.agents.surveyor.model import Definition, Note, Survey, SurveyedFile
from pisub.agents.surveyor.parts import in_part
from pisub.agents.surveyor.python_source import is_test_path

MAX_ROWS = 15
MAX_NOTES = 40
MAX_CLOSE_FILES = 30
MAX_CLOSE_DEFINITIONS = 60
MAX_OUTLINE_PER_FILE = 4

_LICENCES = ("license", "licence", "copying", "unlicense")
_CI = (".github/workflows/", ".gitlab-ci.yml", ".circleci/", "azure-pipelines.yml", "Jenkinsfile", ".travis.yml",
    ".woodpecker", "bitbucket-pipelines.yml", ".ci/", ".drone.yml", ".buildkite/")  # fmt: skip


def languages(survey: Survey) -> list[str]:
    """Files, lines and bytes by language."""
    rows: dict[str, list[int]] = {}
    for file in survey.files:
        row = rows.setdefault(file.language, [0, 0, 0])
        row[0] += 1
        row[1] += file.lines or 0
        row[2] += file.size_bytes
    ranked = sorted(rows.items(), key=lambda pair: (-pair[1][1], -pair[1][2], pair[0]))
    return table(
        ("Language", "#Files", "#Lines", "#Size"),
        ((plain(name), f"{row[0]:,}", f"{row[1]:,}", size(row[2])) for name, row in ranked),
    )


def sizes(survey: Survey) -> list[str]:
    """Files, lines and bytes by top directory."""
    rows: dict[str, list[int]] = {}
    for file in survey.files:
        top, slash, _ = file.path.partition("/")
        row = rows.setdefault(f"{top}/" if slash else "", [0, 0, 0])
        row[0] += 1
        row[1] += file.lines or 0
        row[2] += file.size_bytes
    ranked = sorted(rows.items(), key=lambda pair: (-pair[1][1], -pair[1][2], pair[0]))
    lines = table(
        ("Directory", "#Files", "#Lines", "#Size"),
        (
            (code(name) if name else "(top)", f"{row[0]:,}", f"{row[1]:,}", size(row[2]))
            for name, row in ranked[: 2 * MAX_ROWS]
        ),
    )
    return lines + _rest(len(ranked), 2 * MAX_ROWS, "directory", "directories")


def entry_points(survey: Survey) -> list[str]:
    """What can be started."""
    found = sorted({(each.kind, each.name, each.target) for file in survey.files for each in file.facts.entry_points})
    if not found:
        return ["None found: no script, build target, container command, `__main__` or executable."]
    limit = 4 * MAX_ROWS
    lines = table(
        ("Kind", "Name", "What it runs"),
        ((plain(kind), code(name), code(target) if target else "") for kind, name, target in found[:limit]),
    )
    return lines + _rest(len(found), limit, "entry point", "entry points")


def modules(survey: Survey) -> list[str]:
    """The biggest files of code that people wrote."""
    ranked = sorted(_code_files(survey.files), key=lambda file: (-(file.lines or 0), file.path))
    if not ranked:
        return ["No source code found."]
    return _file_table(ranked[:MAX_ROWS]) + _rest(len(ranked), MAX_ROWS, "module", "modules")


def imports(survey: Survey, graph: ImportGraph) -> list[str]:
    """Who is imported most, what comes from outside, which files import each other."""
    lines: list[str] = []
    importers = graph.importers()
    edges = sum(len(targets) for targets in graph.edges.values())
    lines.append(f"{counted(edges, 'import')} between {counted(len(set(graph.edges) | set(importers)), 'file')}.")
    ranked = sorted(importers.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:MAX_ROWS]
    if ranked:
        rows = ((code(path), str(len(sources)), _some(sources, 3)) for path, sources in ranked)
        lines += ["", *table(("Most imported", "#By", "Among them"), rows)]
    standard = frozenset(sys.stdlib_module_names) | {"__future__"}
    outside = sorted(outside_packages(survey.files, standard).items(), key=lambda pair: (-pair[1], pair[0]))
    if outside:
        shown = ", ".join(f"{code(name)} ({count})" for name, count in outside[:MAX_ROWS])
        lines += ["", f"Packages from outside, with the number of files that import them: {shown}."]
    cycles = graph.cycles()
    lines.append("")
    if cycles:
        lines.append(f"{counted(len(cycles), 'cycle')} at import time:")
        lines += ["", *(f"- {len(group)} files: {_some(group, 8)}" for group in cycles[:MAX_ROWS])]
    else:
        lines.append("No cycles at import time.")
    return lines


def notes(survey: Survey) -> list[str]:
    """What the authors left to do."""
    found = [(file.path, note) for file in survey.files for note in file.facts.notes]
    if not found:
        return ["No TODO, FIXME, XXX or HACK in comments."]
    counts = Counter(note.kind for _, note in found)
    summary = ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts))
    lines = [f"{summary}.", "", *_note_list(found[:MAX_NOTES])]
    return lines + _rest(len(found), MAX_NOTES, "note", "notes")


def tests(survey: Survey) -> list[str]:
    """Which tests there are."""
    frameworks = sorted({each for file in survey.files for each in file.facts.test_frameworks})
    found = [file for file in survey.files if file.facts.test_count]
    total = sum(file.facts.test_count for file in found)
    if not found:
        named = [file for file in survey.files if file.language == "Python" and is_test_path(file.path)]
        what = f"No tests found, though {counted(len(named), 'file')} look like tests." if named else "No tests found."
        return [what, *([f"Configured: {', '.join(frameworks)}."] if frameworks else [])]
    code_lines = sum(file.lines or 0 for file in _code_files(survey.files))
    test_lines = sum(file.lines or 0 for file in found)
    lines = [
        (
            f"{counted(total, 'test function')} in {counted(len(found), 'file')}; "
            f"frameworks: {', '.join(frameworks) or 'none recognised'}. "
            f"Their files have {test_lines:,} of {code_lines:,} lines of code."
        ),
        "",
    ]
    ranked = sorted(found, key=lambda file: (-file.facts.test_count, file.path))
    lines += table(
        ("File", "#Tests", "#Lines"),
        ((code(file.path), str(file.facts.test_count), f"{file.lines or 0:,}") for file in ranked[:MAX_ROWS]),
    )
    return lines + _rest(len(ranked), MAX_ROWS, "file", "files")


def papers(survey: Survey) -> list[str]:
    """Licence, readme, changes, continuous integration."""
    paths = [file.path for file in survey.files]
    tops = [path for path in paths if "/" not in path]

    def named(*beginnings: str) -> list[str]:
        return [path for path in tops if path.lower().startswith(beginnings)]

    kinds = (
        ("Readme", named("readme")),
        ("Licence", named(*_LICENCES)),
        ("Changes", named("changelog", "changes", "history", "news")),
        ("Contributing", named("contributing", "hacking")),
        ("Security policy", [path for path in paths if path.lower() in {"security.md", ".github/security.md"}]),
        ("Continuous integration", [path for path in paths if path.startswith(_CI)]),
    )
    return table(("What", "Where"), ((kind, _some(found, 5) if found else "**none**") for kind, found in kinds))


def history(survey: Survey) -> list[str]:
    """The last commits and the files that change most."""
    if survey.git is None:
        return ["No git history: this is no repository, or git is not here."]
    lines = ["Last commits:", ""]
    lines += table(
        ("Commit", "Date", "Author", "Subject"),
        (
            (code(each.short_id), plain(each.date), plain(each.author), plain(each.subject))
            for each in survey.git.commits
        ),
    )
    if survey.git.changed:
        lines += ["", f"Changed most in the last {survey.git.window} commits:", ""]
        lines += table(("File", "#Commits"), ((code(path), str(count)) for path, count in survey.git.changed))
    return lines


def unread(survey: Survey) -> list[str]:
    """What the survey does not cover, and why."""
    lines: list[str] = []
    if survey.listing.is_capped:
        lines.append(
            f"- The tree is bigger than one survey: only {counted(len(survey.listing.paths), 'file')} are in it."
        )
    if survey.listing.skipped:
        shown = ", ".join(f"{code(name)} ({count})" for name, count in survey.listing.skipped)
        lines.append(f"- Left out by name: {shown}.")
    lines.extend(f"- {code(path) if path else 'The directory'}: {plain(why)}." for path, why in survey.listing.problems)
    reasons: dict[str, list[str]] = {}
    for file in survey.files:
        if file.why_unread or file.facts.problem:
            reasons.setdefault(file.why_unread or file.facts.problem.partition(" (")[0], []).append(file.path)
    for why, paths in sorted(reasons.items()):
        lines.append(f"- {counted(len(paths), 'file')}, {plain(why)}: {_some(paths, 8)}.")
    if survey.vanished:
        lines.append(f"- Gone before they could be read: {_some(survey.vanished, 8)}.")
    return lines or ["Everything was read."]


def closer(survey: Survey, graph: ImportGraph, part: str) -> list[str]:
    """The part that the human chose: its files, what they define, who imports it, what is left to do."""
    files = [file for file in survey.files if in_part(file.path, part)]
    if not files:
        return ["This part has no files."]
    total = sum(file.lines or 0 for file in files)
    lines = [f"{counted(len(files), 'file')}, {counted(total, 'line')}, {size(sum(f.size_bytes for f in files))}.", ""]
    ranked = sorted(files, key=lambda file: (-(file.lines or 0), -file.size_bytes, file.path))
    lines += _file_table(ranked[:MAX_CLOSE_FILES]) + _rest(len(ranked), MAX_CLOSE_FILES, "file", "files")
    inside = {file.path for file in files}
    importers = graph.importers()
    users = sorted({user for path in inside for user in importers.get(path, ()) if user not in inside})
    needs = sorted({need for path in inside for need in graph.edges.get(path, ()) if need not in inside})
    if part:
        lines += ["", f"Imported from outside this part by {_some(users, 12) if users else 'nothing'}."]
        lines += ["", f"It imports {_some(needs, 12) if needs else 'nothing'} of the rest."]
    defined = [(file.path, each) for file in ranked for each in file.facts.definitions]
    count = len(defined)
    if defined:
        heading = "Definitions, those of the biggest files first:"
        if count > MAX_CLOSE_DEFINITIONS:
            defined = _outline(ranked)
            heading = f"Definitions, those of the biggest files first, of each at most {MAX_OUTLINE_PER_FILE}:"
        lines += ["", heading, ""]
        lines += table(
            ("Where", "Kind", "Name", "What it says of itself"),
            (
                (code(f"{path}:{each.line}"), each.kind, code(each.name), plain(each.summary))
                for path, each in defined[:MAX_CLOSE_DEFINITIONS]
            ),
        )
        lines += _rest(count, min(len(defined), MAX_CLOSE_DEFINITIONS), "definition", "definitions")
    left = [(file.path, note) for file in files for note in file.facts.notes]
    if left:
        lines += ["", "To do here:", "", *_note_list(left[:MAX_NOTES]), *_rest(len(left), MAX_NOTES, "note", "notes")]
    return lines


def _outline(files: Sequence[SurveyedFile]) -> list[tuple[str, Definition]]:
    """Return what a reader looks for first where there is too much: no methods, nothing private, no tests, no data.

    Of each file a few, those that say something of themselves before the others. A part of nothing else has it all.
    """
    apart = [file for file in _code_files(files) if not is_test_path(file.path)]
    found: list[tuple[str, Definition]] = []
    for file in apart or files:
        public = [each for each in file.facts.definitions if each.kind != "method" and not each.name.startswith("_")]
        chosen = sorted(public, key=lambda each: (not each.summary, each.line))[:MAX_OUTLINE_PER_FILE]
        found += [(file.path, each) for each in sorted(chosen, key=lambda each: each.line)]
    return found or [(file.path, each) for file in files for each in file.facts.definitions if each.kind != "method"]


def _code_files(files: Iterable[SurveyedFile]) -> list[SurveyedFile]:
    return [
        file for file in files if file.lines is not None and not file.is_generated and file.language not in NOT_CODE
    ]


def _file_table(files: Iterable[SurveyedFile]) -> list[str]:
    return table(
        ("File", "Language", "#Lines", "#Size"),
        (
            (
                code(file.path),
                plain(file.language),
                f"{file.lines:,}" if file.lines is not None else file.why_unread,
                size(file.size_bytes),
            )
            for file in files
        ),
    )


def _note_list(found: Iterable[tuple[str, Note]]) -> list[str]:
    return [f"- {code(f'{path}:{note.line}')} {note.kind} {plain(note.text)}".rstrip() for path, note in found]


def _some(paths: Sequence[str], limit: int) -> str:
    shown = ", ".join(code(path) for path in paths[:limit])
    return shown if len(paths) <= limit else f"{shown} and {len(paths) - limit:,} more"


def _rest(count: int, limit: int, one: str, many: str) -> list[str]:
    left = count - limit
    return ["", f"And {left:,} more {one if left == 1 else many}."] if left > 0 else []
