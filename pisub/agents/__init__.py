"""Agents: their files, where they are found, and which of them may run code here."""

from pisub.agents.catalog import Catalog, Diagnostic
from pisub.agents.definition import AgentDefinition, AgentSource, snapshot
from pisub.agents.discovery import AgentFinder, discover, find_project_root
from pisub.agents.parsing import parse_agent
from pisub.agents.trust import agents_digest, is_trusted, require_trust, trust

__all__ = [
    "AgentDefinition",
    "AgentFinder",
    "AgentSource",
    "Catalog",
    "Diagnostic",
    "agents_digest",
    "discover",
    "find_project_root",
    "is_trusted",
    "parse_agent",
    "require_trust",
    "snapshot",
    "trust",
]
