"""The asking or the answering process of a rival: ``python -m benchmarks.rival_worker NAME ask|answer ENDPOINT``."""

from __future__ import annotations

import importlib
import sys
from typing import cast

from benchmarks.rival_base import Rival


def main(name: str, what: str, endpoint: str) -> None:
    """Be that process."""
    rival = cast("Rival", importlib.import_module(f"benchmarks.rival_{name}"))
    if what == "ask":
        rival.ask(endpoint)
    else:
        rival.answer(endpoint)


if __name__ == "__main__":
    main(*sys.argv[1:])
