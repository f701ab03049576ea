"""Comparison of environments of batch scripts and steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

OF_THE_RUN = frozenset(
    {
        "SLURM_CLUSTER_NAME",
        "SLURM_CONF",
        "SLURM_GTIDS",
        "SLURM_JOBID",
        "SLURM_JOB_END_TIME",
        "SLURM_JOB_GPUS",
        "SLURM_JOB_ID",
        "SLURM_JOB_NODELIST",
        "SLURM_JOB_SLUID",
        "SLURM_JOB_START_TIME",
        "SLURM_JOB_USER",
        "SLURM_LAUNCH_NODE_IPADDR",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_NODELIST",
        "SLURM_NODE_ALIASES",
        "SLURM_PROCID",
        "SLURM_SRUN_COMM_HOST",
        "SLURM_SRUN_COMM_PORT",
        "SLURM_STEP_GPUS",
        "SLURM_STEP_LAUNCHER_PORT",
        "SLURM_STEP_NODELIST",
        "SLURM_SUBMIT_DIR",
        "SLURM_TASK_PID",
        "SLURM_TOPOLOGY_ADDR",
        "SLURM_TOPOLOGY_ADDR_PATTERN",
        "SLURM_WORKING_CLUSTER",
        "SLURMD_NODENAME",
        "SLURM_ARRAY_JOB_ID",
        "SLURM_PTY_PORT",
        "SLURM_CPU_BIND",
        "SLURM_CPU_BIND_LIST",
        "SLURM_PRIO_PROCESS",
    }
)
"""Variables whose values depend on the nodes, the time or the number of the job. Their names are compared, their values not."""
OF_ANY_TASK_PROLOG = frozenset({"SLURM_SCRIPT_CONTEXT"})
"""Variables that Slurm itself adds where slurm.conf has a TaskProlog, whatever the program does."""
GPUS = "CUDA_VISIBLE_DEVICES"


def differences(alone: Mapping[str, str], headway: Mapping[str, str]) -> Iterator[str]:
    """Yield a text for each difference that a script could notice."""
    missing = sorted(alone.keys() - headway.keys())
    added = sorted(headway.keys() - alone.keys() - OF_ANY_TASK_PROLOG)
    if missing:
        yield f"without {', '.join(f'{name}={alone[name]}' for name in missing)}"
    if added:
        yield f"also {', '.join(f'{name}={headway[name]}' for name in added)}"
    for name in sorted(alone.keys() & headway.keys() - OF_THE_RUN - {GPUS}):
        if alone[name] != headway[name]:
            yield f"{name} is {headway[name]}, not {alone[name]}"
    if number_of_gpus(alone) != number_of_gpus(headway):
        yield f"{GPUS} has {number_of_gpus(headway)}, not {number_of_gpus(alone)}"


def number_of_gpus(environment: Mapping[str, str]) -> int:
    """Return the number of visible GPUs."""
    return len([word for word in environment.get(GPUS, "").split(",") if word.isdigit()])
