"""lightning_train.py on several ranks, with two additions: the callback, and a loader that keeps its position."""

import os

import lightning
from torchdata.stateful_dataloader import StatefulDataLoader

from lightning_requeue import SaveAndRequeue
from lightning_train import Numbers, Regression

lightning.seed_everything(0)
trainer = lightning.Trainer(
    num_nodes=2,
    max_steps=120,
    default_root_dir=f"runs/{os.environ['SLURM_JOB_ID']}",
    enable_progress_bar=False,
    callbacks=[SaveAndRequeue()],
)
trainer.fit(Regression(), StatefulDataLoader(Numbers(), batch_size=8))
