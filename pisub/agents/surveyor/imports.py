"""Who imports whom, inside the surveyed tree: edges between files, and cycles among them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from pisub.agents.surveyor.model import Import, SurveyedFile

_SCRIPT_ENDINGS = ("", ".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".vue", ".svelte", ".d.ts")
_SCRIPT_INDEXES = ("/index.ts", "/index.tsx", "/index.js", "/index.jsx", "/index.mjs")
_SCRIPT_LANGUAGES = frozenset({"JavaScript", "TypeScript", "Vue", "Svelte"})


class ImportGraph(msgspec.Struct, frozen=True):
    """Edges from a file to the files that it imports; ``eager`` are those that run when it is imported."""

    edges: Mapping[str, tuple[str, ...]]
    eager: Mapping[str, tuple[str, ...]]

    def importers(self) -> dict[str, tuple[str, ...]]:
        """Return, for each imported file, the files that import it, sorted."""
        found: dict[str, list[str]] = {}
        for source in sorted(self.edges):
            for target in self.edges[source]:
                found.setdefault(target, []).append(source)
        return {target: tuple(sources) for target, sources in found.items()}

    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """Return the groups of files that import each other at import time, biggest first."""
        groups = [tuple(sorted(group)) for group in _components(self.eager) if len(group) > 1]
        return tuple(sorted(groups, key=lambda group: (-len(group), group)))


def build_graph(files: Iterable[SurveyedFile]) -> ImportGraph:
    """Resolve the files' imports against each other; what is not in the tree is left out."""
    known = {file.path: file for file in files}
    modules = _python_modules(known)
    edges: dict[str, tuple[str, ...]] = {}
    eager: dict[str, tuple[str, ...]] = {}
    for path, file in sorted(known.items()):
        targets: dict[str, bool] = {}
        for each in file.facts.imports:
            if file.language == "Python":
                resolved = set(_resolve_python(each, path, modules, known))
            elif file.language in _SCRIPT_LANGUAGES:
                resolved = set(_resolve_script(each.module, path, known))
            else:
                continue
            for target in resolved - {path}:
                targets[target] = targets.get(target, False) or not each.is_lazy
        if targets:
            edges[path] = tuple(sorted(targets))
            eager[path] = tuple(sorted(target for target, is_eager in targets.items() if is_eager))
    return ImportGraph(edges, eager)


def outside_packages(files: Iterable[SurveyedFile], standard: frozenset[str]) -> dict[str, int]:
    """Count, for each package that is not in the tree, the files that import it. ``standard`` names are left out."""
    known = {file.path: file for file in files}
    own = {name.partition(".")[0] for name in _python_modules(known)}
    counts: dict[str, int] = {}
    for file in known.values():
        names: set[str] = set()
        for each in file.facts.imports:
            if file.language == "Python" and each.level == 0:
                names.add(each.module.partition(".")[0])
            elif file.language in _SCRIPT_LANGUAGES and not each.module.startswith((".", "/", "node:")):
                parts = each.module.split("/")
                names.add("/".join(parts[:2]) if each.module.startswith("@") else parts[0])
        for name in names - own - standard - {""}:
            counts[name] = counts.get(name, 0) + 1
    return counts


def _python_modules(known: Mapping[str, SurveyedFile]) -> dict[str, str]:
    """Map every dotted name under which a file may be imported (from its package's root, or the top) to its path."""
    modules: dict[str, str] = {}
    for path, file in sorted(known.items()):
        if file.language != "Python" or not path.endswith((".py", ".pyi")):
            continue
        parts = path.rpartition(".")[0].split("/")
        if parts[-1] == "__init__":
            parts.pop()
        if not parts:
            continue
        start = len(parts) - 1
        while start > 0 and "/".join([*parts[:start], "__init__.py"]) in known:
            start -= 1
        modules.setdefault(".".join(parts[start:]), path)
        modules.setdefault(".".join(parts), path)
        if parts[0] in {"src", "lib", "python"} and len(parts) > 1:
            modules.setdefault(".".join(parts[1:]), path)
    return modules


def _resolve_python(
    each: Import, path: str, modules: Mapping[str, str], known: Mapping[str, SurveyedFile]
) -> Iterator[str]:
    if each.level:
        folders = path.split("/")[: -each.level]
        if len(path.split("/")) < each.level:
            return
        base = [*folders, *(part for part in each.module.split(".") if part)]
        subs = [found for name in each.names if (found := _file_of("/".join([*base, name]), known))]
        yield from subs
        if len(subs) < len(each.names) and (found := _file_of("/".join(base), known)):
            yield found
        return
    subs = [modules[name] for sub in each.names if (name := f"{each.module}.{sub}") in modules]
    yield from subs
    if each.names and len(subs) == len(each.names):
        return
    if each.module in modules:
        yield modules[each.module]


def _file_of(stem: str, known: Mapping[str, SurveyedFile]) -> str | None:
    prefix = f"{stem}/" if stem else ""
    candidates = (f"{stem}.py", f"{prefix}__init__.py") if stem else ("__init__.py",)
    return next((each for each in candidates if each in known), None)


def _resolve_script(module: str, path: str, known: Mapping[str, SurveyedFile]) -> Iterator[str]:
    if not module.startswith("."):
        return
    parts = path.split("/")[:-1]
    for part in module.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part == "..":
            return
        elif part not in {"", "."}:
            parts.append(part)
    stem = "/".join(parts)
    candidates = [stem + ending for ending in _SCRIPT_ENDINGS]
    if stem.endswith(".js"):  # TypeScript's modules are imported by the name that they are compiled to
        candidates += [stem.removesuffix(".js") + ".ts", stem.removesuffix(".js") + ".tsx"]
    candidates += [(stem + index).removeprefix("/") for index in _SCRIPT_INDEXES]
    found = next((each for each in candidates if each in known), None)
    if found is not None:
        yield found


def _components(edges: Mapping[str, tuple[str, ...]]) -> Iterator[list[str]]:
    """Tarjan's strongly connected components, with a stack of our own: trees may be deeper than Python's."""
    numbers: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for start in sorted(edges):
        if start in numbers:
            continue
        work = [(start, iter(edges.get(start, ())))]
        numbers[start] = low[start] = len(numbers)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in numbers:
                    numbers[target] = low[target] = len(numbers)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges.get(target, ()))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], numbers[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == numbers[node]:
                    group: list[str] = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        group.append(member)
                        if member == node:
                            break
                    yield group
