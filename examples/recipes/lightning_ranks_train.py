"""The same on several ranks, with two additions: the callback, and a loader that keeps its position in the data."""

import os

import lightning
from torchdata.stateful_dataloader import StatefulDataLoader

from lightning_come_back import ComeBack
from lightning_train import Numbers, Regression

lightning.seed_everything(0)
trainer = lightning.Trainer(
    num_nodes=2,
    max_steps=120,
    default_root_dir=f"runs/{os.environ['SLURM_JOB_ID']}",
    enable_progress_bar=False,
    callbacks=[ComeBack()],
)
trainer.fit(Regression(), StatefulDataLoader(Numbers(), batch_size=8))
