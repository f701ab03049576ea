"""A DDP loop with the three lines of headway_job."""

import logging
import os
import time

import headway_job
import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(message)s")
dist.init_process_group(rank=int(os.environ["SLURM_PROCID"]), world_size=int(os.environ["SLURM_NTASKS"]))
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
run = headway_job.checkpoint(model=model, optimizer=optimizer)
for step in run.steps(120):
    time.sleep(0.05)  # reading and decoding
    x = torch.randn(8, 16)
    loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        logging.info("step %d loss %.6f", step, loss)
dist.destroy_process_group()
