"""PrivateData of slurm.conf: what users may not see of one another."""

from __future__ import annotations

from collections.abc import Mapping

JOBS = frozenset({"jobs"})
"""Words of PrivateData that hide jobs of other users."""
USAGE = frozenset({"jobs", "usage"})
"""Words of PrivateData that hide the usage of other users."""


def is_private(settings: Mapping[str, str] | None, hidden_by: frozenset[str]) -> bool:
    """Return whether PrivateData has one of these words; True while Slurm's settings are not known (None)."""
    private = "jobs" if settings is None else settings.get("PrivateData", "")
    return bool((hidden_by | {"all"}) & set(private.lower().split(",")))
