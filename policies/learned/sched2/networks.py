"""Q-networks: that of the paper, and one that sees features and shares its weights between jobs.

**`PaperNetwork`**, SCHED2 (Luan et al., GLOBECOM 2019), section III-E, equations 3 to 5: F_i = f(S_i; w_shared) of each server,
G = f(J_1, ..., J_J, Stat; w_1), E = Concat(F_1, ..., F_N, G), A = f(f(E; w_2); w_3). Each f is a layer; all but the last
end with ReLU. The widths are not given.

**`FeatureNetwork`** is Headway's own. Jobs share weights too, and servers are pooled instead of concatenated, so that neither a
server's number nor a job's position has a meaning:

    server n      e_n = f(its features)
    candidate k   x_k: its features;   y_k = f([x_k; e of the server that packing takes first])
    cluster       c = f([mean_n e_n; max_n e_n; mean_k y_k; statistics])
    Q(start k)    = V(c) + A_k - mean A,  A_k = w x_k + f(c, y_k);   Q(void) = V(c) + A_0 - mean A,  A_0 = f(c)

That is a dueling network (Wang et al. 2016); the mean of A is over possible actions, and masked ones have Q = IMPOSSIBLE. A_k has a
part that is linear in the features, `rule`, beside the deep one (Cheng et al., "Wide & deep learning", 2016). At first A is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from policies.learned.algorithms.distribution import IMPOSSIBLE
from policies.learned.algorithms.networks import dueling_q
from policies.learned.sched2.state.feature_columns import OF_ALL, OF_JOB, SIZES, FeatureColumns
from policies.learned.sched2.state.features import Features
from policies.learned.sched2.state.kinds import FEATURES, NETWORKS, PAPER
from policies.learned.sched2.state.state_columns import JOB_NUMBERS, REST_NUMBERS, StateColumns


class PaperNetwork(nn.Module):
    """Maps states of those columns and masks to Q of all actions, by equations 3 to 5."""

    def __init__(self, columns: StateColumns, hidden: int = 32, server: int = 16) -> None:
        """`server` is the width of F_i, `hidden` that of G and of the layer after E."""
        super().__init__()
        self._columns = columns
        self.server = nn.Linear(columns.gpus, server)
        self.queue = nn.Linear(columns.candidates * JOB_NUMBERS + REST_NUMBERS, hidden)
        self.embedding = nn.Linear(columns.nodes * server + hidden, hidden)
        self.action = nn.Linear(hidden, 1 + columns.candidates)

    def forward(self, states: Tensor, masks: Tensor) -> Tensor:
        """Return Q (batch, 1 + J) for states (batch, size) and masks (batch, 1 + J)."""
        return self.q_values(self.features(states), masks)

    def features(self, states: Tensor) -> Tensor:
        """Return the input of `q_values`: the states themselves."""
        return states

    def q_values(self, seen: Tensor, masks: Tensor) -> Tensor:
        """Return Q of all actions."""
        columns = self._columns
        gpus = seen[:, : columns.nodes * columns.gpus].view(-1, columns.nodes, columns.gpus)
        servers = torch.relu(self.server(gpus)).flatten(1)
        queue = torch.relu(self.queue(seen[:, columns.nodes * columns.gpus :]))
        embedding = torch.relu(self.embedding(torch.cat([servers, queue], 1)))
        actions: Tensor = self.action(embedding)
        return actions.masked_fill(~masks, IMPOSSIBLE)


class FeatureNetwork(nn.Module):
    """Maps states of those columns and masks to Q of all actions. Invariant: renumbering the jobs renumbers their Q."""

    def __init__(self, columns: StateColumns, hidden: int = 32, server: int = 16) -> None:
        """`hidden` is the width of the layers for a job and the cluster, `server` of those for a server."""
        super().__init__()
        self._columns = columns
        self.shape = FeatureColumns(columns)
        self.server = nn.Sequential(
            nn.Linear(self.shape.servers, server), nn.ReLU(), nn.Linear(server, server), nn.ReLU()
        )
        self.job = nn.Sequential(nn.Linear(OF_JOB + server, hidden), nn.ReLU())
        self.cluster = nn.Sequential(nn.Linear(2 * server + hidden + OF_ALL, hidden), nn.ReLU())
        self.value = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.of_job = nn.Linear(hidden, hidden, bias=False)
        self.of_cluster = nn.Linear(hidden, hidden)
        self.start = nn.Linear(hidden, 1)
        self.void = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.rule = nn.Linear(OF_JOB, 1, bias=False)
        for layer in (self.rule, self.start, self.void[2]):
            for parameter in layer.parameters():
                nn.init.zeros_(parameter)

    def forward(self, states: Tensor, masks: Tensor) -> Tensor:
        """Return Q (batch, 1 + J) for states (batch, size) and masks (batch, 1 + J)."""
        return self.q_values(self.features(states), masks)

    def features(self, states: Tensor) -> Tensor:
        """Return the features that `q_values` takes; nothing in them is learned."""
        return torch.from_numpy(Features(self._columns).rows(states.numpy()))

    def q_values(self, seen: Tensor, masks: Tensor) -> Tensor:
        """Return Q of all actions."""
        servers, own, first, rest = self.shape.split(seen)
        servers = self.server(servers)
        there = servers.gather(1, first.unsqueeze(2).expand(-1, -1, servers.shape[2]))
        jobs = self.job(torch.cat([own, there], 2))
        is_job = own[:, :, -SIZES:].sum(2, keepdim=True)
        queue = (jobs * is_job).sum(1) / is_job.sum(1).clamp(min=1.0)
        cluster = self.cluster(torch.cat([servers.mean(1), servers.amax(1), queue, rest], 1))
        pairs = torch.relu(self.of_job(jobs) + self.of_cluster(cluster).unsqueeze(1))
        gains = torch.cat([self.void(cluster), (self.rule(own) + self.start(pairs)).squeeze(2)], 1)
        return dueling_q(self.value(cluster), gains, masks)


Sched2Network: TypeAlias = PaperNetwork | FeatureNetwork


def network_of(recipe: Mapping[str, Any], columns: StateColumns) -> Sched2Network:
    """Return the network of a recipe or a card. Raises KeyError, ValueError, TypeError or RuntimeError where it does not describe
    one."""
    kind = recipe.get("network", FEATURES)  # cards from before there were two
    if kind not in NETWORKS:
        raise ValueError(f"network is {kind!r}; give {' or '.join(NETWORKS)}")
    made = PaperNetwork if kind == PAPER else FeatureNetwork
    return made(columns, int(recipe["hidden"]), int(recipe["server"]))
