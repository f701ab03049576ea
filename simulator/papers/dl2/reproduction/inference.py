"""Time of the decisions of DL2's agent: `python -m simulator.papers.dl2.reproduction.inference [--weights FOLDER] [--store]`.

The agent divides the first slot of 40 jobs that arrived together, in the experiment's cluster, and computes in one thread, as in a
policy server. It prints one JSON object: the milliseconds of an action (observation to action, without the environment), and those
of all actions of the slot. `--store` writes it into `inference.json` beside this file, for `headway-sim reproduce dl2 --json`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from policies.learned.dl2.system import NAME, PPO_NAME, agent
from policies.serving.runtime.arithmetic import use_one_thread
from simulator.agents.episodes import make
from simulator.envs import ELASTIC
from simulator.papers.dl2.reproduction.details import INFERENCE, stored_inference
from simulator.papers.dl2.reproduction.settings import MAIN, trace
from simulator.papers.programs import answer

JOBS = 40


def slots(weights: str, system: str, repeat: int) -> list[list[float]]:
    """Return the seconds of each action of the first slot, as often as asked, of an agent of that system."""
    found = agent(weights, system)
    env = make(
        ELASTIC,
        traces=(trace(0, jobs=JOBS, arrivals="batch"),),
        cluster=MAIN.cluster,
        profiles=MAIN.profiles,
        **found.options,
    )
    times: list[list[float]] = []
    for _ in range(repeat):
        seen, _ = env.reset(seed=0, options={"trace": 0})
        found.agent.begin(env, 0)
        taken, ended = [], False
        while not ended:
            mask = env.unwrapped.action_masks()  # type: ignore[attr-defined] # it has masks
            begin = time.perf_counter()
            action = found.agent.act(seen, mask)
            taken.append(time.perf_counter() - begin)
            seen, _, _, _, info = env.step(action)
            ended = bool(info["slot_ended"])
        times.append(taken)
    return times


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.dl2.reproduction.inference", description="Time of DL2's decisions, as JSON."
    )
    parser.add_argument("--weights", default="", help="a folder of weights; those that come with Headway")
    parser.add_argument("--system", choices=(NAME, PPO_NAME), default=NAME, help="the system of the weights")
    parser.add_argument("--repeat", type=int, default=20, help="slots, of which the first is not counted")
    parser.add_argument("--store", action="store_true", help="store the result beside this program")
    given = parser.parse_args(arguments)
    use_one_thread()
    times = slots(given.weights, given.system, given.repeat)[1:]
    actions_ms = np.concatenate(times) * 1e3
    slots_ms = np.array([sum(each) for each in times]) * 1e3
    found = {
        "jobs": JOBS,
        "actions_of_a_slot": len(times[0]),
        "action_ms": {"median": float(np.median(actions_ms)), "p99": float(np.percentile(actions_ms, 99))},
        "slot_ms": {
            "least": float(slots_ms.min()),
            "median": float(np.median(slots_ms)),
            "most": float(slots_ms.max()),
        },
        "load_average": os.getloadavg()[0],
    }
    if given.store:
        INFERENCE.write_text(json.dumps({**stored_inference(), given.system: found}, indent=1) + "\n", encoding="utf-8")
    return found


if __name__ == "__main__":
    sys.exit(answer(program))
