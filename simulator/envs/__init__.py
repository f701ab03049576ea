"""Gymnasium environments over the simulator's engine. Importing this package registers them.
Imports `cluster`, `engine`, `errors`, `kernel`, `results`, `slowdown` and `traces`; of other packages `policies`.

import gymnasium, simulator.envs
env = gymnasium.make("headway/Contention-v0", branch="B")
envs = gymnasium.make_vec("headway/Contention-v0", 32, vectorization_mode="vector_entry_point", branch="B")
"""

from __future__ import annotations

import gymnasium

CONTENTION = "headway/Contention-v0"
ELASTIC = "headway/ElasticAllocation-v0"
SCHED2 = "headway/Sched2-v0"

for _name, _one, _many in (
    (CONTENTION, "contention_rl.env:ContentionEnv", "contention"),
    (ELASTIC, "dl2.env:ElasticAllocationEnv", "elastic"),
    (SCHED2, "sched2.env:Sched2Env", "sched2"),
):
    if _name not in gymnasium.registry:
        gymnasium.register(
            _name, entry_point=f"simulator.papers.{_one}", vector_entry_point=f"simulator.papers.vectorized:{_many}"
        )
