"""Engines: what a child session runs on. Only the one that a run needs is imported."""
