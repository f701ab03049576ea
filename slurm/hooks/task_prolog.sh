#!/bin/sh
# Headway TaskProlog, version 2
#
# Runs as the user before the batch script and before every task; what it prints, slurmstepd does ("export NAME=value").
# Whatever is wrong, it prints nothing and succeeds: a job never fails for it.

# Loaded by PyTorch jobs, and where the node's agent listens. Where either is not there, jobs are left as they are.
JOB_SIDE=/opt/headway/jobside
JOB_SOCKET=/run/headway-agent/job.sock

# --- The number of tasks
#
# Slurm gives a batch script the environment of the submission. For a job that Headway spread over more nodes than its user
# named tasks (--gpus=12 --ntasks-per-node=1 on two nodes of 6 GPUs each), SLURM_NTASKS from then is too small, and srun
# refuses to make a step. Slurm itself never starts a job with fewer tasks than nodes, so the condition below is true for no
# other job, and nothing is printed for any other. Every other request was seen to need no correction.
correct_tasks() {
    # Only the batch script: srun has told its tasks the right numbers. (Batch steps carry no SLURM_STEP_ID of their own, or
    # a number that no real step has.)
    case ${SLURM_STEP_ID:-} in
    '' | 4294967291) ;;
    *) return ;;
    esac
    case ${SLURM_NTASKS:-}/${SLURM_NNODES:-} in
    /* | */ | *[!0-9/]*) return ;;
    esac
    [ "$SLURM_NTASKS" -lt "$SLURM_NNODES" ] || return

    per_node=${SLURM_NTASKS_PER_NODE:-1}
    case $per_node in
    '' | *[!0-9]*) per_node=1 ;;
    esac
    tasks=$((SLURM_NNODES * per_node))
    echo "export SLURM_NTASKS=$tasks"
    echo "export SLURM_NPROCS=$tasks"
}

# --- What PyTorch jobs load
#
# For jobs with GPUs, while an agent is there to be told. The user's own PYTHONPATH stays, behind ours. The batch script's
# environment goes on to its tasks, so there ours may stand in it already.
offer_job_side() {
    [ -S "$JOB_SOCKET" ] && [ -r "$JOB_SIDE/headway_job/__init__.py" ] || return
    case ${HEADWAY_PROFILE:-} in
    [oO][fF][fF] | [nN][oO] | 0) return ;;
    esac
    case ${SLURM_JOB_GPUS:-}${SLURM_STEP_GPUS:-}${CUDA_VISIBLE_DEVICES:-}${ROCR_VISIBLE_DEVICES:-} in
    '' | NoDevFiles) return ;;
    esac
    echo "export HEADWAY_JOB_SOCKET=$JOB_SOCKET"

    # slurmstepd reads lines, and no more than 4,095 bytes of them.
    newline='
'
    case :${PYTHONPATH:-}: in
    *:"$JOB_SIDE":* | *"$newline"*) return ;;
    esac
    [ "$(printf %s "${PYTHONPATH:-}" | wc -c)" -lt 3000 ] || return
    # Not echo, to which some shells' backslashes are commands.
    printf '%s\n' "export PYTHONPATH=$JOB_SIDE:$JOB_SIDE/before_2_5${PYTHONPATH:+:$PYTHONPATH}"
}

correct_tasks
offer_job_side
exit 0
