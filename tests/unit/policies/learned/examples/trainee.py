"""A small training of two phases, with every kind of randomness, and a process that trains and is killed or interrupted.

Moments are counted from the start of the process: files opened and renamed in the training's folder, and turns of the recipe; or,
with a name, just the times when a file takes the place of that name.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from policies.errors import TrainingStoppedError
from policies.learned.algorithms.advantage import gae, values_after
from policies.learned.algorithms.replay import PrioritizedReplay
from policies.learned.algorithms.rollout import Collector
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.weights.weights import save
from tests.unit.policies.learned.examples.cards import card
from tests.unit.policies.learned.examples.toy import beams
from tests.unit.policies.learned.examples.transitions import transitions

ENVS = 4
WARM_ROUNDS, ROUNDS = 2, 4
STOPPED, FINISHED = 3, 0
_TURN = "trainee.turn"

torch.set_num_threads(1)


class Net(torch.nn.Module):
    """Actor and critic."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(2, 8)
        self.policy = torch.nn.Linear(8, 3)
        self.value = torch.nn.Linear(8, 1)

    def forward(self, seen: torch.Tensor, masks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.body(seen))
        return self.policy(hidden).masked_fill(~masks, -1e9), self.value(hidden)[..., 0]


def train(folder: Path, *, resume: bool, seed: int = 7, point_every_s: float = 0.0) -> None:
    """Train; by default with a checkpoint after every round."""
    with TrainingRun(folder, card(seed=seed), resume=resume, better="higher", point_every_s=point_every_s) as run:
        net = Net()
        imitation = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        collector = Collector(beams(ENVS, tells_masks=True), 12, masked=True)
        run.keep(net=net, imitation=imitation)
        for _ in run.rounds(WARM_ROUNDS, "warm-up"):
            warm_up(run, net, imitation, collector)
        # Another draw from torch's global source, and parts that are made between the phases.
        judge = Net()
        adam = torch.optim.Adam([*net.parameters(), *judge.parameters()], lr=0.01)
        replay = PrioritizedReplay(64, seed=run.card.seed, anneal=10)
        run.keep(judge=judge, adam=adam, replay=replay)
        for _ in run.rounds(ROUNDS):
            learn(run, net, judge, adam, replay, collector)
        save(folder / "last", "toy", net.state_dict(), run.card)


def warm_up(run: TrainingRun, net: Net, optimizer: torch.optim.Optimizer, collector: Collector) -> None:
    """Imitate: push against the side that the ball is on."""
    collector.restart(run.seeds("environments", ENVS))
    rows = transitions(collector.collect(lambda seen, masks: {"actions": np.ones(ENVS, dtype=np.int64)}))
    seen, masks = torch.tensor(rows["observations"]), torch.tensor(rows["masks"])
    for _ in range(2):
        sys.audit(_TURN)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(seen, masks)[0], 1 - seen[:, 0].sign().long())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    run.log(loss=loss.item())


def learn(
    run: TrainingRun, net: Net, judge: Net, adam: torch.optim.Optimizer, replay: PrioritizedReplay, collector: Collector
) -> None:
    """A recipe that does a little of everything that recipes do."""
    collector.restart(run.seeds("environments", ENVS))
    noise = run.rng("noise")

    def act(seen: Any, masks: Any) -> Mapping[str, Any]:
        sys.audit(_TURN)
        with torch.no_grad():
            logits, value = net(torch.tensor(seen), torch.tensor(masks))
        # Python's, numpy's and torch's global sources, and one of the round's own.
        logits = logits + (random.random() + np.random.rand() + noise.random()) * 0.1 * masks
        actions = torch.multinomial(logits.softmax(-1), 1)[:, 0]
        return {"actions": actions.numpy(), "values": value.numpy()}

    rollout = collector.collect(act)
    every = torch.ones(len(rollout.final_observations), 3, dtype=torch.bool)
    with torch.no_grad():
        last = net(torch.tensor(rollout.last_observations), torch.tensor(rollout.last_masks))[1].numpy()
        final = net(torch.tensor(rollout.final_observations), every)[1].numpy()
    values = rollout.extras["values"]
    after = values_after(values, last, rollout.truncated, final)
    advantages, _ = gae(rollout.rewards, values, after, rollout.terminated, rollout.truncated, gamma=0.9, lam=0.9)
    replay.add(transitions(rollout) | {"advantages": advantages.reshape(-1)})
    for _ in range(3):
        sys.audit(_TURN)
        sample = replay.sample(16)
        rows = {name: torch.tensor(array) for name, array in sample.rows.items()}
        logits, value = net(rows["observations"], rows["masks"])
        chosen = logits.log_softmax(-1).gather(1, rows["actions"][:, None])[:, 0]
        errors = rows["rewards"] + 0.9 * judge(rows["next_observations"], rows["next_masks"])[1] - value
        loss = (errors**2 - chosen * rows["advantages"]) @ torch.tensor(sample.weights)
        adam.zero_grad()
        loss.backward()
        adam.step()
        replay.update(sample.indices, errors.detach().numpy())
    run.log(loss=loss.item())
    run.evaluate(float(rollout.rewards.mean()), net.state_dict(), steps=replay.beta)


def work(folder: Path, resume: bool, moment: int | None, name: str, number: int, seed: int) -> None:
    """A process: train, and get that signal at that moment."""
    moments = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal moments
        is_ours = event in {"open", "os.rename"} and str(arguments[0]).startswith(str(folder))
        if (event == "os.rename" and Path(arguments[1]).name == name) if name else (is_ours or event == _TURN):
            moments += 1
            if moments == moment:
                os.kill(os.getpid(), number)

    sys.addaudithook(count)
    try:
        train(folder, resume=resume, seed=seed)
    except TrainingStoppedError as stopped:
        (folder / "stopped").write_text(str(stopped))
        sys.exit(STOPPED)
    (folder / "moments").write_text(str(moments))
