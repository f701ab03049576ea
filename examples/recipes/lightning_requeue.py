"""Callback for Lightning on several ranks: on SIGUSR1 all ranks save after the same batch, and the job requeues itself."""

import os
import signal
import subprocess

import lightning
import torch
import torch.distributed as dist


class SaveAndRequeue(lightning.Callback):
    """Invariant: the job is requeued only after all ranks have saved."""

    def setup(self, trainer, pl_module, stage):
        self.requested = False
        # A group of its own, on CPUs: the exchange never waits for a GPU
        self.group = dist.new_group(backend="gloo") if trainer.world_size > 1 else None
        signal.signal(signal.SIGUSR1, self.request)  # Lightning leaves a signal alone that has a handler

    def request(self, number, frame):
        self.requested = True

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        requested = torch.tensor(int(self.requested))
        if self.group is not None:
            dist.all_reduce(requested, op=dist.ReduceOp.MAX, group=self.group)
        if not requested:
            return
        self.requested = False
        # The name that Lightning looks for when a Slurm job begins
        trainer.save_checkpoint(f"{trainer.default_root_dir}/hpc_ckpt_{trainer.global_step}.ckpt")
        if trainer.is_global_zero:
            # If Slurm refuses, the training continues
            subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=False)
