"""Placed jobs whose users have changed them since, so that they may not start on the nodes that were chosen. Pure functions.

Slurm considers such a job on those nodes only, and puts it on hold (BadConstraints, seen on 22.05). Its user has not asked for
nodes, so it is placed again.
"""

from __future__ import annotations

from controller.base.apart import apart
from controller.base.text import listed
from controller.observe.observer import Observation
from controller.observe.role import Role
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.state.ledger import Ledger, PinRecord
from controller.state.user_changes import shows_other_nodes


def outdated_pins(observation: Observation, ledger: Ledger) -> dict[JobKey, str]:
    """Return the placed jobs that have not started and are to be placed again, each with the reason.

    The ledger has their requests as they are now, and the next placement keeps to these: a job is found once for each change.
    """
    found: dict[JobKey, str] = {}
    for key, pin in ledger.pins.items():
        job = observation.jobs.get(key)
        if job is None:
            continue
        with apart("placed jobs", key.job_id):
            if _waits_there(job, pin, observation) and (why := _why_not(job, pin, ledger)):
                found[key] = why
    return found


def _waits_there(job: SlurmJob, pin: PinRecord, observation: Observation) -> bool:
    """Return whether the job was released with this pin and waits, or was put on hold by Slurm itself since."""
    if job.phase is not Phase.PENDING or job.restarts != pin.restarts:
        return False
    if job.is_impossible:
        return job.key in observation.to_yield
    return observation.standings[job.key].role is Role.STARTING


def _why_not(job: SlurmJob, pin: PinRecord, ledger: Ledger) -> str:
    """Return why the job may not start on these nodes; empty if it may."""
    original = ledger.originals.get(job.key)
    if original is None:
        return ""
    excluded = sorted(set(original.excluded_nodes) & set(pin.nodes))
    if excluded:
        return f"its user excludes {listed(excluded)}"
    return "its user has changed its number of nodes" if shows_other_nodes(job, pin) else ""
