"""Findings of `headway doctor` about settings of Slurm that have to agree with the controller's. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from controller.slurm.configuration.conf import list_items
from controller.slurm.configuration.requeue_delay import seconds_of
from policies.serving.runtime.finding import Finding, Level

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.slurm.client import SlurmFacts

_DEFAULT_BF_INTERVAL_S = 30
"""Slurm's default of bf_interval, in every release since 22.05."""
_SLUID_CGROUPS = (26, 5)
"""Release since which cgroups of jobs are named by SLUID, unless CgroupJobIdPaths=yes."""


def scheduling_findings(settings: ControllerSettings, facts: SlurmFacts) -> Iterator[Finding]:
    """Yield the findings about SchedulerParameters and cgroup.conf."""
    parameters = list_items(facts.settings.get("SchedulerParameters", ""))
    if facts.settings.get("SchedulerType", "sched/backfill") == "sched/backfill":
        yield from _backfill(settings, parameters)
    yield from _requeue_delay(settings, parameters)
    yield from _cgroups(settings, facts)


def _backfill(settings: ControllerSettings, parameters: tuple[str, ...]) -> Iterator[Finding]:
    """Compare the interval of Slurm's backfill with the time that a placed job gets to start."""
    interval_s = seconds_of(parameters, "bf_interval")
    if isinstance(interval_s, str):
        what = f"start_grace_s was not compared with {interval_s} in SchedulerParameters: the value is not understood"
        mend = "correct it, or leave it out: it is a number of seconds; a blank before = hides it from Slurm, and -1 ends backfill"
        yield Finding("bf-interval", Level.WARNING, what, mend)
        return
    interval_s = _DEFAULT_BF_INTERVAL_S if interval_s is None else interval_s
    if interval_s <= settings.start_grace_s:
        yield Finding("bf-interval", Level.OK, f"start_grace_s is not below Slurm's bf_interval ({interval_s} s)")
        return
    what = (
        f"start_grace_s is {settings.start_grace_s:g} s, but Slurm considers jobs behind others of its queue only every "
        f"{interval_s} s (bf_interval): a placed job is taken back before Slurm has considered it"
    )
    mend = (
        f"set start_grace_s = {interval_s + 10} in controller.toml, or a bf_interval of at most "
        f"{settings.start_grace_s:g} in SchedulerParameters"
    )
    yield Finding("bf-interval", Level.WARNING, what, mend)


def _requeue_delay(settings: ControllerSettings, parameters: tuple[str, ...]) -> Iterator[Finding]:
    """Compare the time for which Slurm lets a requeued job wait with the interval at which the controller sees it."""
    delay_s = seconds_of(parameters, "requeue_delay")
    if isinstance(delay_s, str):
        what = f"{delay_s} in SchedulerParameters: the value is not understood"
        yield Finding("requeue-delay", Level.WARNING, what, "correct it, or leave it out: it is a number of seconds")
        return
    needed_s = 2 * settings.poll_interval_s
    if delay_s is None or delay_s >= needed_s:
        return  # Slurm's default is two minutes
    what = (
        f"requeue_delay={delay_s} in SchedulerParameters: a job that Slurm requeues, such as after the failure of a node, may "
        "start again, on the nodes that Headway chose before, until Headway places it anew"
    )
    yield Finding(
        "requeue-delay", Level.WARNING, what, f"set a requeue_delay of at least {needed_s:g}, or leave it out"
    )


def _cgroups(settings: ControllerSettings, facts: SlurmFacts) -> Iterator[Finding]:
    """Tell how the cgroups of jobs are named, where it is not by the job's number."""
    named_by_number = facts.settings.get("CgroupJobIdPaths", "no").lower() == "yes"
    if not settings.agents_address or named_by_number or facts.version[:2] < _SLUID_CGROUPS:
        return
    what = (
        "cgroups of jobs are named by SLUID: agents of this version find the number of the job; other tools on the nodes may need "
        "CgroupJobIdPaths=yes in cgroup.conf"
    )
    yield Finding("cgroup-paths", Level.OK, what)
