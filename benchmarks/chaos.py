"""Real processes under real blows, and what became of every call, deed, question and name. No rival: it counts.

``runs`` (the default): kill -9 of runners, hosts, nurseries and brokers; which ends were lost or doubled, and how the
runs ended.
``broker``: kill -9 at random moments under open calls and running runs that ask; back at once, after 1 s, after 60 s.
``slow``: a subscriber is stopped while it gets droppable news: what that costs the others, as a ratio of their p99.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks.chaos_broker import Told, killed
from benchmarks.chaos_parts import end_broker
from benchmarks.chaos_runs import Chaos, RunsTold, end_daemons, measure_deaths
from benchmarks.chaos_slow import Compared, stopped_subscriber
from benchmarks.harness import private_broker, private_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare this benchmark's arguments."""
    parser.add_argument("mode", choices=["broker", "slow", "runs"], nargs="?", default="runs")
    parser.add_argument("--runs", type=int, help="runs: how many (default 600); broker: runs that ask (default 4)")
    parser.add_argument("--calls", type=int, default=1000, help="calls open at any time (default 1,000)")
    parser.add_argument("--deaths", type=int, default=20, help="runs: killed runners whose end is timed (default 20)")
    parser.add_argument("--at-once", type=int, default=30, help="kills after which a broker is started at once")
    parser.add_argument("--after-1s", type=int, default=10, help="kills after which none can serve for 1 s")
    parser.add_argument("--after-60s", type=int, default=1, help="the same for 60 s")
    parser.add_argument("--updates", type=int, default=100_000, help="slow: droppable news per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)


def run(args: argparse.Namespace) -> Told | Compared | RunsTold:
    """Do it."""
    if args.mode == "runs":
        return _runs(args)
    with private_settings() as settings, private_broker(settings):
        try:
            if args.mode == "slow":
                return asyncio.run(stopped_subscriber(settings, rounds=args.rounds, updates=args.updates))
            pauses = [0.0] * args.at_once + [1.0] * args.after_1s + [60.0] * args.after_60s
            return asyncio.run(killed(settings, pauses, calls=args.calls, runs=args.runs or 4, seed=args.seed))
        finally:
            end_broker(settings)


def _runs(args: argparse.Namespace) -> RunsTold:
    with private_settings() as settings, tempfile.TemporaryDirectory(prefix="psb-") as base:
        try:
            told = Chaos(settings, Path(base), runs=args.runs or 600, seed=args.seed, say=_say).carry_out()
            if args.deaths:
                told.death_to_completion_ms = asyncio.run(measure_deaths(settings, Path(base), count=args.deaths))
        finally:
            end_daemons(settings)
    return told


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
