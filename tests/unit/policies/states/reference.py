"""The rules of placement and selection once more, slow and obvious. It shares no code with the modules that it checks.

Free resources are counted anew from the occupied GPUs every time.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.model import ClusterState, JobState, Split

Holding = dict[int, int]
"""Node -> GPUs."""


@dataclass
class Cluster:
    """A state, read cell by cell."""

    state: ClusterState

    def free(self, node: int, occupied: dict[int, Holding]) -> tuple[int, float, float, bool]:
        """GPUs, CPUs and memory free on that node beside these jobs, and whether nothing at all is on it."""
        nodes, jobs = self.state.nodes, self.state.jobs
        gpus = int(nodes.gpus[node] - nodes.foreign_gpus[node])
        cpus = float(nodes.cpus[node] - nodes.foreign_cpus[node])
        memory = float(nodes.memory_mib[node] - nodes.foreign_memory_mib[node])
        empty = not (nodes.foreign_gpus[node] or nodes.foreign_cpus[node] or nodes.foreign_memory_mib[node])
        for job, holding in occupied.items():
            if node in holding:
                empty = False
                gpus = 0 if jobs.exclusive[job] else gpus - holding[node]
                cpus -= holding[node] * float(jobs.cpus_per_gpu[job])
                memory -= holding[node] * float(jobs.memory_mib_per_gpu[job])
        if nodes.cpus[node] == 0:
            cpus = float("inf")
        if nodes.memory_mib[node] == 0:
            memory = float("inf")
        return max(gpus, 0), cpus, memory, empty

    def may_use(self, job: int, node: int) -> bool:
        node_set = int(self.state.jobs.node_set[job])
        return bool(self.state.nodes.available[node]) and (node_set < 0 or bool(self.state.node_sets[node_set, node]))

    def fits(self, job: int, share: int, node: int, occupied: dict[int, Holding]) -> bool:
        jobs = self.state.jobs
        gpus, cpus, memory, empty = self.free(node, occupied)
        return bool(
            self.may_use(job, node)
            and share <= gpus
            and (jobs.cpus_per_gpu[job] == 0 or share * jobs.cpus_per_gpu[job] <= cpus + 1e-6)
            and (jobs.memory_mib_per_gpu[job] == 0 or share * jobs.memory_mib_per_gpu[job] <= memory + 1e-3)
            and (empty or not bool(jobs.exclusive[job]))
        )

    def could_ever_hold(self, job: int, share: int) -> int:
        """Return the number of nodes that could take such a share if they were empty."""
        nodes, jobs = self.state.nodes, self.state.jobs
        count = 0
        for node in range(len(nodes)):
            enough_cpus = nodes.cpus[node] == 0 or share * jobs.cpus_per_gpu[job] <= nodes.cpus[node] + 1e-6
            enough_memory = (
                nodes.memory_mib[node] == 0 or share * jobs.memory_mib_per_gpu[job] <= nodes.memory_mib[node] + 1e-3
            )
            count += bool(self.may_use(job, node) and share <= nodes.gpus[node] and enough_cpus and enough_memory)
        return count

    def shares(self, job: int) -> list[int] | None:
        """GPUs on each node, largest first, of the job on this cluster when it is empty."""
        jobs = self.state.jobs
        gpus, low, high = int(jobs.num_gpus[job]), int(jobs.min_nodes[job]), int(jobs.max_nodes[job])
        candidates: list[list[int]] = []
        match jobs.split[job]:
            case Split.FIXED:
                candidates.append([int(jobs.gpus_per_node[job])] * low)
            case Split.EVEN:
                candidates += [[gpus // k] * k for k in range(low, min(high, gpus) + 1) if gpus % k == 0]
            case Split.ANY:
                for size in range(max(self.state.nodes.gpus), 0, -1):
                    # Only sizes that some node has room for, and no more.
                    if self.could_ever_hold(job, size) > self.could_ever_hold(job, size + 1):
                        whole = [size] * (gpus // size) + [gpus % size] * (gpus % size > 0)
                        if low <= len(whole) <= high:
                            candidates.append(whole)
                if low <= min(gpus, high):
                    candidates.append(sorted([len(range(k, gpus, low)) for k in range(low)], reverse=True))
        for shares in candidates:
            if all(self.could_ever_hold(job, share) > rank for rank, share in enumerate(shares)):
                return shares
        return None

    def place(self, job: int, occupied: dict[int, Holding]) -> Holding | None:
        """Consolidated best fit beside those jobs."""
        shares = self.shares(job)
        if shares is None:
            return None
        placed: Holding = {}
        for share in shares:
            fitting = [
                node
                for node in range(len(self.state.nodes))
                if node not in placed and self.fits(job, share, node, occupied)
            ]
            if not fitting:
                return None
            best = min(fitting, key=lambda node: (self.free(node, occupied)[0], node))
            placed[best] = share
        return placed

    def own_place(self, job: int) -> Holding:
        jobs = self.state.jobs
        begin, end = jobs.placement_offset[job], jobs.placement_offset[job + 1]
        return {int(jobs.placement_node[k]): int(jobs.placement_gpus[k]) for k in range(begin, end)}

    def runs(self, job: int) -> bool:
        return bool(self.state.jobs.state[job] == JobState.RUNNING)

    def waiting(self) -> list[int]:
        return [job for job in range(len(self.state.jobs)) if not self.runs(job)]

    def start_in_order(self, order: list[int], *, strict: bool) -> dict[int, Holding]:
        """The holdings when running jobs stay, and waiting ones start in that order."""
        occupied = {job: self.own_place(job) for job in range(len(self.state.jobs)) if self.runs(job)}
        for job in order:
            placed = self.place(job, occupied)
            if placed is not None:
                occupied[job] = placed
            elif strict:
                break
        return occupied

    def lay_out(self, selection: list[int]) -> dict[int, Holding] | None:
        """Return the running jobs of the selection on their nodes, then the new ones in order; None if one does not fit."""
        occupied = {job: self.own_place(job) for job in selection if self.runs(job)}
        for job in selection:
            if not self.runs(job):
                placed = self.place(job, occupied)
                if placed is None:
                    return None
                occupied[job] = placed
        return occupied

    def select(self, order: list[int]) -> dict[int, Holding]:
        """Preemptive selection, straight from its definition."""
        unmovable = [job for job in order if self.runs(job) and not self.state.jobs.preemptible[job]]
        selection = list(unmovable)
        for job in order:
            if job not in unmovable and self.lay_out([*selection, job]) is not None:
                selection.append(job)
        laid_out = self.lay_out(selection)
        assert laid_out is not None
        return laid_out
