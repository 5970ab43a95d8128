"""Whether memory ran out: the kernel's counts, on a tree of files made like its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.nursery.oom import OomWatch, find_counter, read_count

V2 = "low 0\nhigh 0\nmax 3\noom 1\noom_kill {}\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
MACHINE = "nr_free_pages 5\noom_kill {}\n"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("cgroups", "counter", "text"),
    [
        ("0::/user/a\n", "sys/fs/cgroup/user/a/memory.events", V2),
        ("5:cpu:/\n4:memory:/box/b\n0::/\n", "sys/fs/cgroup/memory/box/b/memory.oom_control", V1),
        ("4:cpu,memory:/c\n", "sys/fs/cgroup/memory/c/memory.oom_control", V1),
        ("0::/\n", "proc/vmstat", MACHINE),
        (None, "proc/vmstat", MACHINE),
    ],
)
def test_the_count_of_the_own_cgroup_comes_first_and_the_machine_s_last(
    tmp_path: Path, cgroups: str | None, counter: str, text: str
) -> None:
    if cgroups is not None:
        write(tmp_path / "proc/self/cgroup", cgroups)
    write(tmp_path / "proc/vmstat", MACHINE.format(9))
    path = write(tmp_path / counter, text.format(4))
    assert find_counter(tmp_path) == path
    assert read_count(path) == 4


def test_a_kernel_without_a_count_knows_of_no_such_death(tmp_path: Path) -> None:
    write(tmp_path / "proc/vmstat", "oom_kill many\n")
    assert find_counter(tmp_path) is None
    assert not OomWatch(None).explains_a_death()


def test_each_kill_explains_one_death_and_one_from_before_explains_none(tmp_path: Path) -> None:
    path = write(tmp_path / "count", MACHINE.format(2))
    watch = OomWatch(path)
    assert not watch.explains_a_death()
    write(path, MACHINE.format(4))
    assert [watch.explains_a_death() for _ in range(3)] == [True, True, False]
    write(path, MACHINE.format(5))  # some other process of the cgroup
    watch.look()
    assert not watch.explains_a_death()
    path.unlink()
    assert not watch.explains_a_death()


def test_this_machine_has_a_count_or_none_that_is_read() -> None:
    path = find_counter()
    assert path is None or read_count(path) is not None
