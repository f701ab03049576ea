"""Training of the network of the baseline Atte: `python -m simulator.papers.marl.atte_training [--store]`.

REINFORCE with a baseline: every round plays the same jobs several times on a fat-tree of 16 servers, with one and two times the
paper's jobs in turn, and draws each server by the softmax of the importance. The return of a decision is the time that its job
computes alone over its JCT; the baseline is the mean of that job over the episodes of the round. It prints one JSON object with the
mean of the average JCT on seeds of validation, as for MARL's own trainings, after so many rounds; with `--store` the best network
becomes the one that comes with Headway.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from policies.learned.training.systems import TRAINING_SEEDS, VALIDATION_SEEDS
from simulator.papers.marl import rules
from simulator.papers.marl.episodes import JobSource, outcome
from simulator.papers.marl.options import MarlOptions
from simulator.papers.marl.rules.atte import FEATURES, FILE, OF_TASK, WIDTH, Atte, AttentionNetwork
from simulator.papers.marl.rules.rule import play
from simulator.papers.marl.state.data_center import data_center
from simulator.papers.marl.state.jobs import Flags, Floats, Jobs
from simulator.papers.marl.state.queues import Task
from simulator.papers.marl.world import World
from simulator.papers.programs import answer, progress

_LOADS = (15.0, 30.0)
_BATCH = 256
_SHAPES = {
    "server": (FEATURES, WIDTH),
    "server_bias": (WIDTH,),
    **dict.fromkeys(("query", "key", "value", "importance", "out"), (WIDTH, WIDTH)),
    "task": (OF_TASK, WIDTH),
    "task_bias": (WIDTH,),
}


class Learner:
    """The same function as `AttentionNetwork`, which learns. Invariant: `network` has copies of the weights."""

    def __init__(self, seed: int, rate: float) -> None:
        rng = np.random.default_rng(seed)
        drawn = {name: rng.normal(0.0, 1.0 / np.sqrt(shape[0]), shape) for name, shape in _SHAPES.items()}
        self.weights = {
            name: torch.tensor(values * ("bias" not in name), dtype=torch.float64, requires_grad=True)
            for name, values in drawn.items()
        }
        self._optimizer = torch.optim.Adam(self.weights.values(), rate)

    @property
    def network(self) -> AttentionNetwork:
        """The network with the present weights."""
        return AttentionNetwork({name: values.detach().numpy().copy() for name, values in self.weights.items()})

    def importance(self, servers: torch.Tensor, task: torch.Tensor) -> torch.Tensor:
        """Return importances (B, S) from servers (B, S, FEATURES) and tasks (B, OF_TASK)."""
        of = self.weights
        hidden = torch.relu(servers @ of["server"] + of["server_bias"])
        among = (hidden @ of["query"]) @ (hidden @ of["key"]).transpose(1, 2) / WIDTH**0.5
        hidden = hidden + torch.softmax(among, 2) @ (hidden @ of["value"])
        asked = torch.relu(task @ of["task"] + of["task_bias"]) @ of["out"]
        found: torch.Tensor = ((hidden @ of["importance"]) @ asked.unsqueeze(2)).squeeze(2) / WIDTH**0.5
        return found

    def step(self, servers: Floats, tasks: Floats, room: Flags, chosen: Floats, advantage: Floats) -> None:
        """Make a gradient step on some decisions."""
        logits = self.importance(torch.from_numpy(servers), torch.from_numpy(tasks))
        logits = logits.masked_fill(~torch.from_numpy(room), -torch.inf)
        log_prob = torch.log_softmax(logits, 1).gather(1, torch.from_numpy(chosen).unsqueeze(1)).squeeze(1)
        self._optimizer.zero_grad()
        (-(torch.from_numpy(advantage) * log_prob).mean()).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()


class Drawing(Atte):
    """Draws servers by the softmax of their importance, and keeps its decisions.

    The server with the largest sum of importance and Gumbel noise, among those that have room, is such a draw.
    """

    def __init__(self, network: AttentionNetwork, seed: int) -> None:
        super().__init__(network)
        self._rng = np.random.default_rng(seed)
        self.kept: list[tuple[Floats, Floats, Flags, int, int]] = []
        """Servers, task, room on each server, the server drawn, and the job of each decision."""
        self._seen: tuple[Floats, Floats, Floats]

    def importance(self, servers: Floats, task: Floats) -> Floats:
        """See Atte."""
        found = super().importance(servers, task) + self._rng.gumbel(size=len(servers))
        self._seen = servers, task, found
        return found

    def scores(self, scheduler: int, task: Task) -> Floats:
        """See Rule."""
        found = super().scores(scheduler, task)
        center = self.world.center
        groups = center.groups_of(scheduler)
        has_room = self.world.placed.room(task.job, task.column, groups)
        first = center.group_server[groups] - center.group_server[groups.start]
        room = np.bincount(first, has_room, center.servers_each) > 0
        servers, asked, drawn = self._seen
        self.kept.append((servers, asked, room, int(np.where(room, drawn, -np.inf).argmax()), task.job))
        return found


def learn_round(learner: Learner, world: World, jobs: Jobs, episodes: int, rng: np.random.Generator) -> None:
    """Play the jobs so many times, and make gradient steps on all decisions."""
    alone_s = jobs.steps * jobs.compute_s
    played, returns = [], []
    for _ in range(episodes):
        rule = Drawing(learner.network, int(rng.integers(1 << 31)))
        play(world, jobs, rule, 0)
        played.append(rule.kept)
        returns.append(alone_s / (world.finish_s - jobs.submit_s))
    better = np.array(returns) - np.mean(returns, axis=0)
    rows = [(*row[:4], better[at, row[4]]) for at, kept in enumerate(played) for row in kept]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    columns[4] /= columns[4].std() + 1e-9
    order = rng.permutation(len(rows))
    for at in range(0, len(rows), _BATCH):
        learner.step(*(column[order[at : at + _BATCH]] for column in columns))


def validation_jct_s(network: AttentionNetwork, worlds: Sequence[tuple[World, JobSource]]) -> float:
    """Return the mean of the average JCT over the seeds of validation in all worlds."""
    found = []
    for world, source in worlds:
        for seed in VALIDATION_SEEDS:
            play(world, source.draw(np.random.default_rng(seed), {"trace_seed": seed}), Atte(network), seed)
            found.append(outcome(world)["avg_jct_s"])
    return float(np.mean(found))


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Train as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.marl.atte_training", description="Train the network of Atte."
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=8, help="episodes of a round, of the same jobs")
    parser.add_argument("--rate", type=float, default=0.001, help="Adam's learning rate")
    parser.add_argument("--validate-every", type=int, default=25, help="rounds between two validations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", action="store_true", help="keep the network as the one that comes with Headway")
    given = parser.parse_args(arguments)
    worlds = []
    for load in _LOADS:
        options = MarlOptions(k=4, jobs_per_interval=load)
        center = data_center(options)
        worlds.append((World(options, center), JobSource(options, center)))
    learner, rng = Learner(given.seed, given.rate), np.random.default_rng(given.seed)
    curve = [(0, validation_jct_s(learner.network, worlds))]
    best, least = learner.network, curve[0][1]
    for done in range(1, given.rounds + 1):
        world, source = worlds[done % len(worlds)]
        jobs = source.draw(rng, {"trace_seed": TRAINING_SEEDS[done]})
        learn_round(learner, world, jobs, given.episodes, rng)
        if done % given.validate_every == 0 or done == given.rounds:
            curve.append((done, validation_jct_s(learner.network, worlds)))
            progress(f"{done} rounds: {curve[-1][1]:.0f} s")
            if curve[-1][1] < least:
                best, least = learner.network, curve[-1][1]
                if given.store:
                    (Path(str(files(rules))) / FILE).write_text(best.as_text(), encoding="utf-8")
    return {"avg_jct_s": round(least, 1), "curve": [[done, round(figure)] for done, figure in curve]}


if __name__ == "__main__":
    sys.exit(answer(program))
