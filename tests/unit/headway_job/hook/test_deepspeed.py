"""The real DeepSpeed: the several optimizer steps that ZeRO makes in an iteration count as one."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

JOBSIDE = Path(__file__).parents[4] / "headway_job/src"
_PROGRAM = """
import json, os, sys
os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
import torch, torch.distributed
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=0, world_size=1)
import deepspeed
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # it would be compiled
from headway_job.hook.step_counter import StepCounter, step_hook
from torch.optim.optimizer import register_optimizer_step_post_hook
counter, calls = StepCounter(), []
register_optimizer_step_post_hook(step_hook(counter))
register_optimizer_step_post_hook(lambda *_: calls.append(1))
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
optimizer = torch.optim.AdamW([{"params": list(layer.parameters()), "lr": 0.01} for layer in model])
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "bf16": {"enabled": True},
    "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": int(sys.argv[1]), "sub_group_size": 5000},
})
for _ in range(20):
    engine.backward(engine(torch.randn(2, 64, dtype=torch.bfloat16)).square().mean())
    engine.step()
print(json.dumps([engine.global_steps, len(calls), counter.last_step[0]]))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="not installed: `./setup.sh .venv deepspeed`")
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_steps_of_an_iteration_count_as_one(tmp_path: Path, stage: int) -> None:
    argv = [sys.executable, "-c", _PROGRAM, str(stage), str(tmp_path / "meeting")]
    done = subprocess.run(
        argv,
        env={"PYTHONPATH": str(JOBSIDE), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    iterations, steps, counted = json.loads(done.stdout.splitlines()[-1])
    assert steps == 4 * iterations
    assert counted == iterations == 10
