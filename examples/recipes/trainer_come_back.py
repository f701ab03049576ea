"""For Hugging Face's Trainer: on SIGUSR1 all ranks save at the same step, and the job requeues itself."""

import os
import signal
import subprocess

import torch
import torch.distributed as dist
import transformers


class ComeBack(transformers.TrainerCallback):
    """Invariant: the job is requeued only after all ranks have saved."""

    def on_train_begin(self, args, state, control, **_):
        self.asked = self.saving = False
        # Of its own, on CPUs: asking the others never waits for a GPU
        self.group = dist.new_group(backend="gloo") if args.world_size > 1 else None
        signal.signal(signal.SIGUSR1, self.ask)

    def ask(self, number, frame):
        self.asked = True

    def on_step_end(self, args, state, control, **_):
        asked = torch.tensor(int(self.asked))
        if self.group is not None:
            dist.all_reduce(asked, op=dist.ReduceOp.MAX, group=self.group)
        if asked:
            self.asked, self.saving = False, True
            control.should_save = True

    def on_save(self, args, state, control, **_):
        if not self.saving:
            return
        self.saving = False
        if self.group is not None:
            dist.barrier(group=self.group)
        if state.is_world_process_zero:
            # Where Slurm refuses, the training goes on
            subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=False)
