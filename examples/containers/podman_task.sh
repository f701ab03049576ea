#!/bin/sh
# Run one task of a Slurm step in a container, in which Headway measures it as it does outside:
#   srun podman_task.sh [OPTIONS OF podman run] IMAGE PROGRAM...
#
# What a node does not have is not mounted, so the task also runs where there is no agent, and without Headway.
side=${PYTHONPATH%%:*}             # the TaskProlog puts the folder of headway_job first
agent=${HEADWAY_JOB_SOCKET%/*}     # the folder, not the socket: an agent that starts again creates a new socket in it
if [ -n "$HEADWAY_JOB_SOCKET" ] && [ -d "$agent" ]; then
    set -- --volume "$agent:$agent:ro" "$@"
fi
if [ -n "$side" ] && [ -r "$side/headway_job/__init__.py" ]; then
    set -- --volume "$side:$side:ro" --env "PYTHONPATH=$side:$side/before_2_5" "$@"
fi
if [ -n "$HEADWAY_CHECKPOINT_DIR" ] && [ -d "$HEADWAY_CHECKPOINT_DIR" ]; then
    set -- --volume "$HEADWAY_CHECKPOINT_DIR:$HEADWAY_CHECKPOINT_DIR" "$@"
fi
# --cgroups=disabled: the processes stay in the cgroup of their job, by which the agent (and Slurm itself) knows them.
exec podman run --rm --cgroups=disabled --network=host --volume /dev/shm:/dev/shm \
    --env 'SLURM_*' --env 'HEADWAY_*' --env 'MASTER_*' --env 'GLOO_*' --env 'NCCL_*' \
    --volume "$PWD:$PWD" --workdir "$PWD" "$@"
