"""Preflight: what exactly would be launched, and with which digests, before anything is."""

from pisub.preflight.contract import Accepted, LaunchContract, Preflight, Refused
from pisub.preflight.models import ModelInfo
from pisub.preflight.plan import LaunchPlan, PreflightRefusal, Wishes
from pisub.preflight.resolve import PreflightRequest, preflight

__all__ = [
    "Accepted",
    "LaunchContract",
    "LaunchPlan",
    "ModelInfo",
    "Preflight",
    "PreflightRefusal",
    "PreflightRequest",
    "Refused",
    "Wishes",
    "preflight",
]
