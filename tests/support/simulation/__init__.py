"""A broker and its clients without sockets, clocks or processes, driven by one seeded schedule.

The real cores run; what lies between them (pipes, the kernel, time, the order of things) is played. The same seed gives
the same history. ``python -m tests.support.simulation SEED`` prints one as a transcript.
"""
