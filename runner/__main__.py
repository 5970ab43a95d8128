"""The runner program: `nursery`, of many runs or of one. Started by pisub's launchers."""

from __future__ import annotations

import sys

from .nursery.app import main
from .nursery.parts import load_parts

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], load=load_parts))
