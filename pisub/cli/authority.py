"""What a child may not do by calling the command line: answer a question, be the host, rule the broker.

A process that descends from a live runner is a child. This protects against mistakes and against commands that were
talked into an agent; a program of the same user that wants to can still write the files. Which runs a child may control
is ``pisub.client.caller``'s to say.
"""

from __future__ import annotations

from pisub.client.caller import CHILD_REFUSED, calling_run
from pisub.errors import RefusedError
from pisub.record.layout import Layout


def refuse_children(layout: Layout, what: str) -> None:
    """Pass for a person's own command.

    Args:
        layout: The record whose live runs count.
        what: What is wanted, as it follows "may not".

    Raises:
        RefusedError: This process descends from a live run.
    """
    caller = calling_run(layout)
    if caller is not None:
        raise RefusedError(f"A child of run {caller} may not {what}: only a person may.", code=CHILD_REFUSED)
