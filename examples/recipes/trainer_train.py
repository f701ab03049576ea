"""An ordinary Hugging Face script, with two additions: the callback, and the checkpoint to resume from."""

import logging
import os
import time
from pathlib import Path

import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint

from trainer_requeue import SaveAndRequeue

logging.basicConfig(level=logging.INFO, format="%(message)s")


class Numbers(torch.utils.data.Dataset):
    """Each sample follows from its index."""

    def __len__(self):
        return 1_000

    def __getitem__(self, index):
        time.sleep(0.02)  # reading and decoding
        words = torch.randint(64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


class PrintLoss(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs, **_):
        if state.is_world_process_zero and "loss" in logs:
            logging.info("step %d loss %s", state.global_step - 1, logs["loss"])


transformers.set_seed(0)
config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2)
args = transformers.TrainingArguments(
    output_dir=f"runs/{os.environ['SLURM_JOB_ID']}",
    max_steps=120,
    per_device_train_batch_size=8,
    save_steps=1_000,
    logging_steps=1,
    report_to="none",
    disable_tqdm=True,
    use_cpu=not torch.cuda.is_available(),
)
trainer = transformers.Trainer(
    model=transformers.GPT2LMHeadModel(config),
    args=args,
    train_dataset=Numbers(),
    callbacks=[SaveAndRequeue(), PrintLoss()],
)
Path(args.output_dir).mkdir(parents=True, exist_ok=True)  # rank 0 may not have come so far
trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir))
