"""An emulated elastic training job: job.py NAME STEPS STEP_S REDUCE_S. No GPU is used, and torch is not imported.

A step takes STEP_S / GPUs + REDUCE_S (GPUs - 1). Each task reports the steps to the node's agent over the job socket, as the hook
of headway_job does for a real training. The first task adds a line to NAME.runs when the run begins (0, GPUs, time) and when the
training has ended ("done").
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

from headway_job.hook.agent_socket import AgentSocket
from headway_job.hook.process_facts import hello

_TICK_S = 0.5


def main() -> None:
    """Make all steps."""
    name, steps, alone_s, reduce_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    rank, tasks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    gpus = tasks * len(os.environ["SLURM_STEP_GPUS"].split(","))
    step_s = alone_s / gpus + reduce_s * (gpus - 1)
    _record(rank, name, f"0 {gpus} {time.time()}")
    socket = AgentSocket(os.environ["HEADWAY_JOB_SOCKET"])
    socket.send("hello", hello("cpu", (rank, tasks), 0))
    signature = hashlib.sha256(b"emulated").hexdigest()
    facts = {"param_bytes": 1 << 20, "num_tensors": 1, "num_params": 1 << 18, "optimizers": 1, "groups": []}
    socket.send("model", {**facts, "signature": signature, "batch_size": -1})
    first_ns, sent = time.monotonic_ns(), 0
    while sent < steps:
        time.sleep(_TICK_S)
        done = min(int((time.monotonic_ns() - first_ns) / 1e9 / step_s), steps)
        if done > sent:
            window = {"window_steps": done - sent, "window_s": (done - sent) * step_s}
            last_ns = first_ns + round(done * step_s * 1e9)
            socket.send("steps", {"steps": done, "first_ns": first_ns, "last_ns": last_ns, **window})
            sent = done
        while socket.receive() is not None:
            pass
    socket.send("bye", {})
    socket.close()
    _record(rank, name, "done")


def _record(rank: int, name: str, line: str) -> None:
    if rank == 0:
        with Path(f"{name}.runs").open("a") as runs:
            runs.write(f"{line}\n")


if __name__ == "__main__":
    main()
