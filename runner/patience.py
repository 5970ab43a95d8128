"""What a run does before its loop exists, done again while the disk refuses for a while.

Afterwards the recorder and the ending retry by themselves, beside everything else.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

#: What passes: a full disk or quota, no descriptors, a directory that may not be entered for a moment. Nothing else.
PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EACCES})
#: A run that cannot be begun is known to be so within five seconds.
PATIENCE_S: Final = 4.0
_RETRY_S: Final = 0.1


def patiently(attempt: Callable[[], T]) -> T:
    """Return what ``attempt`` returns, once the disk lets it. Blocks; for what may be begun again after any error.

    Raises:
        OSError: It refused for four seconds, or for a reason that does not pass.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return attempt()
        except OSError as error:
            if error.errno not in PASSING or time.monotonic() >= deadline:
                raise
        time.sleep(_RETRY_S)  # no event says that a disk is well again
