"""The broker serves everybody, whoever started it and with whatever limits."""

import subprocess
import sys
from pathlib import Path

import pytest

from broker.liveness import MIN_DESCRIPTORS

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
