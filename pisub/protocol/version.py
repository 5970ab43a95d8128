"""Versions of the wire and of the record, and how two sides agree on one."""

from __future__ import annotations

from pisub.errors import UnsupportedVersionError

#: Versions of the wire protocol that this program speaks, best first.
WIRE_VERSIONS: tuple[int, ...] = (1,)
#: Version of the files of a run. New keys need no new one; one whose meaning changes does.
RECORD_VERSION = 1
#: `lifecycleArtifactVersion` of the contract's readers.
LIFECYCLE_ARTIFACT_VERSION = 3
#: Version of every object that `--json` prints.
CLI_SCHEMA_VERSION = 1


def record_version() -> int:
    """Return ``RECORD_VERSION``. A field with this factory is always written, although defaults are left out."""
    return RECORD_VERSION


def negotiate(offered: tuple[int, ...], supported: tuple[int, ...] = WIRE_VERSIONS) -> int:
    """Return the best version that both sides speak.

    Raises:
        UnsupportedVersionError: There is none; the message names both lists.
    """
    shared = set(offered) & set(supported)
    if not shared:
        raise UnsupportedVersionError(
            f"No common wire version: the peer offers {sorted(offered)}, this side speaks {sorted(supported)}. "
            "Update the older of the two."
        )
    return max(shared)
