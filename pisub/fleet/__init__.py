"""A session's active work for display, as pure functions: the fleet status, the snapshot and the words of a status."""

from pisub.fleet.dto import FleetKeys, build_fleet
from pisub.fleet.jobs import Job, JobStep, jobs_of
from pisub.fleet.snapshot import build_snapshot
from pisub.fleet.text import clean_line
from pisub.fleet.words import fleet_text, run_text, status_text, transcript_text

__all__ = [
    "FleetKeys",
    "Job",
    "JobStep",
    "build_fleet",
    "build_snapshot",
    "clean_line",
    "fleet_text",
    "jobs_of",
    "run_text",
    "status_text",
    "transcript_text",
]
