"""Gymnasium environments over the simulator's engine. Importing this package registers them.

import gymnasium, simulator.envs
env = gymnasium.make("headway/Contention-v0", branch="B")
"""

from __future__ import annotations

import gymnasium

CONTENTION = "headway/Contention-v0"
ELASTIC = "headway/ElasticAllocation-v0"
SCHED2 = "headway/Sched2-v0"

if CONTENTION not in gymnasium.registry:
    gymnasium.register(CONTENTION, entry_point="simulator.envs.contention:ContentionEnv")
if ELASTIC not in gymnasium.registry:
    gymnasium.register(ELASTIC, entry_point="simulator.envs.elastic:ElasticAllocationEnv")
if SCHED2 not in gymnasium.registry:
    gymnasium.register(SCHED2, entry_point="simulator.envs.sched2:Sched2Env")
