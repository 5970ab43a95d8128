"""Forks that do what follows a runner's end, bounded in time, so that no disk and no broker can hold up a launch."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Final

from pisub.config import Settings

from . import after_fork
from .child import fork_quietly
from .reaper import Death

#: A coroner that takes longer hangs on a disk or a broker; the next reader finishes the record.
LIMIT_S: Final = 10


def fork_coroner(death: Death, settings: Settings, autopsy: Callable[[Death, Settings], None]) -> int:
    """Fork a coroner; return its pid. The runner must not be reaped before the coroner has ended.

    Raises:
        OSError: There is no process to be had.
    """
    pid = fork_quietly()
    if pid == 0:
        code = 1
        try:
            after_fork.reset_signals()
            after_fork.close_descriptors()
            signal.alarm(LIMIT_S)
            autopsy(death, settings)
            code = 0
        except BaseException:  # noqa: BLE001  # the end of this process: beyond it lies the parent's own loop
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid
