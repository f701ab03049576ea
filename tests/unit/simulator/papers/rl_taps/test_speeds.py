"""The law of speeds: numbers by hand from the paper's equations, and a second implementation on a graph of the cluster."""

from __future__ import annotations

from collections import Counter, deque
from itertools import combinations
from math import sqrt

import numpy as np
import pytest

from policies.learned.rl_taps.cluster import CLUSTER
from simulator.cluster.cluster import cluster_of
from simulator.cluster.topology.gpu_links import gpu_links
from simulator.papers.rl_taps.jobs import jobs_of
from simulator.papers.rl_taps.options import RlTapsOptions
from simulator.papers.rl_taps.speeds import Speeds, bits
from simulator.traces.generators import generate
from simulator.traces.generators.rl_taps import RLTaps

LINKS = gpu_links(cluster_of(CLUSTER).topology)
SPEEDS = Speeds(LINKS, 0.9, 0.2)
RATIO = 0.1531476 / (640 / 9540)
"""vgg-vd-19 with 32 examples: a ring of 548 MB, -0.12 x 28.29 ms + 1.12 x 139.77 ms, for 20 GFLOP x 32 at 0.9 x 10.6 TFLOPS."""


def speeds(*jobs: list[int], ratio: float = RATIO) -> list[float]:
    owner = np.full((1, 32), -1)
    for number, gpus in enumerate(jobs):
        owner[0, gpus] = number
    found: list[float] = SPEEDS.rates(owner, np.full((1, len(jobs)), ratio)).speed[0].tolist()
    return found


def test_the_ratio_of_a_job_is_that_of_its_network() -> None:
    trace = generate("rl-taps", RLTaps(jobs=400, seed=1))
    options = RlTapsOptions()
    jobs = jobs_of(trace, options)
    row = next(r for r in range(400) if trace.model[r] == "vgg-vd-19" and trace.batch_size[r] == 32)
    assert jobs.reduction[row] == pytest.approx(RATIO)
    assert jobs.arrival.tolist() == list(range(400))
    assert jobs.length.tolist() == [float(text) for text in trace.extra["length_steps"]]
    gpus = int(jobs.gpus[row])
    assert jobs.ideal[row] == pytest.approx(0.9 * gpus / (1 + RATIO * sqrt(gpus)) if gpus > 1 else 0.9)


def test_a_job_alone_by_equations_3_and_12() -> None:
    assert speeds([]) == [0.0]
    assert speeds([5]) == [0.9]
    # In one socket, across sockets, across machines of a rack: alone no link is shared.
    for gpus in ([0, 1], [0, 2], [0, 4]):
        assert speeds(gpus) == pytest.approx([1.8 / (1 + RATIO * sqrt(2))])
    assert speeds([0, 1]) == pytest.approx([0.425688], abs=1e-6)
    assert speeds([0, 8]) == pytest.approx([1.8 / (1 + 1.2 * RATIO * sqrt(2))])
    assert speeds([0, 8, 16, 24]) == pytest.approx([3.6 / (1 + 1.6 * RATIO * 2)])


def test_shared_links_by_equations_13_to_15() -> None:
    alone, twice = 1.8 / (1 + RATIO * sqrt(2)), 1.8 / (1 + 2 * RATIO * sqrt(2))
    # Between the sockets of machine 0: 38.5 / (38.5 / 2) = 2.
    assert speeds([0, 2], [1, 3]) == pytest.approx([twice, twice])
    # The card of socket 0: 12.5 / (12.5 / 2). The other ends have cards of their own.
    assert speeds([0, 4], [1, 6]) == pytest.approx([twice, twice])
    # Cards of different sockets are not shared.
    assert speeds([0, 4], [2, 6]) == pytest.approx([alone, alone])
    # The uplink of rack 0, 6.25 / (6.25 / 3), is shared by three jobs through different cards.
    far = 1.8 / (1 + 1.2 * 3 * RATIO * sqrt(2))
    assert speeds([0, 8], [2, 16], [4, 24]) == pytest.approx([far, far, far])
    # A job that shares a card at 6.25 with one that stays in the rack is limited by its uplink, alone and shared: s = 1.
    assert speeds([0, 8], [1, 4]) == pytest.approx([1.8 / (1 + 1.2 * RATIO * sqrt(2)), twice])
    # A job on one GPU uses no link.
    assert speeds([0, 2], [1]) == pytest.approx([alone, 0.9])


