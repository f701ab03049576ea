"""Random jobs on a small cluster, and laws of every model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from simulator.cluster.topology import Topology, bcube, fat_tree, rack_tree
from simulator.slowdown.api import Resident, SlowdownModel

MODELS = ("vgg16", "FSDP", "MoE", "resnet-50", "", "never-heard-of-it", "GraphSage")
Make = Callable[[Topology], SlowdownModel]


def racks(nodes: int = 6, per_rack: int = 3, gpus: int = 8) -> Topology:
    return rack_tree([gpus] * nodes, [2] * nodes, [node // per_rack for node in range(nodes)])


TOPOLOGIES: dict[str, Callable[[], Topology]] = {
    "racks": racks,
    "speeds": lambda: replace(racks(), speed=(1.0, 0.9, 0.8, 1.0, 0.5, 2.0), nvlink=(4,) * 6),
    "mixed": lambda: rack_tree([8, 4, 2, 8, 1, 8], [2, 2, 1, 2, 1, 4], [0, 0, 0, 1, 1, 1]),
    "fat-tree": lambda: fat_tree([4] * 9, [2] * 9),
    "bcube": lambda: bcube([4] * 8, [2] * 8, n=3),
}


@dataclass
class World:
    """Running jobs and their nodes. Invariant: no node gives more GPUs than it has."""

    topology: Topology
    rng: random.Random
    free: list[int] = field(default_factory=list)
    running: dict[int, Resident] = field(default_factory=dict)
    rows: int = 0

    def __post_init__(self) -> None:
        self.free = list(self.topology.gpus)

    def enter(self) -> Resident | None:
        """Return a job of random size on random nodes, or None if the cluster is full."""
        with_room = [node for node, free in enumerate(self.free) if free]
        if not with_room:
            return None
        nodes = self.rng.sample(with_room, self.rng.randint(1, min(3, len(with_room))))
        counts = [self.rng.randint(1, self.free[node]) for node in nodes]
        for node, count in zip(nodes, counts, strict=True):
            self.free[node] -= count
        occupied = sum(counts)
        asked = occupied if self.rng.random() < 0.7 else self.rng.randint(1, 2 * occupied)
        masks = {node: self._lowest_gpus(node, count) for node, count in zip(nodes, counts, strict=True)}
        of_model = self.rng.choice(MODELS), self.rng.choice((-1, 32, 256))
        resident = Resident(self.rows, *of_model, asked, tuple(nodes), tuple(counts), masks)
        self.rows += self.rng.randint(1, 3)
        self.running[resident.job] = resident
        return resident

    def _lowest_gpus(self, node: int, count: int) -> int:
        taken = [each.gpu_masks.get(node, 0) for each in self.running.values()]
        free = [gpu for gpu in range(self.topology.gpus[node]) if not any(mask >> gpu & 1 for mask in taken)]
        return sum(1 << gpu for gpu in free[:count])

    def leave(self) -> int:
        job = self.rng.choice(list(self.running))
        resident = self.running.pop(job)
        for node, count in zip(resident.nodes, resident.counts, strict=True):
            self.free[node] += count
        return job

    def step(self, model: SlowdownModel) -> None:
        if self.running and self.rng.random() < 0.45:
            model.leave(self.leave())
        elif resident := self.enter():
            model.enter(resident)


def fresh(make: Make, world: World) -> SlowdownModel:
    """Return a new model that got all running jobs in another order."""
    model = make(world.topology)
    residents = list(world.running.values())
    world.rng.shuffle(residents)
    for resident in residents:
        model.enter(resident)
    return model


def factors(model: SlowdownModel, world: World) -> dict[int, float]:
    return {job: model.factor(job) for job in world.running}


def check_laws(make: Make, topology: Topology, seed: int, most: float = 1.0) -> Iterator[float]:
    """Incremental equals from scratch, `changed` returns all changed jobs and none that left, forks are independent."""
    world = World(topology, random.Random(seed))
    model = make(topology)
    reported: dict[int, float] = {}
    for _ in range(25):
        for _ in range(world.rng.randint(1, 3)):
            world.step(model)
        news = list(model.changed())
        assert len(news) == len(set(news))
        assert set(news) <= set(world.running)
        reported = {job: reported[job] for job in world.running if job in reported}
        reported.update((job, model.factor(job)) for job in news)
        now = factors(model, world)
        assert reported == now
        assert now == pytest.approx(factors(fresh(make, world), world), rel=1e-9)
        assert all(0 < factor <= most for factor in now.values())
        yield from now.values()
        assert list(model.changed()) == []
        _check_fork(model, world)


def _check_fork(model: SlowdownModel, world: World) -> None:
    """Changes of a fork do not affect the original, and the other way round."""
    before = factors(model, world)
    twin = model.fork()
    assert factors(twin, world) == before
    for job in world.running:
        twin.leave(job)
    twin.changed()
    assert factors(model, world) == before
    assert list(model.changed()) == []
