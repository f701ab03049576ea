"""What SIGUSR1 would do to a job: who catches it, and whom it would end."""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping
from contextlib import suppress

from nodeagent.identity.procfs import Processes, masks, name, parent
from nodeagent.wire.report import Usr1Report

_BIT = 1 << (signal.SIGUSR1 - 1)
_STEPD = "slurmstepd"
_BATCH = "batch"
_EXTERN = "extern"
"""Holds no process that Slurm asks on behalf of the job."""
_MOST = 2048
"""Processes that are looked at: more would hold everybody else up."""


def usr1(processes: Processes, steps: Mapping[str, Collection[int]]) -> Usr1Report | None:
    """By what the kernel knows of the processes, by step. None: very many.

    `scancel --signal --full` reaches those that slurmstepd itself has started, and all of the batch script's own process group
    (seen with Slurm's proctrack/cgroup). A helper of a batch script that is ended does not end the job: its shell goes on. srun
    holds the signal back, and passes it on to its tasks.
    """
    if sum(map(len, steps.values())) > _MOST:
        return None
    stepds: dict[int, bool] = {}
    caught = fatal = 0
    for step, pids in steps.items():
        for pid in pids if step != _EXTERN else ():
            with suppress(OSError, ValueError):  # ended meanwhile
                stat = processes.stat(pid)
                started = _started_by_slurm(processes, stat, stepds)
                blocks, ignores, catches = masks(stat)
                caught += bool((started or step == _BATCH) and catches & _BIT)
                fatal += started and not (blocks | ignores | catches) & _BIT
    return Usr1Report(caught, fatal)


def _started_by_slurm(processes: Processes, stat: str, stepds: dict[int, bool]) -> bool:
    """A fork of slurmstepd that has not become the user's program yet is none."""
    if name(stat).startswith(_STEPD):
        return False
    above = parent(stat)
    if above not in stepds:
        stepds[above] = False
        with suppress(OSError):
            stepds[above] = name(processes.stat(above)).startswith(_STEPD)
    return stepds[above]
