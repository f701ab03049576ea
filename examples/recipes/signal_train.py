"""A training loop that has checkpoints of its own, and saves one on SIGUSR1."""

import logging
import os
import signal
import subprocess
import time
from pathlib import Path

import torch

logging.basicConfig(level=logging.INFO, format="%(message)s")
job = os.environ["SLURM_JOB_ID"]
saved = Path(f"{job}.pt")
requested = False


def request(number, frame):
    global requested
    requested = True  # the loop saves between two steps


signal.signal(signal.SIGUSR1, request)

torch.manual_seed(0)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
start = 0
if saved.exists():
    state = torch.load(saved)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    start = state["step"]

for step in range(start, 120):
    time.sleep(0.05)  # reading and decoding
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
    loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    logging.info("step %d loss %.6f", step, loss)
    if requested:
        requested = False
        state = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, f"{saved}.new")
        Path(f"{saved}.new").replace(saved)  # so the file is always complete
        subprocess.run(["scontrol", "requeue", job], check=False)  # if Slurm refuses, the training continues
