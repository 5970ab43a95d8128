from pathlib import Path

from benchmarks.chaos_runs import Chaos
from pisub.config import Settings


def test_of_runs_under_random_kills_none_is_lost_and_none_doubled(settings: Settings, tmp_path: Path) -> None:
    told = Chaos(settings, tmp_path, runs=30, seed=7).carry_out()
    assert (told.lost, told.doubled, sum(told.ends.values())) == (0, 0, 30), told
    assert sum(told.kills.values()) >= 5, told
