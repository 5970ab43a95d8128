"""Ends and waits of a session against their model: nothing is lost, and nothing told twice without saying so.

Hosts come, stop, are killed, and stand beside each other, on a disk that fails, with a broker that comes and goes.
Pump, notifier, subscriptions and waiter are the real ones; modelled are the processes.
"""

from __future__ import annotations

import asyncio
import errno
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pisub.client.waiter import Waiter, WaitOutcome
from pisub.client.waiting import WaitEnd
from pisub.errors import NotDeliveredError
from pisub.hosting.batching import BatchTimes
from pisub.hosting.completions import CompletionGroup, Completions
from pisub.hosting.subscriptions import Subscriptions, WaitEnded
from pisub.ids import new_id
from pisub.process import own_identity
from pisub.protocol.runs import RunState
from pisub.protocol.session import Terminated
from pisub.record.commit import commit_end
from pisub.record.layout import Layout
from pisub.record.lock import RunLock
from pisub.record.sessions import Outbox, completion_of, post_completion
from pisub.record.status import read_status
from pisub.record.subscriptions import WaitSubscription, list_subscriptions, subscribe
from pisub.runs.spec import RunSpec
from pisub.testing import FakeClock
from tests.support.chosen_loop import ChosenLoop, Process
from tests.support.record_samples import SESSION, make_result, start, submit

END_STATES = [RunState.COMPLETE, RunState.COMPLETE, RunState.FAILED, RunState.STOPPED, RunState.PAUSED]
NUMBER = st.integers(0, 30)
#: What happens next; the number chooses to whom. Most of it is that somebody's work on the disk is done.
STEP = st.one_of(
    *[st.tuples(st.sampled_from(["job", "job", "round"]), NUMBER)] * 3,
    st.tuples(st.sampled_from(["job", "tick", "host", "end", "subscribe", "wait", "post again"]), NUMBER),
    st.tuples(st.sampled_from(["kill", "kill after", "fail", "stop", "broker", "tick", "end"]), NUMBER),
)
TICKS_S = (0.05, 0.2, 1.1, 6.0)


class Broker:
    """What a host has of the broker here: a connection, or none."""

    def __init__(self) -> None:
        self.is_connected = True

    async def watch(self, address: str, on_gone: Callable[[Terminated], None]) -> None:
        del on_gone  # no death is told of: a message may always be lost
        if not self.is_connected:
            raise NotDeliveredError(f"Nobody watches {address}.")


class Host:
    """A session's host: the real pump and the real subscriptions, and a handler that does as its number says."""

    def __init__(self, world: World, number: int, behaviour: int) -> None:
        self.process = Process(f"host {number}")
        self.has_stopped = False
        #: A disk that failed puts what it was about behind others.
        self.has_failed = False
        self._last_told = 0
        self._world = world
        self._behaviour = behaviour % 4
        self.completions = Completions(world.broker, world.layout, SESSION, clock=world.clock, report=world.report)
        self.subscriptions = Subscriptions(world.layout, SESSION, clock=world.clock, report=world.report)
        self.completions.tell_groups(self._told, BatchTimes(is_enabled=self._behaviour != 1))
        self.subscriptions.tell(lambda ended: world.wait_told(self.process, ended))
        self.process.run(self.completions.start, f"host-{number}")
        self.process.run(self.subscriptions.start)

    async def _told(self, group: CompletionGroup) -> None:
        if self.process.is_dead:
            return  # nothing of it is there to be told
        ends = [each.completion.ended_at for each in group.deliveries]
        assert self.has_failed or [self._last_told, *ends] == sorted([self._last_told, *ends]), "in the order of ending"
        self._last_told = ends[-1]
        self._world.ends_told(group)
        if self._behaviour == 2:
            await self._world.loop.pass_time(0.3)
        if self._behaviour == 3:
            raise ValueError("the program's own")
        if not self.process.is_dead:
            self._world.handled |= {each.delivery_key for each in group.deliveries}

    def wake(self) -> None:
        self.completions.wake()
        self.subscriptions.wake()

    def stop(self) -> None:
        async def stop() -> None:
            await self.completions.stop()
            await self.subscriptions.stop()

        self.has_stopped = True
        self._world.keep(self.process.run(asyncio.ensure_future, stop()))


