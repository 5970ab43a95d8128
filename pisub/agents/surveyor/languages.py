"""Which language a file is written in, by its name; which files people did not write by hand."""

from __future__ import annotations

from typing import Final

OTHER: Final = "other"

_BY_ENDING: Final = {
    "py": "Python", "pyi": "Python", "pyx": "Cython", "ipynb": "Jupyter", "js": "JavaScript", "mjs": "JavaScript",
    "cjs": "JavaScript", "jsx": "JavaScript", "ts": "TypeScript", "mts": "TypeScript", "cts": "TypeScript",
    "tsx": "TypeScript", "vue": "Vue", "svelte": "Svelte", "go": "Go", "rs": "Rust", "c": "C", "h": "C", "cc": "C++",
    "cpp": "C++", "cxx": "C++", "hpp": "C++", "hh": "C++", "java": "Java", "kt": "Kotlin", "kts": "Kotlin",
    "scala": "Scala", "cs": "C#", "fs": "F#", "swift": "Swift", "m": "Objective-C", "rb": "Ruby", "php": "PHP",
    "pl": "Perl", "pm": "Perl", "lua": "Lua", "r": "R", "jl": "Julia", "ex": "Elixir", "exs": "Elixir",
    "erl": "Erlang", "hs": "Haskell", "ml": "OCaml", "mli": "OCaml", "clj": "Clojure", "dart": "Dart", "zig": "Zig",
    "nim": "Nim", "sh": "Shell", "bash": "Shell", "zsh": "Shell", "fish": "Shell", "ps1": "PowerShell",
    "bat": "Batch", "sql": "SQL", "html": "HTML", "htm": "HTML", "css": "CSS", "scss": "SCSS", "less": "Less",
    "md": "Markdown", "rst": "reStructuredText", "adoc": "AsciiDoc", "tex": "TeX", "txt": "Text", "json": "JSON",
    "yaml": "YAML", "yml": "YAML", "toml": "TOML", "ini": "INI", "cfg": "INI", "xml": "XML", "csv": "CSV",
    "proto": "Protobuf", "graphql": "GraphQL", "tf": "Terraform", "nix": "Nix", "cmake": "CMake", "mk": "Make",
    "dockerfile": "Dockerfile", "s": "Assembly", "asm": "Assembly", "v": "Verilog", "vhd": "VHDL",
}  # fmt: skip
_BY_NAME: Final = {
    "makefile": "Make", "gnumakefile": "Make", "dockerfile": "Dockerfile", "containerfile": "Dockerfile",
    "cmakelists.txt": "CMake", "rakefile": "Ruby", "gemfile": "Ruby", "justfile": "Just", "jenkinsfile": "Groovy",
}  # fmt: skip
#: Prose and data have lines, but no code: they are no modules, and a TODO in them is not a comment.
NOT_CODE: Final = frozenset({
    "Markdown", "reStructuredText", "AsciiDoc", "TeX", "Text", "JSON", "YAML", "TOML", "INI", "XML", "CSV", "Jupyter",
    "HTML", OTHER,
})  # fmt: skip
_INTERPRETERS: Final = {"python": "Python", "node": "JavaScript", "bash": "Shell", "sh": "Shell", "ruby": "Ruby",
    "perl": "Perl", "zsh": "Shell", "deno": "TypeScript", "lua": "Lua"}  # fmt: skip
_GENERATED_NAMES: Final = frozenset({"package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "go.sum"})
_GENERATED_ENDINGS: Final = (".lock", ".min.js", ".min.css", ".map", "_pb2.py", "_pb2_grpc.py", ".pb.go", ".snap")
#: Directories that hold what tools made or fetched; left out of every survey.
SKIPPED_DIRECTORIES: Final = frozenset({
    ".git", ".hg", ".svn", ".jj", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".tox", ".nox", ".eggs", ".hypothesis", ".cache", ".gradle", ".terraform", ".next", ".nuxt",
    ".turbo", ".parcel-cache", ".import_linter_cache", ".ipynb_checkpoints", "site-packages", "bower_components",
})  # fmt: skip


def language_of(path: str, first_line: str = "") -> str:
    """Name a file's language by its name, else by the interpreter that its first line calls."""
    name = path.rpartition("/")[2].lower()
    if known := _BY_NAME.get(name):
        return known
    if name.startswith("dockerfile."):
        return "Dockerfile"
    stem, dot, ending = name.rpartition(".")
    if dot and stem and (known := _BY_ENDING.get(ending)):
        return known
    if first_line.startswith("#!"):
        words = first_line[2:].replace("/usr/bin/env", "").replace("-S", "").split()
        program = words[0].rpartition("/")[2].rstrip("0123456789.") if words else ""
        return _INTERPRETERS.get(program, OTHER)
    return OTHER


def is_generated(path: str) -> bool:
    """Tell whether a tool most likely wrote the file."""
    name = path.rpartition("/")[2].lower()
    return name in _GENERATED_NAMES or name.endswith(_GENERATED_ENDINGS)
