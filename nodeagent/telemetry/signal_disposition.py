"""The effect of SIGUSR1 on a job: how many processes would catch it, and how many it would end."""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping
from contextlib import suppress

from nodeagent.identity.procfs import Processes, masks, name, parent
from nodeagent.wire.report import Usr1Report

_BIT = 1 << (signal.SIGUSR1 - 1)
STEPD = "slurmstepd"
_BATCH = "batch"
EXTERN = "extern"
"""The extern step has no process to which Slurm sends signals of the job."""
_MAX_PROCESSES = 2048
"""Maximum number of processes that are read: more would delay all other jobs."""


def usr1_effect(processes: Processes, steps: Mapping[str, Collection[int]]) -> Usr1Report | None:
    """Return the effect, from the signal masks of the processes of each step; None = there are very many.

    `scancel --signal --full` reaches the processes that slurmstepd itself has started, and all of the batch script's process
    group (observed with Slurm's proctrack/cgroup). The end of a child of the batch script does not end the job: its shell
    continues. srun does not react to the signal itself, and passes it on to its tasks.
    """
    if sum(map(len, steps.values())) > _MAX_PROCESSES:
        return None
    stepds: dict[int, bool] = {}
    caught = fatal = 0
    for step, pids in steps.items():
        for pid in pids if step != EXTERN else ():
            with suppress(OSError, ValueError):  # ended meanwhile
                stat = processes.stat(pid)
                started = _started_by_slurm(processes, stat, stepds)
                blocks, ignores, catches = masks(stat)
                caught += bool((started or step == _BATCH) and catches & _BIT)
                fatal += started and not (blocks | ignores | catches) & _BIT
    return Usr1Report(caught, fatal)


def _started_by_slurm(processes: Processes, stat: str, stepds: dict[int, bool]) -> bool:
    """Return True for a child of slurmstepd. Its fork that does not execute the user's program yet does not count."""
    if name(stat).startswith(STEPD):
        return False
    above = parent(stat)
    if above not in stepds:
        stepds[above] = False
        with suppress(OSError):
            stepds[above] = name(processes.stat(above)).startswith(STEPD)
    return stepds[above]
