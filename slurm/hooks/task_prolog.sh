#!/bin/sh
# Headway TaskProlog, version 1
#
# Runs as the user before the batch script and before every task; what it prints, slurmstepd does ("export NAME=value").
#
# Slurm gives a batch script the environment of the submission. For a job that Headway spread over more nodes than its user
# named tasks (--gpus=12 --ntasks-per-node=1 on two nodes of 6 GPUs each), SLURM_NTASKS from then is too small, and srun
# refuses to make a step. Slurm itself never starts a job with fewer tasks than nodes, so the condition below is true for no
# other job, and nothing is printed for any other. Every other request was seen to need no correction.

# Only the batch script: srun has told its tasks the right numbers. (Batch steps carry no SLURM_STEP_ID of their own, or a
# number that no real step has.)
case ${SLURM_STEP_ID:-} in
'' | 4294967291) ;;
*) exit 0 ;;
esac
case ${SLURM_NTASKS:-}/${SLURM_NNODES:-} in
/* | */ | *[!0-9/]*) exit 0 ;;
esac
[ "$SLURM_NTASKS" -lt "$SLURM_NNODES" ] || exit 0

per_node=${SLURM_NTASKS_PER_NODE:-1}
case $per_node in
'' | *[!0-9]*) per_node=1 ;;
esac
tasks=$((SLURM_NNODES * per_node))
echo "export SLURM_NTASKS=$tasks"
echo "export SLURM_NPROCS=$tasks"
exit 0
