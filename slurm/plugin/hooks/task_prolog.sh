#!/bin/sh
# Headway TaskProlog, version 4
#
# Runs as the user before the batch script and before every task; what it prints, slurmstepd does ("export NAME=value").
# Whatever is wrong, it prints nothing and succeeds: a job never fails for it.

# The folder of headway_job, for every job of a node that has it; and where the node's agent listens, for jobs that are measured.
JOB_SIDE=/opt/headway/jobside
JOB_SOCKET=/run/headway-agent/job.sock

# --- The size of the job
#
# Slurm gives a batch script the environment of the submission, in every run of the job. Of the job's size some of it is then
# out of date, and srun, which reads it, refuses to make a step or makes too small a one:
#
# - Headway has spread the job over more nodes than its user named tasks (--gpus=12 --ntasks-per-node=1 on two nodes of 6).
#   Slurm itself never starts a job with fewer tasks than nodes, so this is seen by the number of tasks.
# - The job was put back into the queue and runs again in another size (`headway resize`). What slurmctld says of each run is
#   right in SLURM_NNODES, SLURM_TASKS_PER_NODE, SLURM_CPUS_PER_TASK, SLURM_GPUS_ON_NODE; where the variables of the submission
#   contradict it they are mended. Nobody else's restarted job contradicts it in its tasks. GPUs can look wrong where they are
#   not (uneven ones, --exclusive): there slurmctld is asked for the job's request, and when it does not answer all stays.
#
# For every other job nothing is printed.

# Only the batch script: srun has told its tasks the right numbers. (Batch steps carry no SLURM_STEP_ID of their own, or a
# number that no real step has.)
in_batch_script() {
    case ${SLURM_STEP_ID:-} in
    '' | 4294967291) ;;
    *) return 1 ;;
    esac
    is_number "${SLURM_NNODES:-}"
}

# One that a shell can count with: 09 is none to those who take it for an octal one, nor is one of more digits than an integer has.
is_number() {
    case $1 in
    '' | *[!0-9]* | 0?* | ??????????*) return 1 ;;
    esac
}

restarted() {
    is_number "${SLURM_RESTART_COUNT:-}" && [ "$SLURM_RESTART_COUNT" -gt 0 ]
}

# From "2(x3),1": tasks=7 most=2.
count_tasks() {
    tasks=0 most=0
    rest=${SLURM_TASKS_PER_NODE:-},
    while [ -n "$rest" ]; do
        part=${rest%%,*} rest=${rest#*,} times=1
        case $part in
        *'(x'*')')
            times=${part#*'(x'} times=${times%')'} part=${part%%'('*}
            ;;
        esac
        is_number "$part" && is_number "$times" || return 1
        tasks=$((tasks + part * times))
        [ "$part" -le "$most" ] || most=$part
    done
}

# Of three tasks, two by node, Slurm says "2(x2)".
tasks_look_right() {
    [ "$SLURM_NTASKS" -ne "$tasks" ] || return 0
    is_number "${SLURM_NTASKS_PER_NODE:-}" && [ "$SLURM_NTASKS_PER_NODE" -gt 0 ] &&
        [ "$tasks" -eq $((SLURM_NTASKS_PER_NODE * SLURM_NNODES)) ] &&
        [ $(((SLURM_NTASKS + SLURM_NTASKS_PER_NODE - 1) / SLURM_NTASKS_PER_NODE)) -eq "$SLURM_NNODES" ]
}

mend_tasks() {
    is_number "${SLURM_NTASKS:-}" || return
    if restarted && count_tasks; then
        tasks_look_right && return
        per_node=$most
    elif [ "$SLURM_NTASKS" -lt "$SLURM_NNODES" ]; then
        per_node=${SLURM_NTASKS_PER_NODE:-1}
        is_number "$per_node" || return
        tasks=$((SLURM_NNODES * per_node))
    else
        return
    fi
    echo "export SLURM_NTASKS=$tasks"
    echo "export SLURM_NPROCS=$tasks"
    case ${SLURM_NTASKS_PER_NODE:-} in
    '' | "$per_node") ;;
    *) echo "export SLURM_NTASKS_PER_NODE=$per_node" ;;
    esac
}

# The number in "4", "a100:4", "gres:gpu:a100:4" or "gres/gpu:4"; nothing of several kinds at once.
gpu_number() {
    case $1 in
    *,*) return 1 ;;
    esac
    number=${1##*:}
    is_number "$number" && [ "$number" -gt 0 ]
}

mend_gpus() {
    restarted && is_number "${SLURM_GPUS_ON_NODE:-}" || return
    looks_right "${SLURM_GPUS_PER_NODE:-}" "$SLURM_GPUS_ON_NODE" &&
        looks_right "${SLURM_GPUS:-}" $((SLURM_GPUS_ON_NODE * SLURM_NNODES)) && return
    told=$(timeout 10 scontrol -o show job "$SLURM_JOB_ID" 2>/dev/null) || return
    by_node='' in_all=''
    for word in $(printf %s "$told" | tr ' ' '\n' | grep -E '^TresPer(Node|Job)=gres[:/]gpu:[A-Za-z0-9_.:-]*$'); do
        gpu_number "${word#*=}" || return
        case $word in
        TresPerNode=*) by_node=$number ;;
        *) in_all=$number ;;
        esac
    done
    [ -z "$by_node" ] || in_all=$((by_node * SLURM_NNODES))
    correct SLURM_GPUS_PER_NODE "${SLURM_GPUS_PER_NODE:-}" "$by_node"
    correct SLURM_GPUS "${SLURM_GPUS:-}" "$in_all"
}

looks_right() {
    [ -z "$1" ] || { gpu_number "$1" && [ "$number" -eq "$2" ]; }
}

# The variable, what it says, and the number that it is to say; a type of GPU before the number stays.
correct() {
    [ -n "$2" ] && [ -n "$3" ] && gpu_number "$2" && [ "$number" -ne "$3" ] || return
    printf '%s\n' "export $1=${2%"$number"}$3"
}

# --- What PyTorch jobs load
#
# Every job can import headway_job, whether or not it has GPUs, is measured, or finds an agent on its node: a script that imports it
# must not depend on any of these. Without HEADWAY_JOB_SOCKET nothing else comes of it. The user's own PYTHONPATH stays, behind
# ours. The batch script's environment goes on to its tasks, so there ours may stand in it already.
offer_job_side() {
    [ -r "$JOB_SIDE/headway_job/__init__.py" ] || return
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

# Jobs with GPUs are measured, unless their user does not want it. An agent that is away now may be back later.
offer_job_socket() {
    [ -r "$JOB_SIDE/headway_job/__init__.py" ] || return
    case ${HEADWAY_PROFILE:-} in
    [oO][fF][fF] | [nN][oO] | 0) return ;;
    esac
    case ${SLURM_JOB_GPUS:-}${SLURM_STEP_GPUS:-}${CUDA_VISIBLE_DEVICES:-}${ROCR_VISIBLE_DEVICES:-} in
    '' | NoDevFiles) return ;;
    esac
    echo "export HEADWAY_JOB_SOCKET=$JOB_SOCKET"
}

if in_batch_script; then
    mend_tasks
    mend_gpus
fi
offer_job_side
offer_job_socket
exit 0
