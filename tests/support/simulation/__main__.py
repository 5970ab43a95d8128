"""``python -m tests.support.simulation SEED``: one history as a transcript."""

from __future__ import annotations

import argparse
import sys

from .run import transcript


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.simulation", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--steps", type=int, default=None, help="how many steps before the dust settles")
    chosen = parser.parse_args(argv)
    lines, failed = transcript(chosen.seed, steps=chosen.steps)
    lines.append(f"\n{failed}" if failed is not None else "\nno promise was broken")
    sys.stdout.write("\n".join(lines) + "\n")
    return failed is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
