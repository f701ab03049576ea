"""Example of a program that cannot be changed: it saves every ten steps, and starts after its last save."""

import json
import os
import time
from pathlib import Path

saved = Path(f"{os.environ['SLURM_JOB_ID']}.json")
start, loss = json.loads(saved.read_text()) if saved.exists() else (0, 1.0)
for step in range(start, 120):
    time.sleep(0.05)
    loss *= 0.99
    print(f"step {step} loss {loss:.6f}", flush=True)
    if (step + 1) % 10 == 0:
        new = saved.with_suffix(".new")
        new.write_text(json.dumps([step + 1, loss]))
        new.replace(saved)
