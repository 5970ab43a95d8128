"""Whether a frame has another behind it, asked the cheap way.

Owns the one call into libzmq that bypasses pyzmq. ``Socket.get`` finds an option's type by an enum, in Python, which
takes 0.7 us and would be a sixth of what the broker spends on a message; this takes 0.2.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, Final

import zmq
from zmq.backend import Socket

_RCVMORE: Final = int(zmq.RCVMORE)


class MoreFlag:
    """``ZMQ_RCVMORE`` of a socket.

    Attributes:
        read: Reads it anew; use it right after a frame was received, in the socket's thread, while the socket is open.
        value: What was read, in its ``value``: not 0 where the frame was not its message's last.
    """

    def __init__(self, socket: Socket) -> None:
        self.value = ctypes.c_int()
        self.read = _direct(socket, self.value) or functools.partial(_through_pyzmq, socket, self.value)


def _through_pyzmq(socket: Socket, value: ctypes.c_int) -> None:
    value.value = int(socket.get(_RCVMORE))


def _direct(socket: Socket, value: ctypes.c_int) -> Callable[[], Any] | None:
    """Return the call into the libzmq that pyzmq itself uses; None where that cannot be found."""
    extension = __import__(Socket.__module__, fromlist=["__file__"])
    try:
        # Without giving the interpreter up (PyDLL): it only copies a number.
        get_option = ctypes.PyDLL(str(extension.__file__)).zmq_getsockopt
    except (OSError, AttributeError):
        return None
    size = ctypes.c_size_t(ctypes.sizeof(value))
    handle = ctypes.c_void_p(socket.underlying)
    call = functools.partial(get_option, handle, ctypes.c_int(_RCVMORE), ctypes.byref(value), ctypes.byref(size))
    return call if call() == 0 else None
