#!/bin/bash
#SBATCH --nodes=1 --ntasks-per-node=1 --gpus-per-node=1 --time=1:00:00
#SBATCH --requeue --open-mode=append --comment=headway=preemptible
trap '' USR1
srun env --ignore-signal=USR1 python signal_train.py
