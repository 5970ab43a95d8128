"""The broker under a load in C: calls from one asker to one answering peer, K outstanding.

Twice: with clients that read bundles, as pisub's own do, and with clients that do not, so that the broker sends one
message at a time as its rivals do. The first is what a user gets, the second compares loop with loop.

Rivals, in the same rounds: a ROUTER in C that only forwards; the fastest loop known in Python that only forwards; a
loop of blocking recv_multipart. The rivals know no names, calls, deadlines or authority, and refuse nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from benchmarks.harness import CpuMeter, Report, Row, Sample, Side, compare, machine, private_broker, private_settings
from benchmarks.native_build import NotBuildableError, build

_ROOT = Path(__file__).resolve().parents[1]
_SERVER = "benchmarks.broker_server"
#: Calls of the first, uncounted, measurement; the later ones are sized by the speed that was seen.
_FIRST_CALLS = 5_000
_PAYLOAD_BYTES = 300


class LoadReport(msgspec.Struct):
    """What the load prints."""

    calls: int
    replies: int
    unexpected: int
    seconds: float


class UnderLoad:
    """A server on an endpoint, and the load that is put on it."""

    def __init__(
        self, case: str, load: Path, endpoint: str, pid: int, payload_bytes: int, *, reads_bundles: bool = False
    ) -> None:
        self.case = case
        self._mode = "load-bundles" if reads_bundles else "load"
        self._load = load
        self._endpoint = endpoint
        self._pid = pid
        self._payload_bytes = payload_bytes
        self._rates: dict[int, float] = {}

    def measure(self, k: int, seconds: float) -> Sample:
        """Run the load for about so long."""
        calls = max(_FIRST_CALLS, int(self._rates.get(k, 0.0) * seconds))
        meter = CpuMeter(server=self._pid)
        command = [sys.executable, "-m", _SERVER, self._mode, str(self._load), self._endpoint, str(k), str(calls)]
        done = subprocess.run([*command, str(self._payload_bytes)], cwd=_ROOT, stdout=subprocess.PIPE, check=False)
        report = msgspec.json.decode(done.stdout, type=LoadReport)
        self._rates[k] = report.replies / report.seconds
        return Sample(
            count=report.replies,
            elapsed_s=report.seconds,
            # One call at a time: the mean is the round trip. With more, the load measures throughput alone.
            latencies_ms=[report.seconds / max(report.replies, 1) * 1000] if k == 1 else [],
            lost=report.calls - report.replies,
            doubled=report.unexpected,
            # Two routed messages a round trip.
            cpu_us={"server per message": meter.per_operation(report.replies)["server"] / 2},
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare this benchmark's arguments."""
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default 9)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement (default 1)")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 64, 256, 1000], help="calls outstanding")
    parser.add_argument("--payload-bytes", type=int, default=_PAYLOAD_BYTES, help="bytes of a body (default 300)")


def run(args: argparse.Namespace) -> Report:
    """Measure.

    Raises:
        SystemExit: The load cannot be built.
    """
    with tempfile.TemporaryDirectory(prefix="psb-") as scratch, private_settings() as settings, ExitStack() as stack:
        directory = Path(scratch)
        try:
            load = build("load", directory)
            forwarder = build("forwarder", directory)
        except NotBuildableError as error:
            raise SystemExit(f"The broker benchmark needs its load in C: {error}.") from error
        broker = stack.enter_context(private_broker(settings))

        def rival(case: str, name: str, command: list[str]) -> Side:
            endpoint = f"ipc://{directory / name}"
            return UnderLoad(
                case, load, endpoint, stack.enter_context(_server([*command, endpoint])), args.payload_bytes
            )

        python = [sys.executable, "-m", _SERVER]
        rivals = [
            rival("C forwarder", "c.sock", [str(forwarder)]),
            rival("fastest Python loop", "fast.sock", [*python, "fast"]),
            rival("recv_multipart loop", "multi.sock", [*python, "multipart"]),
        ]
        rows: list[Row] = []
        for case, reads_bundles in (("pisub broker", True), ("pisub broker, no bundles", False)):
            ours = UnderLoad(
                case, load, broker.address, broker.process.pid, args.payload_bytes, reads_bundles=reads_bundles
            )
            found = compare(
                [ours, *rivals],
                ks=args.k,
                rounds=args.rounds,
                seconds=args.seconds,
                progress=lambda text: print(text, file=sys.stderr),
            )
            rows += found if reads_bundles else [row for row in found if row.case == case]  # the rivals stand once
        return Report(benchmark="broker", machine=machine(), rows=rows)


def all_in_c(case: str, directory: Path, stack: ExitStack) -> Side:
    """Build clients and a forwarder in C and start the forwarder, until ``stack`` ends.

    Raises:
        NotBuildableError: They cannot be.
    """
    load, forwarder = build("load", directory), build("forwarder", directory)
    endpoint = f"ipc://{directory / 'c.sock'}"
    return UnderLoad(case, load, endpoint, stack.enter_context(_server([str(forwarder), endpoint])), _PAYLOAD_BYTES)


@contextmanager
def _server(command: list[str]) -> Generator[int]:
    """Run a server that says one line when it is ready; give its pid.

    In a session of its own, as our broker is: under load Linux divides the processors by session first.
    """
    process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
