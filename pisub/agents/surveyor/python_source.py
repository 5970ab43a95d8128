"""What a Python file's syntax tree says. The file is parsed, never imported."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

import msgspec

from pisub.agents.surveyor.model import Definition, Import

MAX_IMPORTS = 500
_MAX_SUMMARY_CHARS = 160
_FRAMEWORKS = {"pytest": "pytest", "unittest": "unittest", "hypothesis": "Hypothesis", "nose": "nose"}


class PythonFacts(msgspec.Struct, frozen=True):
    """Facts of one file; ``problem`` says why there are none."""

    imports: tuple[Import, ...] = ()
    definitions: tuple[Definition, ...] = ()
    test_count: int = 0
    test_frameworks: tuple[str, ...] = ()
    has_main: bool = False
    problem: str = ""


def is_test_path(path: str) -> bool:
    """Tell whether a path is, by name or place, one of a test."""
    *folders, name = path.split("/")
    is_named = name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"
    return is_named or any(folder in {"test", "tests"} for folder in folders)


def read_python(path: str, text: str) -> PythonFacts:
    """Return the facts of a Python file; a file that does not parse has a problem instead."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # another's invalid escape sequences are not our warnings
            tree = ast.parse(text)
    except SyntaxError as error:
        return PythonFacts(problem=f"does not parse (line {error.lineno or 1})")
    except (ValueError, RecursionError, MemoryError):
        return PythonFacts(problem="does not parse")
    imports = tuple(_imports(tree))[:MAX_IMPORTS]
    is_test = is_test_path(path)
    roots = {each.module.partition(".")[0] for each in imports if each.level == 0}
    return PythonFacts(
        imports=imports,
        definitions=tuple(_definitions(tree)),
        test_count=_count_tests(tree) if is_test else 0,
        test_frameworks=tuple(sorted(_FRAMEWORKS[root] for root in roots & _FRAMEWORKS.keys())) if is_test else (),
        has_main=path.rpartition("/")[2] == "__main__.py" or any(_is_main_guard(node) for node in tree.body),
    )


def _imports(tree: ast.Module) -> Iterator[Import]:
    """Yield imports in order. In a function or under TYPE_CHECKING they are lazy: no cycle at import time."""
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, is_lazy = pending.pop()
        match node:
            case ast.Import(names=names):
                for name in names:
                    yield Import(name.name, 0, (), is_lazy)
            case ast.ImportFrom(module=module, names=names, level=level):
                yield Import(module or "", level, tuple(name.name for name in names), is_lazy)
            case ast.expr():
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                pending.extend((child, True) for child in reversed(node.body))
            case ast.If(test=test):
                hidden = is_lazy or "TYPE_CHECKING" in {getattr(test, "id", ""), getattr(test, "attr", "")}
                pending.extend((child, is_lazy) for child in reversed(node.orelse))
                pending.extend((child, hidden) for child in reversed(node.body))
            case _:
                pending.extend((child, is_lazy) for child in reversed(list(ast.iter_child_nodes(node))))


def _definitions(tree: ast.Module) -> Iterator[Definition]:
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield Definition("function", node.name, node.lineno, _summary(node))
            case ast.ClassDef():
                yield Definition("class", node.name, node.lineno, _summary(node))
                for child in node.body:
                    if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and not child.name.startswith("_"):
                        yield Definition("method", f"{node.name}.{child.name}", child.lineno, _summary(child))
            case _:
                continue


def _summary(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    text = ast.get_docstring(node) or ""
    return text.strip().partition("\n")[0].strip().replace("``", "")[:_MAX_SUMMARY_CHARS]


def _count_tests(tree: ast.Module) -> int:
    count = 0
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for each in inner:
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.name.startswith("test"):
                count += 1
    return count


def _is_main_guard(node: ast.stmt) -> bool:
    match node:
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"), comparators=[ast.Constant(value="__main__")])):
            return True
        case _:
            return False
