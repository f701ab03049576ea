"""The whole experiment: jobs alone, replays of the trace under each policy, and their predictions by the simulator."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from slurm.experiments.errors import ExperimentError
from slurm.experiments.fidelity.accuracy import PolicyError, compare
from slurm.experiments.fidelity.fit import Fit
from slurm.experiments.fidelity.measuring.isolated import measure
from slurm.experiments.fidelity.measuring.live_cluster import live_cluster
from slurm.experiments.fidelity.measuring.replay import replay
from slurm.experiments.fidelity.mix import Lengths, seeded_mix
from slurm.experiments.fidelity.predict import SLOWDOWN, predict
from slurm.experiments.fidelity.records import Measured
from slurm.experiments.machine import machine
from slurm.minicluster.spec import parse_rate


def run(
    jobs: int,
    policies: Sequence[str],
    rate: str,
    seed: int,
    report: Callable[[str], None],
    lengths: Lengths | None = None,
) -> Measured:
    """Run everything that needs a cluster. Raises MiniClusterError."""
    lengths, speed = lengths or Lengths(), parse_rate(rate) / 8
    mix = seeded_mix(jobs, seed, speed, lengths)
    with live_cluster(rate) as cluster:
        isolated = measure(cluster, speed, lengths.alone_s, report)
        replays = [replay(cluster, mix, policy, report) for policy in policies]
    return Measured(seed, jobs, lengths, rate, machine(), tuple(isolated), tuple(replays))


def evaluate(measured: Measured, slowdown: str = SLOWDOWN) -> tuple[Fit, list[PolicyError]]:
    """Fit the simulator from jobs alone, predict every replay, and compare. Raises SimulatorError."""
    speed = parse_rate(measured.rate) / 8
    fit = Fit(measured.isolated, speed)
    mix = seeded_mix(measured.jobs, measured.seed, speed, measured.lengths)
    errors = []
    for found in measured.replays:
        submit_s = [run.submit_s - found.began_s for run in found.runs]
        errors.append(compare(found, predict(mix, submit_s, fit, found.policy, speed, slowdown)))
    return fit, errors


def read(path: Path) -> Measured:
    """Return the measurements of a file that an earlier run wrote. Raises ExperimentError."""
    try:
        return Measured.from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ExperimentError(f"{path}: has no measurements ({error!r}); give a file that --out wrote") from error
