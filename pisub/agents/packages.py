"""Agents that installed packages bring: entry points of the group ``pisub.agents``.

An entry point's value names a folder as a module is named: ``acme.agents`` is the folder `agents` in the package
`acme`. It is found, never imported: who lists agents runs no code of theirs.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

GROUP = "pisub.agents"


def package_folders(found: Iterable[EntryPoint] | None = None) -> list[tuple[str, Path]]:
    """Return name and folder of each installed collection, by name; one whose folder is not to be found is left out.

    Args:
        found: Instead of what this interpreter has installed.
    """
    points = entry_points(group=GROUP) if found is None else found
    folders = {point.name: folder for point in points if (folder := _folder(point.value)) is not None}
    return sorted(folders.items())


class InstalledPackages:
    """The same, looked up again only when an import directory changed: an installation changes one."""

    def __init__(self, look_up: Callable[[], list[tuple[str, Path]]] = package_folders) -> None:
        self._look_up = look_up
        self._stamp: tuple[tuple[str, int], ...] | None = None
        self._known: list[tuple[str, Path]] = []

    def folders(self) -> list[tuple[str, Path]]:
        """Return name and folder of each."""
        stamp = tuple((each, _changed_at(each)) for each in sys.path)
        if stamp != self._stamp:
            self._known = self._look_up()
            self._stamp = stamp
        return self._known


def _changed_at(directory: str) -> int:
    try:
        return Path(directory).stat().st_mtime_ns
    except (OSError, ValueError):
        return 0


def _folder(value: str) -> Path | None:
    top, *inner = value.partition(":")[0].strip().split(".")
    try:
        spec = importlib.machinery.PathFinder.find_spec(top)
    except (ImportError, ValueError):
        return None
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        folder = Path(place, *inner)
        if folder.is_dir():
            return folder
    return None
