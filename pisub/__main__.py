"""``python -m pisub``: the command line."""

import sys

from pisub.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
