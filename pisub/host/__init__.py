"""The host's side of a session: the queue of questions, the dialogs, the completions.

``pisub.host`` is both this package and the function ``pisub.host(...)`` of the library: importing any module in here
binds the package to that name, so the package itself can be called and passes the call on.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``pisub.client.api.host``; its signature and its documentation are there."""
        from pisub.client.api import host  # noqa: PLC0415  # the package must stay as light as its lightest module

        return host(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
