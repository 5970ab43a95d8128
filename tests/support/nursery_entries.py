"""What test nurseries fork: small runs that say what they see, in files of their working directory."""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from pisub.config import Settings
from pisub.process import own_identity
from pisub.record.atomic import encode_record, write_new
from pisub.record.layout import Layout
from pisub.record.model import Started
from pisub.runs.spec import LaunchMessage
from runner.process_tree import become_subreaper
from tests.support.leaks import open_descriptors


def _say(name: str, value: object) -> None:
    """Write a file that is whole as soon as it exists."""
    part = Path(f"{name}.part")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.rename(name)


def _claim(message: LaunchMessage, settings: Settings) -> bool:
    """Claim the start as a runner does; False when the run is another process's."""
    started = Started(run_id=message.run_id, process=own_identity(), started_at=1)
    return write_new(Layout.of(settings).run(message.run_id).started, encode_record(started), fsync=False)


def look(message: LaunchMessage, *, settings: Settings) -> int:
    """Describe this process."""
    seen = open_descriptors()
    sys.stdout.write("to stdout\n")
    sys.stderr.write("to stderr\n")
    umask = os.umask(0)
    os.umask(umask)
    ignored = [number.name for number in signal.Signals if signal.getsignal(number) == signal.SIG_IGN]
    _say(
        "seen.json",
        {
            "environ": {ascii(key): ascii(value) for key, value in os.environ.items()},
            "cwd": str(Path.cwd()),
            "pid": os.getpid(),
            "session": os.getsid(0),
            "descriptors": seen,
            "umask": umask,
            "nofile": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
            "file_size": list(resource.getrlimit(resource.RLIMIT_FSIZE)),
            "ignored": ignored,
            "mask": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "tz": time.tzname[0],
            "random": random.random(),
            "home": str(settings.home),
            "runtime_dir": str(settings.runtime_dir),
            "main_thread": threading.current_thread() is threading.main_thread(),
            "title": Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode(),
            "exit_of_child": subprocess.run([sys.executable, "-c", "raise SystemExit(7)"], check=False).returncode,
        },
    )
    return 7


def wait(message: LaunchMessage, *, settings: Settings) -> int:
    """Claim the run, then stay until a file `go` appears or a signal comes; leave at once when it is another's."""
    if not _claim(message, settings):
        Path("second").touch()
        return 0
    _say("waiting.json", os.getpid())
    while not Path("go").exists():
        time.sleep(0.01)
    return 0


def orphan(message: LaunchMessage, *, settings: Settings) -> int:
    """Start a process that ignores TERM, in a session of its own and with the run's mark; then wait."""
    code = "import signal,sys,time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PISUB_RUN_ID": message.run_id},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None
    child.stdout.readline()
    _say("orphan.json", child.pid)
    if os.environ.get("LEAVE"):
        return 0
    return wait(message, settings=settings)


def escapee(message: LaunchMessage, *, settings: Settings) -> int:
    """Leave a process without any mark: twice forked, a session of its own, no environment, deaf to TERM."""
    code = (
        "import os,signal,sys,time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "signal.signal(15, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(600)"
    )
    become_subreaper()
    child = subprocess.Popen([sys.executable, "-c", code], env={}, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    child.wait()
    _say("orphan.json", pid)
    return wait(message, settings=settings)


def raises(message: LaunchMessage, *, settings: Settings) -> int:
    """Break."""
    raise RuntimeError("the entry broke")


def inventory(message: LaunchMessage, *, settings: Settings) -> int:
    """List what a fork inherits that it must not: things that are bound to the process that made them."""
    gc.unfreeze()
    bad = {
        ("psutil", "Process"),
        ("ssl", "SSLContext"),
        ("asyncio.events", "AbstractEventLoop"),
        ("zmq.sugar.context", "Context"),
        ("logging", "FileHandler"),
        ("subprocess", "Popen"),
        ("socket", "socket"),
    }
    found = sorted(
        f"{kind.__module__}.{kind.__qualname__}"
        for each in gc.get_objects()
        for kind in type(each).__mro__
        if (kind.__module__, kind.__name__) in bad
        and not (isinstance(each, socket.socket) and each.family == socket.AF_UNIX)
    )
    _say("inventory.json", {"objects": found, "threads": len(list(Path("/proc/self/task").iterdir()))})
    return 0
