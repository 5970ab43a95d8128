"""The broker: one process per runtime directory that routes frames and knows names, roles, topics and deaths.

A pure core (``core`` and what it is made of) and a thin shell (``shell``, ``liveness``, ``singleton``), put together in
``app``. It never decodes the body of a message that passes through, and keeps nothing that clients and files cannot
tell it again.
"""
