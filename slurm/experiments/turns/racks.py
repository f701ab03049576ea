"""A cluster whose nodes stand in racks, and the facts about its jobs from slurmctld's log and from what the jobs have written."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm.experiments.errors import ExperimentError
from slurm.experiments.slurm_log import Times, times_of
from slurm.experiments.turns.live_cluster import LiveCluster

_READ_S = 0.5


@dataclass(frozen=True, slots=True)
class Ended:
    """One job that has ended. Times are in seconds since the Unix epoch."""

    name: str
    gpus: int
    submit_s: float
    start_s: float
    end_s: float
    nodes: int
    racks: int

    @property
    def jct_s(self) -> float:
        """From submission to end."""
        return self.end_s - self.submit_s


class RackedCluster(LiveCluster):
    """A cluster in racks. Each job writes the number of its nodes and racks into the file NAME.where."""

    def require_racks(self) -> None:
        """Raises ExperimentError if the controller does not know the racks."""
        log = self.headway.log("controller")
        if "racks_known" not in log:
            raise ExperimentError(f"the controller knows no racks: {log[-1500:]}")

    def wait(self, names: Sequence[str], timeout_s: float) -> None:
        """Wait until Slurm has seen the ends of these jobs. Raises ExperimentError if that takes too long."""
        deadline = time.monotonic() + timeout_s
        while late := [name for name in names if self.id_of(name) not in self._times().ended]:
            if time.monotonic() > deadline:
                raise ExperimentError(f"not done after {timeout_s:g} s: {', '.join(late)}; {self._end_of_log(late[0])}")
            time.sleep(_READ_S)

    def ended(self, gpus: Mapping[str, int]) -> list[Ended]:
        """Return the facts about jobs that have ended: their GPUs by the names of their files."""
        times = self._times()
        return [self._ended(name, number, times) for name, number in gpus.items()]

    def _ended(self, name: str, gpus: int, times: Times) -> Ended:
        job_id = self.id_of(name)
        nodes, racks = (self.folder / f"{name}.where").read_text().split()
        moments = times.submitted[job_id], times.started[job_id], times.ended[job_id]
        return Ended(name, gpus, *moments, int(nodes), int(racks))

    def _times(self) -> Times:
        return times_of((self.cluster.files.log / "slurmctld.log").read_text(errors="replace"))


def in_racks(racks: int, nodes_of_rack: int, uplink_gbyte_s: float | None = None) -> dict[str, Any]:
    """Return the fields of `ClusterSpec` for nodes in racks of equal size."""
    return {
        "nodes": racks * nodes_of_rack,
        "added_files": {"etc/topology.conf": topology_conf(racks, nodes_of_rack, uplink_gbyte_s)},
        "extra_conf": ("TopologyPlugin=topology/tree",),
    }


def topology_conf(racks: int, nodes_of_rack: int, uplink_gbyte_s: float | None = None) -> str:
    """Return a topology.conf with a switch for each rack, and one above them. LinkSpeed is that of the uplink, Gb/s."""
    speed = "" if uplink_gbyte_s is None else f" LinkSpeed={round(uplink_gbyte_s * 8)}"
    firsts = [rack * nodes_of_rack + 1 for rack in range(racks)]
    lines = [
        f"SwitchName=rack{rack} Nodes=n[{first}-{first + nodes_of_rack - 1}]{speed}"
        for rack, first in enumerate(firsts)
    ]
    return "\n".join([*lines, f"SwitchName=top Switches=rack[0-{racks - 1}]", ""])
