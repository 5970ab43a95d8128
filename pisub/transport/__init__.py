"""Sockets: a DEALER that an event loop watches, and its monitor. Knows bytes, no messages."""
