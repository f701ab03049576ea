"""Callback for Hugging Face's Trainer: on SIGUSR1 all ranks save at the same step, and the job requeues itself."""

import os
import signal
import subprocess

import torch
import torch.distributed as dist
import transformers


class SaveAndRequeue(transformers.TrainerCallback):
    """Invariant: the job is requeued only after all ranks have saved."""

    def on_train_begin(self, args, state, control, **_):
        self.requested = self.saving = False
        # A group of its own, on CPUs: the exchange never waits for a GPU
        self.group = dist.new_group(backend="gloo") if args.world_size > 1 else None
        signal.signal(signal.SIGUSR1, self.request)

    def request(self, number, frame):
        self.requested = True

    def on_step_end(self, args, state, control, **_):
        requested = torch.tensor(int(self.requested))
        if self.group is not None:
            dist.all_reduce(requested, op=dist.ReduceOp.MAX, group=self.group)
        if requested:
            self.requested, self.saving = False, True
            control.should_save = True

    def on_save(self, args, state, control, **_):
        if not self.saving:
            return
        self.saving = False
        if self.group is not None:
            dist.barrier(group=self.group)
        if state.is_world_process_zero:
            # If Slurm refuses, the training continues
            subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=False)
