"""A FIFO in the place of a small file holds nobody up: what is looked at is looked at without waiting for a writer."""

import collections
import os
from pathlib import Path

import pytest

from pisub.agents.discovery import discover
from pisub.agents.surveyor.scan import read_files, walk
from pisub.agents.trust import is_trusted, trust
from pisub.config import Settings
from pisub.errors import RecordCorruptError
from pisub.launch import BROKER_FILE, find_broker
from pisub.launchers.nursery import nurseries
from pisub.paths import ensure_private_dir, runtime_dir, state_root
from pisub.small_files import read_small
from tests.support.project import make_project


def test_only_a_regular_file_is_read_and_only_so_much_of_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_small(tmp_path / "file", 4) == b"0123"
    os.mkfifo(tmp_path / "fifo")
    for other in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError):  # noqa: PT011  # which number the system gives depends on the kind
            read_small(other, 4)
    with pytest.raises(FileNotFoundError):
        read_small(tmp_path / "nothing", 4)


def test_fifos_in_the_runtime_directory_are_neither_broker_nor_nursery(settings: Settings) -> None:
    directory = ensure_private_dir(runtime_dir(settings))
    os.mkfifo(directory / BROKER_FILE)
    os.mkfifo(directory / "nursery-0123456789abcdef.lock")
    assert find_broker(settings) is None
    assert nurseries(directory) == []


def test_a_fifo_is_no_trust(settings: Settings, tmp_path: Path) -> None:
    root = make_project(tmp_path / "project").root
    trust(settings, root)
    (record,) = (state_root(settings) / "trust").iterdir()
    record.unlink()
    os.mkfifo(record)
    with pytest.raises(RecordCorruptError, match=str(record)):
        is_trusted(settings, root)


def test_a_directory_in_a_file_s_place_costs_no_descriptor(settings: Settings, tmp_path: Path) -> None:
    # That none is left open is seen after every test.
    project = make_project(tmp_path / "project")
    (tmp_path / "a_directory").mkdir()
    (project.root / ".pisub" / "agents" / "link.md").symlink_to(tmp_path / "a_directory")
    catalog = discover(settings, project.root)
    assert any("link.md" in each.message for each in catalog.diagnostics)
    (project.root / "module").mkdir()  # as git lists a submodule: one name
    (project.root / "pile" / ".gitignore").mkdir(parents=True)
    collections.deque(walk(project.root), maxlen=0)
    collections.deque(read_files(project.root, ["module"]), maxlen=0)
