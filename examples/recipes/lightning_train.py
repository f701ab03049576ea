"""An ordinary Lightning script, without code for Headway, signals or checkpoints."""

import logging
import os
import time

import lightning
import torch

logging.basicConfig(level=logging.INFO, format="%(message)s")


class Numbers(torch.utils.data.Dataset):
    """Each sample follows from its index."""

    def __len__(self):
        return 1_000

    def __getitem__(self, index):
        time.sleep(0.02)  # reading and decoding
        x = torch.randn(16, generator=torch.Generator().manual_seed(index))
        return x, x.sum(0, keepdim=True)


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layers(x), y)
        if self.global_rank == 0:
            logging.info("step %d loss %.6f", self.global_step, loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


if __name__ == "__main__":
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        max_steps=120, default_root_dir=f"runs/{os.environ['SLURM_JOB_ID']}", enable_progress_bar=False
    )
    trainer.fit(Regression(), torch.utils.data.DataLoader(Numbers(), batch_size=8))
