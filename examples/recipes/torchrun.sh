#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=1 --time=1:00:00
#SBATCH --requeue --open-mode=append --comment=headway=preemptible
trap '' USR1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
srun bash -c '
    trap "again=yes; pkill -USR1 --parent \$launcher" USR1
    env --ignore-signal=USR1 torchrun --nnodes=2 --node-rank="$SLURM_NODEID" --nproc-per-node=1 \
        --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" trainer_train.py &
    launcher=$! again=yes
    while [ "$again" ]; do again=; wait "$launcher"; result=$?; done
    exit "$result"'
