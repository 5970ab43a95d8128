"""The broker serves everybody, whoever started it and with whatever limits."""

import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from broker.liveness import MIN_DESCRIPTORS
from pisub.config import Settings
from pisub.process import ProcessIdentity

ROOT = Path(__file__).parents[2]
_SCRIPT = """
import os, resource, sys
from broker.liveness import raise_descriptor_limit
from pisub.errors import BrokerUnavailableError
allowed, user = int(sys.argv[1]), sys.argv[2]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(20, allowed), allowed))
if user == "nobody" and os.geteuid() == 0:
    os.setuid(65534)
try:
    raise_descriptor_limit()
    print(resource.getrlimit(resource.RLIMIT_NOFILE))
except BrokerUnavailableError as error:
    print(error.message)
"""


def limit_of(allowed: int, user: str) -> str:
    """Start with this many open files and return what the broker makes of it."""
    command = [sys.executable, "-c", _SCRIPT, str(allowed), user]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


@pytest.mark.parametrize("allowed", [MIN_DESCRIPTORS, MIN_DESCRIPTORS + 1])
def test_a_broker_takes_all_the_descriptors_that_it_may(allowed: int) -> None:
    assert limit_of(allowed, "nobody") == f"({allowed}, {allowed})"


def test_with_too_few_to_serve_anybody_it_does_not_start_in_the_way_of_the_next() -> None:
    said = limit_of(30, "nobody")
    assert said == f"A broker needs {MIN_DESCRIPTORS} open files, and 30 are allowed here (`ulimit -Hn`)."


_LIMITED = """
import resource, sys
from pathlib import Path
from pisub.config import load_settings
from pisub.launch import ensure_broker
from tests.support.nursery_launches import launcher, nursery_paths, submitted
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
resource.setrlimit(resource.RLIMIT_CPU, (100, resource.getrlimit(resource.RLIMIT_CPU)[1]))
settings = load_settings()
launcher(settings, "wait").launch_blocking(submitted(settings, Path(sys.argv[1])))
print(ensure_broker(settings).process.pid, Path(nursery_paths(settings).lock).read_text())
"""


def test_the_soft_limits_of_who_started_a_daemon_are_not_the_daemon_s(settings: Settings, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT
    )
    broker, nursery = found.stdout.split(maxsplit=1)
    for pid in (int(broker), msgspec.json.decode(nursery, type=ProcessIdentity).pid):
        for number in (resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):
            soft, hard = resource.prlimit(pid, number)
            assert soft == hard
    (tmp_path / "go").touch()
