"""Slurm's accounting of the jobs of all cases."""

from __future__ import annotations

import time

from slurm.minicluster.cluster import RunningCluster

FIELDS = ("State", "ExitCode", "AllocTRES", "QOS", "Account")
"""Fields that must be the same on both sides."""
_WRITTEN_S = 5.0
"""Time after which slurmdbd has written what slurmctld has sent."""


def fields_of(cluster: RunningCluster) -> dict[tuple[str, str], dict[str, str]]:
    """Return the fields of each job, by its name and its part ("_3" for a task of an array, else empty)."""
    time.sleep(_WRITTEN_S)
    columns = ("JobName%80", "JobID", *FIELDS)
    text = cluster.run("sacct", "-a", "-P", "-n", "-X", "-o", ",".join(columns), check=False).stdout
    found = {}
    for line in text.splitlines():
        name, job_id, *values = line.split("|")
        _, underscore, task = job_id.partition("_")
        fields = dict(zip(FIELDS, values, strict=True))
        fields["State"] = fields["State"].split()[0]
        found[(name, underscore + task)] = fields
    return found
