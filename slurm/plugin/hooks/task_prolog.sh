#!/bin/sh
# Headway TaskProlog, version 11
#
# It runs as the user before the batch script and before every task; slurmstepd carries out what it prints ("export NAME=value").
# On any problem it prints nothing and succeeds: it never makes a job fail.

# The folder of headway_job, for every job on a node that has it; and the socket of the node's agent, for jobs that are measured.
JOB_SIDE=/opt/headway/jobside
JOB_SOCKET=/run/headway-agent/job.sock

# --- The size of the job
#
# In every run of a job Slurm gives the batch script the environment of the submission. The variables about the size of the job
# can then be out of date. srun reads them, and refuses to start a step or starts one that is too small. There are two cases:
#
# - Headway has spread the job over more nodes than it has tasks (--gpus=12 --ntasks-per-node=1 on two nodes with 6 GPUs each).
#   Slurm itself never starts a job with fewer tasks than nodes, so the number of tasks shows this case.
# - The job runs in another size than it was submitted with: it was requeued (`headway resize`), or it asks for GPUs in all
#   (SLURM_GPUS), and the policy has chosen its size, also for its first run. For each run slurmctld sets SLURM_NNODES,
#   SLURM_TASKS_PER_NODE, SLURM_CPUS_PER_TASK and SLURM_GPUS_ON_NODE correctly; variables of the submission that contradict them
#   are corrected. The tasks of a job that Headway has not resized never contradict them. GPUs may seem to (uneven numbers,
#   --exclusive): then the script asks slurmctld for the request of the job, and changes nothing without an answer.
#
# For every other job nothing is printed.

# Only the batch script needs this: srun gives its tasks the right numbers. (Batch steps have no SLURM_STEP_ID, or a number that
# no real step has.)
in_batch_script() {
    case ${SLURM_STEP_ID:-} in
    '' | 4294967291) ;;
    *) return 1 ;;
    esac
    is_number "${SLURM_NNODES:-}"
}

# Succeed for a number with which every shell can calculate: some shells read 09 as an invalid octal number, and a long number
# does not fit into an integer.
is_number() {
    case $1 in
    '' | *[!0-9]* | 0?* | ??????????*) return 1 ;;
    esac
}

may_be_resized() {
    [ -z "${SLURM_GPUS:-}" ] || return 0
    is_number "${SLURM_RESTART_COUNT:-}" && [ "$SLURM_RESTART_COUNT" -gt 0 ]
}

# Set the number of tasks, and the largest number on one node, from SLURM_TASKS_PER_NODE: "2(x3),1" gives tasks=7 most=2.
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

# For three tasks with two per node, Slurm sets "2(x2)".
tasks_look_right() {
    [ "$SLURM_NTASKS" -ne "$tasks" ] || return 0
    is_number "${SLURM_NTASKS_PER_NODE:-}" && [ "$SLURM_NTASKS_PER_NODE" -gt 0 ] &&
        [ "$tasks" -eq $((SLURM_NTASKS_PER_NODE * SLURM_NNODES)) ] &&
        [ $(((SLURM_NTASKS + SLURM_NTASKS_PER_NODE - 1) / SLURM_NTASKS_PER_NODE)) -eq "$SLURM_NNODES" ]
}

mend_tasks() {
    is_number "${SLURM_NTASKS:-}" || return
    if may_be_resized && count_tasks; then
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

# Set the number in "4", "a100:4", "gres:gpu:a100:4" or "gres/gpu:4"; fail for several types at once.
gpu_number() {
    case $1 in
    *,*) return 1 ;;
    esac
    number=${1##*:}
    is_number "$number" && [ "$number" -gt 0 ]
}

mend_gpus() {
    may_be_resized && is_number "${SLURM_GPUS_ON_NODE:-}" || return
    looks_right "${SLURM_GPUS_PER_NODE:-}" "$SLURM_GPUS_ON_NODE" &&
        looks_right "${SLURM_GPUS:-}" $((SLURM_GPUS_ON_NODE * SLURM_NNODES)) && return
    answer=$(timeout 10 scontrol -o show job "$SLURM_JOB_ID" 2>/dev/null) || return
    by_node='' in_all=''
    for word in $(printf %s "$answer" | tr ' ' '\n' | grep -E '^TresPer(Node|Job)=gres[:/]gpu:[A-Za-z0-9_.:-]*$'); do
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

# correct VARIABLE VALUE NUMBER: export the variable with this number; a type of GPU before the number stays.
correct() {
    [ -n "$2" ] && [ -n "$3" ] && gpu_number "$2" && [ "$number" -ne "$3" ] || return
    printf '%s\n' "export $1=${2%"$number"}$3"
}

# A change of a job of --mem-per-gpu, such as that of its admin comment, makes Slurm (22.05) set the partition's default memory for
# each CPU too. If the job has just been allocated, its batch script sees both, and srun refuses to start. A user can give only one.
mend_memory() {
    [ -n "${SLURM_MEM_PER_GPU:-}" ] && [ -n "${SLURM_MEM_PER_CPU:-}" ] || return
    echo "unset SLURM_MEM_PER_CPU"
}

# --- The folder and the socket for PyTorch jobs
#
# Every job can import headway_job, also without GPUs, without measurement and without an agent on the node, so that a script may
# import it anywhere. Without HEADWAY_JOB_SOCKET, headway_job does nothing else. The user's own PYTHONPATH stays, behind this
# folder. Tasks inherit the environment of the batch script, so there the folder may be in PYTHONPATH already.
offer_job_side() {
    [ -r "$JOB_SIDE/headway_job/__init__.py" ] || return
    # slurmstepd reads line by line, and at most 4,095 bytes of each.
    newline='
'
    case :${PYTHONPATH:-}: in
    *:"$JOB_SIDE":* | *"$newline"*) return ;;
    esac
    [ "$(printf %s "${PYTHONPATH:-}" | wc -c)" -lt 3000 ] || return
    # Not echo: in some shells it interprets backslashes.
    printf '%s\n' "export PYTHONPATH=$JOB_SIDE:$JOB_SIDE/before_2_5${PYTHONPATH:+:$PYTHONPATH}"
}

# Jobs with GPUs are measured, unless the user has disabled it. The socket need not exist: an agent may start later.
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
    mend_memory
fi
offer_job_side
offer_job_socket
exit 0
