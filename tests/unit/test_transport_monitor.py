"""What a socket monitor's frames say of the connection."""

import struct

import pytest
import zmq

from pisub.transport.monitor import Link, parse_event


@pytest.mark.parametrize(
    ("event", "link"),
    [
        (zmq.Event.HANDSHAKE_SUCCEEDED, Link.UP),
        (zmq.Event.DISCONNECTED, Link.DOWN),
        (zmq.Event.CONNECTED, None),
    ],
)
def test_a_link_is_up_with_the_handshake_and_down_with_the_disconnect(event: zmq.Event, link: Link | None) -> None:
    assert parse_event(struct.pack("=HI", event, 0)) is link


def test_a_frame_of_another_size_says_nothing() -> None:
    assert parse_event(b"") is None
