"""Distribution of the actions of DL2's policy network: `python -m simulator.papers.dl2.reproduction.action_distribution`.

On the states that DRF meets on validation traces, it prints one JSON object: the mean entropy (nats), and the median probability
of void where every shown job has at least three workers. As in training, not as served.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import numpy as np
import torch

from policies.learned.algorithms.distribution import Categorical
from policies.learned.dl2.system import trained_network
from policies.learned.training.systems import VALIDATION_SEEDS
from simulator.agents.episodes import make, steps
from simulator.envs import ELASTIC
from simulator.papers.dl2.reproduction.settings import MAIN
from simulator.papers.dl2.rules.baselines import DRF

_WORKERS = 3


def figures(weights: str, seeds: Sequence[int]) -> dict[str, float]:
    """Return both figures for the weights of a folder, on the traces of these seeds."""
    network, columns, _ = trained_network(weights)
    world = {"cluster": MAIN.cluster, "profiles": MAIN.profiles, "concurrent": columns.jobs}
    env = make(ELASTIC, traces=(MAIN.trace(seeds[0]),), **world)
    shown = [step for seed in seeds for step in steps(env, DRF(), seed, {"trace": MAIN.trace(seed)})]
    env.close()
    states, masks = np.stack([each.observation for each in shown]), np.array([each.mask for each in shown])
    has_job = states[:, :, : columns.types].any(2)
    served = ((states[:, :, columns.workers] >= _WORKERS) | ~has_job).all(1)
    with torch.inference_mode():
        found = Categorical(network.logits(torch.from_numpy(states)), torch.from_numpy(masks))
        entropy, void = found.entropy().numpy(), found.probs[:, -1].numpy()
    return {"states": len(states), "entropy": float(entropy.mean()), "void": float(np.median(void[served]))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute and print."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.dl2.reproduction.action_distribution", description=__doc__
    )
    parser.add_argument("--weights", default="", help="a folder of weights; those that come with Headway")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args(arguments)
    sys.stdout.write(json.dumps(figures(given.weights, VALIDATION_SEEDS[: given.seeds])) + "\n")


if __name__ == "__main__":
    main()
