"""What the figures are to reach, and what a suite's reports say about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from benchmarks.harness import Report, Row

#: What a target looks at: its value in the reports, or None where it was not measured.
Look = Callable[["Reports"], float | None]


class Reports:
    """Reports by benchmark, and the rows in them."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self._rows = {report.benchmark: report.rows for report in reports}

    def row(self, benchmark: str, case: str, k: int | None, against: str | None = None) -> Row | None:
        """Find a row; without ``k`` that of any, without ``against`` that of any comparison."""
        for row in self._rows.get(benchmark, ()):
            if row.case == case and k in (None, row.k) and against in (None, row.against):
                return row
        return None


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One goal. With ``is_bound`` the value is to be at most what is named, else at least."""

    goal: str
    must: float
    then: float
    look: Look
    is_bound: bool = False

    def verdict(self, value: float | None) -> str:
        """Say what was reached."""
        if value is None:
            return "not measured"
        for name, limit in (("then", self.then), ("must", self.must)):
            if value <= limit if self.is_bound else value >= limit:
                return name
        return "no"


def _ratio(benchmark: str, case: str, k: int | None, against: str) -> Look:
    def look(reports: Reports) -> float | None:
        row = reports.row(benchmark, case, k, against)
        return None if row is None else row.ratio

    return look


def _inverse(look: Look) -> Look:
    def inverted(reports: Reports) -> float | None:
        value = look(reports)
        return 1 / value if value else None

    return inverted


def _idle_latency(reports: Reports) -> float | None:
    ours, theirs = reports.row("bus", "pisub call", 1), reports.row("bus", "all in C", 1)
    return None if ours is None or theirs is None else ours.p50_ms / theirs.p50_ms


def _asks(k: int) -> Target:
    look = _ratio("askers", "pisub ask, messages", k, "bare pyzmq+msgspec")
    return Target(goal=f"asks through all of pisub / bare pyzmq and msgspec, K={k}", must=0.5, then=0.75, look=look)


def _rival(name: str, case: str, must: tuple[float, ...], then: tuple[float, ...]) -> list[Target]:
    return [
        Target(goal=f"calls / {name}, K={k}", must=low, then=high, look=_ratio("rivals", "pisub call", k, case))
        for k, low, high in zip((1, 64, 1000), must, then, strict=True)
    ]


TARGETS: Final[tuple[Target, ...]] = (
    Target(
        goal="broker under C load / C forwarder, K=256",
        must=0.33,
        then=0.38,
        look=_ratio("broker", "pisub broker", 256, "C forwarder"),
    ),
    Target(
        goal="broker under C load / recv_multipart loop, K=256",
        must=3,
        then=4,
        look=_ratio("broker", "pisub broker", 256, "recv_multipart loop"),
    ),
    *(
        Target(goal=f"the same without bundles / {rival}", must=must, then=then, look=look)
        for rival, must, then in (("C forwarder", 0.33, 0.38), ("recv_multipart loop", 3, 4))
        for look in [_ratio("broker", "pisub broker, no bundles", 256, rival)]
    ),
    _asks(64),
    _asks(1000),
    Target(goal="idle round trip, p50 / all in C", must=2.5, then=1.8, look=_idle_latency, is_bound=True),
    *_rival("NATS, nats-py", "NATS, nats-py", (0.8, 1.3, 1.5), (1.2, 2.2, 2.5)),
    *_rival("Redis lists", "Redis lists", (1.3, 2, 3), (2.2, 3.5, 6)),
    *_rival("RabbitMQ, aio-pika", "RabbitMQ, aio-pika", (1.3, 12, 15), (2.2, 20, 28)),
    *_rival("autogen-core's gRPC runtime", "autogen-core gRPC", (1.5, 10, 20), (2.5, 18, 40)),
    *_rival("xoscar through a broker actor", "xoscar", (1.2, 5, 10), (1.8, 8, 18)),
    *_rival("zerorpc through a broker", "zerorpc", (2, 15, 25), (3.5, 25, 50)),
    Target(
        goal="launch to first message, warm / node -e 0",
        must=0.3,
        then=0.1,
        look=_inverse(_ratio("launch", "pisub nursery", 1, "node -e 0")),
        is_bound=True,
    ),
    Target(
        goal="launch to first message, cold / node -e 0",
        must=1.0,
        then=0.8,
        look=_inverse(_ratio("launch", "pisub exec", 1, "node -e 0")),
        is_bound=True,
    ),
    Target(
        goal="launches per second, warm / exec",
        must=10,
        then=20,
        look=_ratio("launch", "pisub nursery", 8, "pisub exec"),
    ),
    Target(
        goal="PSS of an idle runner, warm / exec",
        must=0.4,
        then=0.25,
        look=_ratio("launch", "pisub nursery, idle", None, "pisub exec, idle"),
        is_bound=True,
    ),
)
