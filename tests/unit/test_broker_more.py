"""The broker's cheap way to see that a frame has another behind it says what pyzmq's own way says."""

from __future__ import annotations

import zmq
from zmq.backend import Socket

from broker.more import MoreFlag


def test_each_frame_but_the_last_has_more_behind_it() -> None:
    with zmq.Context() as context:
        ours, theirs = Socket(context, zmq.PAIR), Socket(context, zmq.PAIR)
        ours.bind("inproc://more")
        theirs.connect("inproc://more")
        more = MoreFlag(ours)
        seen, expected = [], []
        for flags in (int(zmq.SNDMORE), int(zmq.SNDMORE), 0, 0):
            theirs.send(b"x", flags)
        for _ in range(4):
            ours.recv()
            more.read()
            seen.append(bool(more.value.value))
            expected.append(bool(ours.get(int(zmq.RCVMORE))))
        ours.close()
        theirs.close()
    assert seen == expected == [True, True, False, False]
