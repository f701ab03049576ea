"""Submits itself, and saves every ten steps: a submitit Checkpointable as in submitit's own documentation."""

import time
from pathlib import Path

import submitit
import torch


class Training(submitit.helpers.Checkpointable):
    """Called again with the same arguments when the job starts again."""

    def __call__(self, steps):
        saved = Path(f"runs/{submitit.JobEnvironment().job_id}.pt")
        torch.manual_seed(0)
        model = torch.nn.Linear(16, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        start = 0
        if saved.exists():
            state = torch.load(saved)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            start = state["step"]
        for step in range(start, steps):
            time.sleep(0.1)  # reading and decoding
            x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
            loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss:.6f}", flush=True)
            if (step + 1) % 10 == 0:
                state = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, f"{saved}.new")
                Path(f"{saved}.new").replace(saved)  # so the file is always complete


if __name__ == "__main__":
    executor = submitit.AutoExecutor(folder="runs")
    executor.update_parameters(
        timeout_min=60,
        gpus_per_node=1,
        slurm_setup=["trap '' USR1"],
        slurm_additional_parameters={"requeue": True, "comment": "headway=preemptible"},
    )
    print(executor.submit(Training(), 120).job_id)
