"""Placement of the workers and parameter servers of one slot, one after the other, on nodes with room.

A worker takes a GPU and some cores, a server cores alone (DL2, section 3.1: "a worker often requires at least 1 GPU, and a PS
needs many CPU cores"). The engine knows of GPUs only; cores are counted here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from policies.model import BoolColumn, IntColumn

BALANCED, PACKED = "balanced", "packed"
Where = dict[int, int]
"""Number of tasks of one kind on each node."""


class Tasks:
    """Tasks that the jobs of a slot were given so far.

    Invariant: `gpus` and `cpus` are what the tasks given leave of nodes that are up; a node that is down has none.

    A job's task goes first to a node where the job had one in the slot before and has not been given it again; else, `balanced`,
    to the node with most GPUs and cores free (DL2 section 6.1: load balancing; a GPU counts as much as its share of all cores) or,
    `packed`, to one where the job has a task, then to that with least free. Ties go to the lowest index. A pair, which is a worker
    and a server of one action, goes to one node by the same rule, as in the code that the paper's authors published; only where
    no node has room for both, to two nodes.
    """

    def __init__(
        self,
        gpus: Sequence[int],
        cpus: Sequence[int],
        up: Sequence[int],
        *,
        worker_cpus: int,
        server_cpus: int,
        rule: str,
    ) -> None:
        """Begin without tasks."""
        is_up = np.array(up, dtype=np.int64) > 0
        self.gpus: IntColumn = np.where(is_up, np.array(gpus, dtype=np.int64), 0)
        self.cpus: IntColumn = np.where(is_up, np.array(cpus, dtype=np.int64), 0)
        self._worker_cpus = worker_cpus
        self._server_cpus = server_cpus
        self._packed = rule == PACKED
        self._cpus_per_gpu = max(int(self.cpus.sum()) / max(int(self.gpus.sum()), 1), 1.0)
        self._workers: dict[int, Where] = {}
        self._servers: dict[int, Where] = {}
        self._worker_fits: BoolColumn = (self.gpus > 0) & (self.cpus >= worker_cpus)
        self._server_fits: BoolColumn = self.cpus >= server_cpus
        self._for_workers = int(self._worker_fits.sum())
        self._for_servers = int(self._server_fits.sum())
        """Numbers of nodes on which a worker and a server fit."""

    def workers(self, job: int) -> Where:
        """Return the workers of that job by node."""
        return self._workers.get(job, {})

    def servers(self, job: int) -> Where:
        """Return the servers of that job by node."""
        return self._servers.get(job, {})

    @property
    def room(self) -> tuple[bool, bool, bool]:
        """Return whether there is room for a worker, for a server, and for one of each."""
        worker, server = self._for_workers > 0, self._for_servers > 0
        # With two nodes for servers, one remains wherever the worker is placed.
        both = worker and (self._for_servers > 1 or (server and bool(self._beside_a_server().any())))
        return worker, server, both

    def give_worker(self, job: int, before: Where) -> int:
        """Place one more worker of a job, which had these before, and return its node.

        The caller has checked that there is room.
        """
        where = self._workers.setdefault(job, {})
        node = self._choose(self._worker_fits, self.gpus, where, before, self._servers.get(job, {}))
        self._give(where, node, 1)
        return node

    def give_server(self, job: int, before: Where) -> int:
        """Place one more server of a job, which had these before, and return its node.

        The caller has checked that there is room.
        """
        where = self._servers.setdefault(job, {})
        node = self._choose(self._server_fits, self.cpus, where, before, self._workers.get(job, {}))
        self._give(where, node, 0)
        return node

    def give_pair(self, job: int, workers_before: Where, servers_before: Where) -> tuple[int, int]:
        """Place one more worker and one more server of a job, which had these before, and return both nodes.

        The caller has checked that there is room.
        """
        workers, servers = self._workers.setdefault(job, {}), self._servers.setdefault(job, {})
        together = self._worker_fits & (self.cpus >= self._worker_cpus + self._server_cpus)
        if together.any():
            has, before = _pairs(workers, servers), _pairs(workers_before, servers_before)
            node = self._choose(together, self.gpus, has, before, workers | servers)
            self._give(workers, node, 1)
            self._give(servers, node, 0)
            return node, node
        # One of the two nodes must not be the only one for servers.
        fits = self._beside_a_server() if self._for_servers < 2 else self._worker_fits
        node = self._choose(fits, self.gpus, workers, workers_before, servers)
        self._give(workers, node, 1)
        return node, self.give_server(job, servers_before)

    def take_back(self, job: int, node: int, *, worker: bool) -> None:
        """Undo the placement of a worker or a server of a job on that node."""
        where = (self._workers if worker else self._servers)[job]
        where[node] -= 1
        if not where[node]:
            del where[node]
        self.gpus[node] += worker
        self.cpus[node] += self._worker_cpus if worker else self._server_cpus
        worker_fits = bool(self.gpus[node] > 0 and self.cpus[node] >= self._worker_cpus)
        self._for_workers += worker_fits - int(self._worker_fits[node])
        self._worker_fits[node] = worker_fits
        server_fits = bool(self.cpus[node] >= self._server_cpus)
        self._for_servers += server_fits - int(self._server_fits[node])
        self._server_fits[node] = server_fits

    def keep(self, job: int, workers: Where, servers: Where) -> None:
        """Let the job keep these tasks in this slot."""
        for gpus, occupied, kept in ((1, workers, self._workers), (0, servers, self._servers)):
            for node, count in occupied.items():
                for _ in range(count):
                    self._give(kept.setdefault(job, {}), node, gpus)

    def _give(self, where: Where, node: int, gpus: int) -> None:
        where[node] = where.get(node, 0) + 1
        self.gpus[node] -= gpus
        self.cpus[node] -= self._worker_cpus if gpus else self._server_cpus
        if self._worker_fits[node] and not (self.gpus[node] > 0 and self.cpus[node] >= self._worker_cpus):
            self._worker_fits[node] = False
            self._for_workers -= 1
        if self._server_fits[node] and self.cpus[node] < self._server_cpus:
            self._server_fits[node] = False
            self._for_servers -= 1

    def _choose(self, fits: BoolColumn, free: IntColumn, has: Where, before: Where, other: Where) -> int:
        """Return the node for one more task of a job with these tasks of this kind and those of the other.

        `free` is what such a task needs most of.
        """
        for node, count in before.items():
            if has.get(node, 0) < count and fits[node]:
                return node
        if not self._packed:
            return int(np.where(fits, self.gpus * self._cpus_per_gpu + self.cpus, -1).argmax())
        near = [node for node in sorted({*has, *other}) if fits[node]]
        return near[0] if near else int(np.where(fits, free, np.iinfo(np.int64).max).argmin())

    def _beside_a_server(self) -> npt.NDArray[np.bool_]:
        """Return the nodes for a worker that leave room for a server somewhere."""
        here = self.cpus >= self._worker_cpus + self._server_cpus
        elsewhere = self._for_servers - self._server_fits > 0
        fits: BoolColumn = self._worker_fits & (here | elsewhere)
        return fits


def _pairs(workers: Where, servers: Where) -> Where:
    """Return the number of pairs on each node that has both."""
    return {node: min(count, servers[node]) for node, count in workers.items() if node in servers}
