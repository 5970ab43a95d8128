"""pisub: delegate work to agents in detached processes, and let them ask the human."""

from pisub.version import __version__

__all__ = ["__version__"]
