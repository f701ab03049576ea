"""Runs the same jobs on the mini-cluster and in the simulator, and prints the differences."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from slurm.minicluster.spec import parse_rate
from slurm.prerequisites import missing
from tests.bench.measuring.figures import machine
from tests.fidelity.errors import GOAL_MEAN, GOAL_WORST, PolicyError, compare, mean_error, worst_error
from tests.fidelity.fit import Fit
from tests.fidelity.measuring.mix import Lengths, seeded_mix
from tests.fidelity.predict import SLOWDOWN, predict
from tests.fidelity.records import Measured
from tests.fidelity.report import as_json, draw, tables

POLICIES = "fifo,sjf,fewest-gpus"
RESULTS = Path("bench-results")


def main() -> int:
    """Run the command line. The exit status is 1 if a goal was missed."""
    options = _parse()
    says = Console(stderr=True)

    def tell(text: str) -> None:
        says.print(f"[dim]{text}", highlight=False)

    if options.measured:
        measured = Measured.from_json(json.loads(options.measured.read_text()))
    else:
        if reasons := missing():
            says.print(f"[red]{'; '.join(reasons)}")
            return 2
        measured = experiment(options.jobs, options.policies.split(","), options.rate, options.seed, tell)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "fidelity-measured.json").write_text(json.dumps(asdict(measured)) + "\n")
    fit, errors = evaluate(measured, options.slowdown)
    if options.picture:
        draw(errors, options.picture)
    if options.json:
        print(json.dumps({"machine": measured.machine, "rate": measured.rate, **as_json(errors)}, indent=1))
    else:
        Console(width=150).print(tables(fit, measured.isolated, errors))
    return int(mean_error(errors) > GOAL_MEAN or worst_error(errors) > GOAL_WORST)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fidelity", description=__doc__)
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--policies", default=POLICIES, metavar="A,B,...", help=f"default {POLICIES}")
    parser.add_argument("--rate", default="100mbit", help="of every NIC; default 100mbit")
    parser.add_argument("--seed", type=int, default=3, help="of the trace")
    parser.add_argument("--slowdown", default=SLOWDOWN, help=f"the simulator's model; default {SLOWDOWN}")
    parser.add_argument(
        "--measured", type=Path, metavar="FILE", help="predict what was measured before; no jobs are run"
    )
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="predicted against measured")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args()


def nic_bytes_s(rate: str) -> float:
    """Return the bytes per second of a rate in the form of tc."""
    return parse_rate(rate) / 8


def experiment(
    jobs: int, policies: list[str], rate: str, seed: int, says: Callable[[str], None], lengths: Lengths | None = None
) -> Measured:
    """Run everything that needs a cluster."""
    from tests.fidelity.measuring.ground import ground
    from tests.fidelity.measuring.isolated import measure
    from tests.fidelity.measuring.replay import replay

    lengths, speed = lengths or Lengths(), nic_bytes_s(rate)
    mix = seeded_mix(jobs, seed, speed, lengths)
    with ground(rate) as booted:
        isolated = measure(booted, speed, lengths.alone_s, says)
        replays = [replay(booted, mix, policy, says) for policy in policies]
    return Measured(seed, jobs, lengths, rate, machine(), tuple(isolated), tuple(replays))


def evaluate(measured: Measured, slowdown: str = SLOWDOWN) -> tuple[Fit, list[PolicyError]]:
    """Fit the simulator from jobs alone, predict every replay, and compare."""
    speed = nic_bytes_s(measured.rate)
    fit = Fit(measured.isolated, speed)
    mix = seeded_mix(measured.jobs, measured.seed, speed, measured.lengths)
    errors = []
    for replay in measured.replays:
        submit_s = [run.submit_s - replay.began_s for run in replay.runs]
        predicted = predict(mix, submit_s, fit, replay.policy, speed, slowdown)
        errors.append(compare(replay, predicted))
    return fit, errors


if __name__ == "__main__":
    sys.exit(main())
