"""The runner program with another entry: its arguments are `MODULE:FUNCTION nursery …`.

What a nursery forks can so be tested apart from what a runner does.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from pisub.config import Settings
from pisub.record.layout import Layout
from runner.nursery.app import main
from runner.nursery.parts import Parts, load_parts
from runner.nursery.proof import settle
from runner.nursery.reaper import Death


def load(name: str) -> Parts:
    load_parts()  # the real nursery's imports: what they leave behind must be harmless
    module, _, function = name.partition(":")
    return Parts(getattr(importlib.import_module(module), function), only_the_proof, lambda _runner, _now_ms: False)


def only_the_proof(death: Death, settings: Settings) -> None:
    """What a coroner does, but for what needs a record that `reconcile` knows, and a broker."""
    settle(death, Layout(Path(death.runner.home), fsync=False), ())


def start() -> None:
    """Be the program."""
    sys.exit(main(sys.argv[2:], load=lambda: load(sys.argv[1])))
