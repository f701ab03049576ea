#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1 --gpus-per-node=1 --time=1:00:00
#SBATCH --requeue --open-mode=append --comment=headway=preemptible
trap 'again=yes; scontrol requeue "$SLURM_JOB_ID"' USR1
srun env --ignore-signal=USR1 python every_ten_train.py &
program=$! again=yes
while [ "$again" ]; do again=; wait "$program"; result=$?; done  # the signal ends wait, not the program
exit "$result"
