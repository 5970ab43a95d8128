"""The ledger of completions against its model, under interleavings of everybody who touches it.

Runners and reconcilers post ends, twice where two of them do; hosts come, take, handle, say done, are killed anywhere
and come again; two views believe to be the host at once; one host hears of an end by two ways; a wait only reads.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pisub.ids import new_id
from pisub.record.layout import Layout
from pisub.record.sessions import Outbox, completion_of, post_completion
from tests.support.interleaving import Interleaving
from tests.support.record_samples import SESSION, make_result, make_spec

#: Who there is: who posts which end, and the generation of each host. The same generation twice is one host that hears
#: of an end by a message and by its own look at the files.
POSTERS = [0, 0, 1]
GENERATIONS = st.lists(st.sampled_from(["h1", "h1", "h2", "h3"]), min_size=2, max_size=4)
#: Each choice lets one of the living actors make a step; with it, rarely, that actor is killed instead.
STEPS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30).map(lambda n: n == 7)), min_size=40, max_size=160)


class Ledger:
    """What the handlers were called with, in order, and whether an earlier call was said to be possible."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.results = [make_result(make_spec(new_id(at_ms=n))) for n in range(2)]
        self.calls: list[tuple[str, bool]] = []

    def post(self, number: int) -> None:
        post_completion(self.layout, completion_of(self.results[number]))

    def deliver(self, generation: str, world: Interleaving | None = None) -> None:
        outbox = Outbox(self.layout, SESSION)
        for completion in outbox.pending():
            was_done = completion.delivery_key in self.done()
            delivery = outbox.take(completion, generation)
            if delivery is None:
                continue
            assert not was_done, "what is done is never handed out again"
            if world is not None:
                world.pause()  # killed here: taken, and never handled
            key = delivery.delivery_key
            self.calls.append((key, delivery.redelivered))
            if world is not None:
                world.pause()  # killed here: handled, and never said so
            outbox.done(completion)

    def done(self) -> set[str]:
        """Return the keys of what the ledger says is done."""
        names = (path.name for path in self.layout.session(SESSION).done.iterdir())
        return {name.replace(".", ":") for name in names if name[0] != "."}

    def wait(self) -> None:
        """Read what is there, and touch nothing."""
        [each.delivery_key for each in Outbox(self.layout, SESSION).pending()]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(generations=GENERATIONS, steps=STEPS)
def test_every_end_is_handled_and_never_twice_without_saying_so(
    generations: list[str], steps: list[tuple[int, bool]]
) -> None:
    with tempfile.TemporaryDirectory() as base:
        ledger = Ledger(Layout(Path(base) / "state", fsync=False))
        ledger.layout.prepare()
        Outbox(ledger.layout, SESSION)
        ledger.post(0)
        world = Interleaving()
        for number in POSTERS:
            world.add(f"post {number}", lambda number=number: ledger.post(number))  # type: ignore[misc]  # its own number
        for generation in generations:
            world.add(generation, lambda generation=generation: ledger.deliver(generation, world))  # type: ignore[misc]
        world.add("wait", ledger.wait)
        with world.watched():
            for choice, is_killed in steps:
                living = world.living
                if not living:
                    break
                actor = living[choice % len(living)]
                actor.kill() if is_killed else actor.step()
            while living := world.living:  # those who were not killed live on
                living[0].step()
        assert [actor.error for actor in world.actors if actor.error is not None] == []
        # Whoever was killed while it posted is followed by a reconciler, and the hosts by one that lives.
        for number in POSTERS:
            ledger.post(number)
        for generation in ("h8", "h9"):
            ledger.deliver(generation)
        keys = {f"{result.run_id}:complete" for result in ledger.results}
        assert {key for key, _ in ledger.calls} == keys, "none is lost"
        assert ledger.done() == keys, "each is done"
        unsaid = [key for key, was_redelivered in ledger.calls if not was_redelivered]
        assert len(unsaid) == len(set(unsaid)), "none is doubled"
        assert Outbox(ledger.layout, SESSION).pending() == []
        # The temporary files of our own, living process stay; those of dead ones are another test's matter.
        left = {path.name for path in ledger.layout.session(SESSION).completions.iterdir() if path.name[0] != "."}
        assert left == {"done"}, "the outbox is empty"