class World:
    """The record, who is there, and what was told to whom."""

    def __init__(self, loop: ChosenLoop, clock: FakeClock, layout: Layout, behaviours: tuple[int, int]) -> None:
        self.loop = loop
        self.clock = clock
        self.layout = layout
        self.broker = Broker()
        self.hosts: list[Host] = []
        self.waiters: list[Process] = []
        self.runs = [self._run() for _ in range(2)]
        self.ended: dict[str, RunState] = {}
        self.calls: list[tuple[str, bool]] = []
        self.handled: set[str] = set()
        self.waits: list[str] = []
        self.excused: set[str] = set()
        self._tasks: list[asyncio.Future[None]] = []
        for number, behaviour in enumerate(behaviours):  # somebody is there, and somebody waits, from the beginning
            self.hosts.append(Host(self, number, behaviour))
            self.subscribe_now(self.runs[number], 1_800_000)

    def _run(self) -> RunSpec:
        spec = submit(self.layout)
        start(self.layout, spec, own_identity())
        return spec

    def report(self, what: str, error: BaseException | None) -> None:
        """Take what a host reports: here only what the test itself made go wrong."""
        assert error is None or isinstance(error, OSError | ValueError | NotDeliveredError), what

    def keep(self, task: asyncio.Future[None]) -> None:
        self._tasks.append(task)

    # What is told. --------------------------------------------------------------------------------------------

    def ends_told(self, group: CompletionGroup) -> None:
        states = [each.completion.state for each in group.deliveries]
        assert len(states) == 1 or set(states) == {RunState.COMPLETE}, "only successes are told together"
        assert group.is_quiet == (states[0] is RunState.COMPLETE)
        done = self.layout.session(SESSION).done
        for each in group.deliveries:
            name = f"{each.completion.run_id}.{each.completion.state}"
            assert each.delivery_key == name.replace(".", ":")
            assert not (done / name).exists() or each.redelivered, "what is done is never told as new"
            self.calls.append((each.delivery_key, each.redelivered))

    def wait_told(self, process: Process, ended: WaitEnded) -> None:
        assert not process.is_dead, "who was killed tells nobody"
        token = ended.subscription.token
        assert token not in self.tokens(), "it is removed first"
        self.waits.append(token)
        if ended.outcome != "timed-out":
            assert ended.outcome == self.ended[ended.subscription.run_id]

    def tokens(self) -> set[str]:
        return {each.token for each in list_subscriptions(self.layout)}

    # What happens. --------------------------------------------------------------------------------------------

    def end(self, number: int) -> None:
        going_on = [each for each in self.runs if each.run_id not in self.ended]
        if not going_on:
            if len(self.runs) < 5:
                self.runs.append(self._run())
            return
        spec = going_on[number % len(going_on)]
        paths = self.layout.run(spec.run_id)
        state = END_STATES[number % len(END_STATES)]
        self.clock.advance(0.001)  # no two end at once
        result = msgspec.structs.replace(make_result(spec, state=state), ended_at=self.clock.wall_ms())
        status, lock = read_status(paths), RunLock.acquire(paths.lock)
        assert status is not None
        assert lock is not None
        with lock:
            commit_end(self.layout, lock, status, result)
        self.ended[spec.run_id] = state
        if number % 2:  # else the message is lost
            for host in self.hosts:
                host.wake()

    def post_again(self, number: int) -> None:
        """Who finds a run ended, and cannot know whether its end was posted, posts it."""
        if self.ended:
            run_id, state = list(self.ended.items())[number % len(self.ended)]
            spec = next(each for each in self.runs if each.run_id == run_id)
            result = make_result(spec, state=state)
            post_completion(self.layout, completion_of(msgspec.structs.replace(result, ended_at=self.clock.wall_ms())))

    def subscribe_now(self, spec: RunSpec, timeout_ms: int) -> None:
        now_ms = self.clock.wall_ms()
        made = WaitSubscription(
            token=new_id(),
            session_id=SESSION,
            run_id=spec.run_id,
            requested_id=spec.run_id,
            created_at=now_ms,
            expires_at=now_ms + timeout_ms,
        )
        assert subscribe(self.layout, made)

    def subscribe(self, number: int) -> None:
        spec = self.runs[number % len(self.runs)]
        process = Process("who asks to be told")
        timeout_ms = (300, 2_000, 1_800_000)[number % 3]

        async def subscribe() -> None:
            await Waiter(self.layout, SESSION).subscribe(spec.run_id, timeout_ms=timeout_ms)

        self.waiters.append(process)
        self.keep(process.run(asyncio.ensure_future, subscribe()))

    def wait(self, number: int) -> None:
        run_id = self.runs[number % len(self.runs)].run_id if number % 3 == 0 else None
        process = Process("who waits")

        async def wait() -> None:
            outcome = await Waiter(self.layout, SESSION).wait(run_id, is_all=number % 2 == 0, timeout_ms=20_000)
            if not process.is_dead:
                self._check_wait(outcome, run_id)

        self.waiters.append(process)
        self.keep(process.run(asyncio.ensure_future, wait()))

    def _check_wait(self, outcome: WaitOutcome, run_id: str | None) -> None:
        verdict = outcome.verdict
        assert {each.item for each in verdict.finished} <= self.ended.keys(), "only what has ended is said to have"
        if verdict.end is WaitEnd.NOTHING and run_id is not None:
            assert run_id in self.ended
        assert verdict.end in (WaitEnd.NOTHING, WaitEnd.COMPLETED, WaitEnd.TIMEOUT)

    def kill(self, process: Process, *, work_first: bool) -> None:
        """Kill somebody; ``work_first``: between what it has the disk do now and its hearing of it."""
        before = self.tokens()
        mine = [job for job in self.loop.jobs if job.owner is process]
        if work_first and mine:
            mine[0].carry_out(is_answer_lost=True)
        # At most once: what was removed and not yet told is not told by another.
        self.excused |= before - self.tokens()
        self.loop.kill(process)

    def work(self, what: str, number: int) -> None:
        """Have the disk do something, or refuse it."""
        jobs = self.loop.jobs
        if not jobs:
            return
        if what == "round":
            for job in [jobs.pop(0) for _ in range(len(jobs))]:
                job.carry_out()
            return
        job = jobs.pop(number % len(jobs))
        host = next((each for each in self.hosts if each.process is job.owner), None)
        if what == "fail" and host is not None:  # a waiter's own call would fail with it: its caller's business
            host.has_failed = True
            job.fail(OSError(errno.ENOSPC, "No space left on device"))
        else:
            job.carry_out()

    def befall(self, what: str, number: int) -> None:
        """Have something happen to one of the hosts that live."""
        living = [each for each in self.hosts if not each.process.is_dead]
        if what == "broker":
            self.broker.is_connected = not self.broker.is_connected
            for host in living:
                host.wake()
        elif what == "host":
            if len(living) < 2:
                self.hosts.append(Host(self, len(self.hosts), number))
        elif living:
            host = living[number % len(living)]
            if what != "stop":
                self.kill(host.process, work_first=what == "kill after")
            elif not host.has_stopped:
                host.stop()

    async def step(self, what: str, number: int) -> None:
        match what:
            case "job" | "round" | "fail":
                self.work(what, number)
            case "tick":
                await self.loop.pass_time(TICKS_S[number % len(TICKS_S)])
            case "end":
                self.end(number)
            case "post again":
                self.post_again(number)
            case "subscribe":
                self.subscribe(number)
            case "wait":
                self.wait(number)
            case _:
                self.befall(what, number)
        await self.loop.quiet()
        for task in self._tasks:
            if task.done():
                task.result()

    async def settle(self) -> None:
        """Everybody is killed, every run ends; then one host comes that does as it should."""
        for process in [*(each.process for each in self.hosts), *self.waiters]:
            self.kill(process, work_first=False)
        while any(each.run_id not in self.ended for each in self.runs):
            self.end(0)
        last = Host(self, len(self.hosts), 0)
        for _ in range(400):
            while self.loop.jobs:
                self.loop.jobs.pop(0).carry_out()
                await self.loop.quiet()
            if not self.tokens() and not Outbox(self.layout, SESSION).pending():
                break
            await self.loop.pass_time(0.25)
        last.stop()
        while self.loop.jobs:
            self.loop.jobs.pop(0).carry_out()
            await self.loop.quiet()

    def check(self, tokens: set[str]) -> None:
        keys = {f"{run_id}:{state}" for run_id, state in self.ended.items()}
        assert self.handled == keys, "no end is lost: to each a handler has returned"
        new = [key for key, is_redelivered in self.calls if not is_redelivered]
        assert len(new) == len(set(new)), "none is told twice without saying so"
        done = {path.name.replace(".", ":") for path in self.layout.session(SESSION).done.iterdir()}
        assert {each for each in done if each[0] != ":"} == keys, "each is done"
        assert Outbox(self.layout, SESSION).pending() == []
        assert len(self.waits) == len(set(self.waits)), "no wait is told twice"
        assert set(self.waits) <= tokens
        assert tokens - set(self.waits) <= self.excused, "none is lost but with who had removed it"


def play(behaviours: tuple[int, int], steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as base:
        layout = Layout(Path(base) / "state", fsync=False)
        layout.prepare()
        clock = FakeClock(wall_ms=time.time_ns() // 1_000_000)
        loop = ChosenLoop(clock)

        async def scenario() -> None:
            world = World(loop, clock, layout, behaviours)
            tokens: set[str] = set()
            for what, number in steps:
                before = world.tokens()
                await world.step(what, number)
                tokens |= before | world.tokens()
            await world.settle()
            world.check(tokens)

        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(scenario())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(behaviours=st.tuples(st.integers(0, 3), st.integers(0, 3)), steps=st.lists(STEP, min_size=20, max_size=150))
def test_no_end_and_no_wait_is_lost_or_told_twice_whoever_dies_when(
    behaviours: tuple[int, int], steps: list[tuple[str, int]]
) -> None:
    play(behaviours, steps)
