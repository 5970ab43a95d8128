"""Many histories of the simulated broker and its clients: how many a second, and the first that breaks a promise.

No rival: what counts is that none fails. ``--histories`` in the hundred thousands is for the night.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import msgspec

from benchmarks.harness import machine
from tests.support.simulation.run import Failed, Histories, play_many


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed."""

    benchmark: str
    machine: str
    histories: int
    per_s: float
    seed: int
    failed: tuple[Failed, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare this benchmark's arguments."""
    parser.add_argument("--histories", type=int, default=10_000, help="how many (default 10,000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first one; the others follow (default 0)")
    parser.add_argument("--processes", type=int, default=1, help="how many share them (default 1)")


def run(args: argparse.Namespace) -> Played:
    """Play."""
    share = -(-args.histories // args.processes)
    end = args.seed + args.histories
    ranges = [range(first, min(first + share, end)) for first in range(args.seed, end, share)]
    began = time.perf_counter()
    if args.processes == 1:
        played = [play_many(seeds) for seeds in ranges]
    else:
        with ProcessPoolExecutor(args.processes) as pool:
            played = list(pool.map(play_many, ranges))
    return _report(played, args.seed, time.perf_counter() - began)


def _report(played: list[Histories], seed: int, elapsed_s: float) -> Played:
    failed = tuple(each.failed for each in played if each.failed is not None)
    for each in failed:
        print(each, file=sys.stderr)
    count = sum(each.count for each in played)
    per_s = round(count / elapsed_s)
    return Played(benchmark="simulation", machine=machine(), histories=count, per_s=per_s, seed=seed, failed=failed)
