"""``python -m benchmarks NAME``: runs one benchmark beside its rival and prints a table, or JSON.

A benchmark is a module here with ``add_arguments(parser)`` and ``run(args) -> Report``. The others are not imported.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

import msgspec

from benchmarks.harness import Report, Suite, table

_NOT_BENCHMARKS = frozenset({"__main__", "harness"})


def names() -> list[str]:
    """Return the benchmarks there are: the modules that are neither shared nor a part of another (``x_y``)."""
    found = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return sorted(name for name in found if name not in _NOT_BENCHMARKS and "_" not in name)


def main(argv: list[str]) -> int:
    """Run the benchmark that ``argv`` names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=names())
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="arguments of the benchmark; --help lists them")
    chosen = parser.parse_args(argv)
    module = importlib.import_module(f"benchmarks.{chosen.name}")
    inner = argparse.ArgumentParser(prog=f"python -m benchmarks {chosen.name}", description=module.__doc__)
    inner.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    module.add_arguments(inner)
    args = inner.parse_args(chosen.rest)
    report: object = module.run(args)
    if not args.json and isinstance(report, Report | Suite):
        reports = report.reports if isinstance(report, Suite) else [report]
        print("\n\n".join(table(each) for each in reports))
    else:
        print(msgspec.json.encode(report).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
