"""Profile one program under SCHED2's four placements on a real Slurm. Run as root, on a machine with no other load.

As in the paper (section III-B), a profiling run executes the job's program for some mini-batches. Agents measure the steps, the
controller makes a profile of them, and the policy `sched2` has it in its state (table I).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from policies.learned.sched2.state.placements import ProfiledPlacements
from policies.placement.locality_tiers import ACROSS_RACKS, NUM_TIERS, SAME_RACK, SAME_SOCKET
from slurm.errors import MiniClusterError
from slurm.experiments.errors import ExperimentError
from slurm.experiments.profiled.live_cluster import GPUS, NODES, RACK, ProfiledCluster, Seen, profiled_cluster
from slurm.prerequisites import missing
from slurm.signals import end_on_signals
from slurm.testbed.programs import InstallationError

RANKS = 6
MEASURED_S = 240.0
"""Longest time for a profiling run on a busy machine: the start of six ranks, and then the windows."""
_WINDOWS = 2
_SAME = 0.1
"""Share by which the policy's throughput may differ from that of the windows read here, of which more come all the time."""
_AGAIN_S = 5.0
"""Time between two submissions of the waiting job: it starts at once, and the policy sees it while it decides about it."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """One profiling run."""

    nodes: tuple[str, ...]
    tier: int
    """Tier of locality, of `policies.placement.locality_tiers`."""
    steps_per_s: float
    windows: int
    took_s: float
    """From its submission until it was measured."""


@dataclass(frozen=True, slots=True)
class Found:
    """The profiling runs, and then a waiting job of the same program in the agent's state."""

    profiled: tuple[Profiled, ...]
    curve: tuple[float, ...]
    """Throughput by tier, as the policy knows it."""
    hours: tuple[float, ...]
    """Hours of the waiting job under the four placements."""
    started_on: str
    """Nodes on which the policy then started it."""


def profile(cluster: ProfiledCluster, says: Callable[[str], None]) -> Found:
    """Run the program at each of its placements, and submit it without one. Raises ExperimentError if something takes too long."""
    runs = []
    for at, (nodes, tier) in enumerate(placements()):
        runs.append(_run_at(cluster, f"profile{at}", nodes, tier))
        says(f"{len(nodes)} nodes ({', '.join(nodes)}): {runs[-1].steps_per_s:.2f} steps/s")
        cluster.cancel(f"profile{at}")
    return _waiting_job(cluster, tuple(runs))


def placements() -> list[tuple[tuple[str, ...], int]]:
    """Return the nodes of the four profiled placements of the program, and the tier of each."""
    racks = [node // RACK for node in range(NODES)]
    found = []
    for nodes in ProfiledPlacements([GPUS] * NODES, racks).of(RANKS):
        tier = ACROSS_RACKS if len({racks[node] for node in nodes}) > 1 else SAME_RACK
        found.append((tuple(f"n{node + 1}" for node in nodes), tier if len(nodes) > 1 else SAME_SOCKET))
    return found


def _run_at(cluster: ProfiledCluster, name: str, nodes: Sequence[str], tier: int) -> Profiled:
    each, begun_s = RANKS // len(nodes), time.monotonic()
    shape = (f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}")
    cluster.begin(name, *shape, f"--ntasks-per-node={each}", f"--gpus-per-node={each}")
    cluster.until(lambda: len(cluster.alone(name)) >= _WINDOWS, f"{name} is measured", MEASURED_S)
    took_s, windows = time.monotonic() - begun_s, cluster.alone(name)
    if strays := {node for window in windows for node in window.nodes} - set(nodes):
        raise ExperimentError(f"{name} was measured on {', '.join(sorted(strays))} as well, where it did not run")
    return Profiled(tuple(nodes), tier, cluster.speed(name), len(windows), took_s)


def _waiting_job(cluster: ProfiledCluster, runs: tuple[Profiled, ...]) -> Found:
    """Submit the program without a placement until the policy knew all measured tiers when it decided about it."""
    deadline, number = time.monotonic() + MEASURED_S, 0
    while time.monotonic() < deadline:
        number += 1
        name = f"waits{number}"
        cluster.begin(name, f"--gpus={RANKS}", f"--ntasks={RANKS}")
        seen = _seen_waiting(cluster, name)
        cluster.until(lambda: cluster.nodes(name) != "", f"{name} runs", MEASURED_S)  # noqa: B023 - called at once
        nodes = cluster.nodes(name)
        cluster.cancel(name)
        if _is_near(seen.curve, curve_of(runs)):
            return Found(runs, seen.curve, tuple(seen.waiting[cluster.id_of(name)]), nodes)
        time.sleep(_AGAIN_S)
    raise ExperimentError(f"the policy does not know the measured speeds after {MEASURED_S:g} s")


def curve_of(runs: Sequence[Profiled]) -> list[float]:
    """Return the throughput at each tier, relative to the first, which these runs show; it never grows with the distance."""
    curve = [1.0]
    for tier in range(1, NUM_TIERS):
        speeds = [run.steps_per_s / runs[0].steps_per_s for run in runs if run.tier == tier]
        curve.append(min(curve[-1], statistics.geometric_mean(speeds)) if speeds else curve[-1])
    return curve


def _is_near(curve: Sequence[float], expected: Sequence[float]) -> bool:
    return len(curve) == len(expected) and all(
        abs(one - other) <= _SAME * other for one, other in zip(curve, expected, strict=True)
    )


def _seen_waiting(cluster: ProfiledCluster, name: str) -> Seen:
    """Return what the policy saw when it decided about that job."""

    def decisions() -> list[Seen]:
        return [seen for seen in cluster.decisions() if cluster.id_of(name) in seen.waiting]

    cluster.until(lambda: bool(decisions()), f"the policy sees {name}", MEASURED_S)
    return decisions()[-1]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m slurm.experiments.profiled", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    end_on_signals()  # the cluster goes with the command
    says = Console(stderr=True)
    if reasons := missing():
        says.print(f"[red]{'; '.join(reasons)}")
        return 2
    try:
        with profiled_cluster(lambda text: says.print(f"[dim]{text}", highlight=False)) as cluster:
            found = profile(cluster, lambda text: says.print(f"[dim]{text}", highlight=False))
    except (ExperimentError, MiniClusterError, InstallationError) as error:
        says.print(f"[red]{error}", highlight=False)
        return 1
    out = Console(width=120)
    out.print_json(json.dumps(asdict(found))) if options.json else _print(out, found)
    return 0


def _print(out: Console, found: Found) -> None:
    table = Table("nodes", "measured, steps/s", "windows", "seconds", "hours of the waiting job", box=None)
    for run, hours in zip(found.profiled, found.hours, strict=True):
        table.add_row(
            ", ".join(run.nodes), f"{run.steps_per_s:.2f}", str(run.windows), f"{run.took_s:.0f}", f"{hours:.3f}"
        )
    out.print(table)
    out.print(f"throughput by tier: {', '.join(f'{each:.3f}' for each in found.curve)}; started on {found.started_on}")


if __name__ == "__main__":
    sys.exit(main())
