"""A broker that dies while messages stream in: libzmq must not end the client with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: Sends two frames a message without end, to whoever spoke first.
FLOOD = """
import sys, zmq
context = zmq.Context()
socket = context.socket(zmq.ROUTER)
socket.bind(sys.argv[1])
route, _ = socket.recv_multipart()
print("up", flush=True)
while True:
    socket.send_multipart([route, b"stamp", b"x" * 300])
"""
#: A client whose broker is killed again and again while a backlog waits in its socket.
CLIENT = """
import asyncio, subprocess, sys
from pisub.transport.dealer import Dealer, new_context

endpoint, flood, kills = sys.argv[1], sys.argv[2], int(sys.argv[3])
got = 0

def on_message(stamp, frame):
    global got
    assert (stamp, len(frame)) == (b"stamp", 300)
    got += 1

async def main():
    context = new_context()
    handlers = dict(on_message=on_message, on_room=lambda: False, on_link=lambda _: None)
    dealer = Dealer(context, asyncio.get_running_loop(), **handlers)
    dealer.dial(endpoint)
    for _ in range(kills):
        with subprocess.Popen([sys.executable, "-c", flood, endpoint], stdout=subprocess.PIPE) as broker:
            before = got
            dealer.send(b"hi")
            while got < before + 2_000:
                dealer.look()
                await asyncio.sleep(0.001)
            broker.kill()
        dealer.look()
        await asyncio.sleep(0.01)
    dealer.close()
    context.term()
    print("alive")

asyncio.run(main())
"""


def test_a_client_outlives_a_broker_that_dies_in_the_middle_of_a_flood(private_places: Path) -> None:
    endpoint = f"ipc://{private_places}/flood.sock"
    command = [sys.executable, "-c", CLIENT, endpoint, FLOOD, "15"]
    done = subprocess.run(command, capture_output=True, timeout=100, check=False, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stdout) == (0, b"alive\n"), done.stderr.decode()
