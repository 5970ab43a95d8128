"""A process of a rival: ``python -m benchmarks.rival_worker NAME ask|answer|serve ENDPOINT``."""

from __future__ import annotations

import importlib
import sys


def main(name: str, what: str, endpoint: str) -> None:
    """Be that process. ``serve`` is for rivals whose server is a Python program."""
    rival = importlib.import_module(f"benchmarks.rival_{name}")
    getattr(rival, what)(endpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