def test_a_gpu_of_no_job_changes_nothing() -> None:
    owner = np.full((3, 32), -1)
    owner[1, [0, 1]] = 1
    rates = SPEEDS.rates(owner, np.full((3, 2), RATIO))
    assert rates.gpus.tolist() == [[0, 0], [0, 2], [0, 0]]
    assert (rates.speed > 0).tolist() == [[False, False], [False, True], [False, False]]
    assert [int(word) for word in rates.sets[0, :, 1]] == [0, 3]


def test_sets_of_more_than_64_gpus_have_several_words() -> None:
    on = np.zeros((70, 1, 2), dtype=np.bool_)
    on[[0, 63, 69], 0, 1] = True
    assert bits(on)[:, 0, 1].tolist() == [1 + 2**63, 2**5]


class Graph:
    """The cluster as the paper has it: a graph of table 1, with shortest paths."""

    def __init__(self) -> None:
        self.gbs: dict[frozenset[str], float] = {}
        self.near: dict[str, list[str]] = {}
        for machine in range(8):
            self.edge(f"cpu{machine}.0", f"cpu{machine}.1", 38.5)
            for socket in range(2):
                self.edge(f"cpu{machine}.{socket}", f"ibc{machine}.{socket}", 1000.0)
                self.edge(f"ibc{machine}.{socket}", f"trs{machine // 2}", 12.5)
                for gpu in range(2):
                    self.edge(f"gpu{4 * machine + 2 * socket + gpu}", f"cpu{machine}.{socket}", 40.0)
        for rack in range(4):
            self.edge(f"trs{rack}", "ds", 6.25)
        self.paths = {pair: self.path(*pair) for pair in combinations(range(32), 2)}

    def edge(self, one: str, other: str, gbs: float) -> None:
        self.gbs[frozenset((one, other))] = gbs
        self.near.setdefault(one, []).append(other)
        self.near.setdefault(other, []).append(one)

    def path(self, source: int, target: int) -> set[frozenset[str]]:
        before = {f"gpu{source}": ""}
        queue = deque(before)
        while f"gpu{target}" not in before:
            here = queue.popleft()
            for there in self.near[here]:
                if there not in before:
                    before[there] = here
                    queue.append(there)
        edges, here = set(), f"gpu{target}"
        while before[here]:
            edges.add(frozenset((here, before[here])))
            here = before[here]
        return edges

    def speeds(self, jobs: list[list[int]], ratios: list[float]) -> list[float]:
        edges = [set().union(*(self.paths[pair] for pair in combinations(sorted(gpus), 2))) for gpus in jobs]
        users = Counter(edge for its in edges for edge in its)
        found = []
        for gpus, its, ratio in zip(jobs, edges, ratios, strict=True):
            if len(gpus) < 2:
                found.append(0.9 * len(gpus))
                continue
            single = min(self.gbs[edge] for edge in its)
            multi = min(self.gbs[edge] / users[edge] for edge in its)
            racks = len({gpu // 8 for gpu in gpus})
            found.append(0.9 * len(gpus) / (1 + ratio * sqrt(len(gpus)) * (1 + (racks - 1) / 5) * single / multi))
        return found


def test_many_assignments_as_on_the_graph_of_table_1() -> None:
    graph, rng = Graph(), np.random.default_rng(2)
    owner = rng.integers(-1, 10, (60, 32))
    owner[20:40] = np.sort(owner[20:40], axis=1)  # jobs that stay together
    owner[40:][rng.random((20, 32)) < 0.6] = -1
    ratio = rng.uniform(0.01, 5.0, (60, 10))
    found = SPEEDS.rates(owner, ratio)
    for row in range(60):
        jobs = [np.flatnonzero(owner[row] == job).tolist() for job in range(10)]
        assert found.gpus[row].tolist() == [len(gpus) for gpus in jobs]
        assert found.speed[row].tolist() == pytest.approx(graph.speeds(jobs, ratio[row].tolist()))
