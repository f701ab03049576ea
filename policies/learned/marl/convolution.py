"""Edge-conditioned convolution with the paper's update of nodes (section IV-A).

    h_N(u) = 1 / |N_u|  sum over neighbours w of F(E(u, w)) h_w + b
    h_u'   = ReLU(W [h_u, h_N(u)])

F is one linear layer, which makes a matrix of the features of an edge. F(E) = W_0 + sum over features f of E_f W_f, so the sum
over neighbours is that of W_0 and W_f applied to sums of h_w and of E_f h_w: no matrix of an edge is ever made. h_N is that of
`NNConv` of torch_geometric with a linear network and the mean, without root weight and without the dependency; the second line is
the paper's and not a part of `NNConv`."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from policies.learned.marl.graphs import FEATURES, Graph


class EdgeConvolution(nn.Module):
    """Nodes (B, V, inputs) and edges (B, E, 3) -> nodes (B, V, outputs)."""

    source: Tensor
    target: Tensor
    per_neighbour: Tensor

    def __init__(self, graph: Graph, inputs: int, outputs: int) -> None:
        super().__init__()
        ends = torch.from_numpy(graph.ends)
        self.register_buffer("source", torch.cat([ends[:, 0], ends[:, 1]]), persistent=False)
        self.register_buffer("target", torch.cat([ends[:, 1], ends[:, 0]]), persistent=False)
        degree = torch.zeros(graph.nodes).index_add_(0, self.target, torch.ones(len(self.target)))
        self.register_buffer("per_neighbour", 1.0 / degree.clamp(min=1.0), persistent=False)
        self.neighbours = nn.Linear((1 + FEATURES) * inputs, outputs, bias=False)
        """W_0 and the W_f side by side."""
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.update = nn.Linear(inputs + outputs, outputs)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Return the nodes of the next layer."""
        both = torch.cat([edges, edges], 1)
        sent = nodes[:, self.source]
        sums = [self._sum(nodes, sent)] + [self._sum(nodes, sent * both[:, :, f : f + 1]) for f in range(FEATURES)]
        near = self.neighbours(torch.cat(sums, 2) * self.per_neighbour[:, None]) + self.bias
        found: Tensor = torch.relu(self.update(torch.cat([nodes, near], 2)))
        return found

    def _sum(self, nodes: Tensor, sent: Tensor) -> Tensor:
        return torch.zeros_like(nodes).index_add(1, self.target, sent)


class GraphNetwork(nn.Module):
    """Several layers of convolution on one graph; only the load of edges is an input, the other features are the graph's."""

    fixed: Tensor

    def __init__(self, graph: Graph, inputs: int, width: int, layers: int) -> None:
        super().__init__()
        self.register_buffer("fixed", torch.from_numpy(graph.fixed), persistent=False)
        sizes = [inputs, *[width] * layers]
        self.layers = nn.ModuleList(EdgeConvolution(graph, one, other) for one, other in pairwise(sizes))

    def forward(self, nodes: Tensor, loads: Tensor) -> list[Tensor]:
        """Return the nodes after each layer, (B, V, width), from nodes (B, V, inputs) and loads of edges (B, E)."""
        edges = torch.cat([self.fixed.expand(len(loads), -1, -1), loads.unsqueeze(2)], 2)
        found = []
        for layer in self.layers:
            nodes = layer(nodes, edges)
            found.append(nodes)
        return found
