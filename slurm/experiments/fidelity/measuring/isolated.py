"""Every kind of job alone on an idle cluster: the simulator uses no other measurement of jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurm.experiments.fidelity.measuring.live_cluster import LiveCluster
from slurm.experiments.fidelity.mix import KINDS, SHAPES, TrainingJob, nominal_step_s
from slurm.experiments.fidelity.records import WARM_UP_STEPS, Isolated, Run
from slurm.minicluster.host.network import LinkBytes

POLICY = "fifo"
"""Policy for jobs that run alone: any would decide the same."""
_PATIENCE_S = 120.0
_LOOK_EVERY_S = 0.5
_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """NIC counters at one moment."""

    time_s: float
    links: Mapping[str, LinkBytes]


class Meter:
    """Reads all NICs every half second inside its context."""

    def __init__(self, read: Callable[[], Mapping[str, LinkBytes]]) -> None:
        self.looks: list[Look] = []
        self._read = read
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Meter:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        self.looks.append(Look(time.time(), self._read()))


def busiest(first: Look, last: Look) -> int:
    """Return the bytes over the busiest NIC, in its busier direction, between two samples."""
    return max(
        max(last.links[node].sent - before.sent, last.links[node].received - before.received)
        for node, before in first.links.items()
    )


def bytes_per_step(run: Run, looks: Sequence[Look]) -> float:
    """Return the bytes of one step, from the samples while the job trained."""
    inside = [look for look in looks if run.times_s[WARM_UP_STEPS] <= look.time_s <= run.times_s[-1]]
    first, last = inside[0], inside[-1]
    return busiest(first, last) / (last.time_s - first.time_s) * run.step_s


def isolated(kind: str, nodes: int, run: Run, looks: Sequence[Look]) -> Isolated:
    """Return the measurements of an isolated run; the samples cover all of it. Slurm's own traffic between nodes is negligible."""
    if nodes == 1:
        return Isolated(kind, nodes, run, 0.0, 0.0)
    each = bytes_per_step(run, looks)
    steps = len(run.times_s) - 1
    return Isolated(kind, nodes, run, each, max(0.0, busiest(looks[0], looks[-1]) - steps * each))


def measure(
    cluster: LiveCluster,
    bytes_per_s: float,
    length_s: float,
    report: Callable[[str], None],
) -> list[Isolated]:
    """Run each kind on each number of nodes, one after the other, each for about that time."""
    found = []
    with cluster.scheduled_by(POLICY):
        for number, (kind, nodes) in enumerate((kind, nodes) for kind in KINDS for nodes in SHAPES):
            # Headway reads Slurm once a second: jobs arrive at different phases of it.
            time.sleep(_PAUSE_S + 0.37 * (number % 3))
            name = f"alone-{kind.name}-{nodes}"
            steps = round(length_s / nominal_step_s(kind, nodes, bytes_per_s))
            job = TrainingJob(name, kind, nodes, 2, steps, 5, 0.0, number)
            with Meter(cluster.links) as meter:
                cluster.submit(job, name)
                cluster.wait([name], _PATIENCE_S)
            run = cluster.run_of(name)
            found.append(isolated(kind.name, nodes, run, meter.looks))
            report(f"{name}: {1e3 * run.step_s:.0f} ms a step, {run.fixed_s:.1f} s beside its steps")
    return found
