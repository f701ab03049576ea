"""The fits of table III on measured pairs: `python -m simulator.papers.marl.interference_fit.pairs PROFILES`.

PROFILES is a file with profiles and pairs of jobs: of `headway profile export`, which has what agents measured, or of `python -m
simulator.papers.contention_rl.measured_pairs`. Cores and shares of PCIe are those of the profiles, for each GPU on the most loaded
node; the slowdown is one over the ratio of throughputs, less one. It prints one JSON object: the number of pairs, and for each fit
the mean errors over ten draws of the quarter that is held back, with half of their 95 % interval.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from policies.learned.evaluation.statistics import Mean, mean_as_json
from policies.state.pair_ratios import model_of
from simulator.papers.marl.interference_fit.models import MODELS, Rows, errors
from simulator.papers.programs import answer
from simulator.slowdown.neighbours.interference import InterferenceRow
from simulator.slowdown.profiles.files import load_profiles
from simulator.slowdown.profiles.model_profiles import ModelProfiles

_DRAWS = range(1000, 1010)


def rows_of(profiles: ModelProfiles) -> list[InterferenceRow]:
    """Return a row for each measured pair, in order of the pairs."""

    def use(key: str) -> tuple[float, float]:
        profile, gpus = profiles.of(model_of(key)), _gpus_of_a_node(key)
        return gpus * profile.cpu, gpus * profile.pcie

    found = []
    for (target, other), ratio in sorted(profiles.pairs.items()):
        (own_cpu, own_pcie), (others_cpu, others_pcie) = use(target), use(other)
        found.append(InterferenceRow(others_cpu, own_cpu, others_pcie, own_pcie, 1.0 / ratio - 1.0))
    return found


def _gpus_of_a_node(key: str) -> float:
    """Return the GPUs on a node of a job `model,GPUs,nodes`; 1 for a model alone."""
    _, *shape = key.split(",")
    return -(-int(shape[0]) // int(shape[1])) if len(shape) == 2 else 1


def of_all_fits(rows: Rows) -> dict[str, Any]:
    """Return the errors of all fits. Raises SlowdownError for too few rows."""
    found: dict[str, Any] = {}
    for name in MODELS:
        drawn = [errors(rows, name, seed) for seed in _DRAWS]
        found[name] = {figure: mean_as_json(Mean.of([each[figure] for each in drawn])) for figure in drawn[0]}
    return found


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Fit as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.marl.interference_fit.pairs",
        description="The errors of the interference model and of other fits on measured pairs, as JSON.",
    )
    parser.add_argument("profiles", type=Path, metavar="PROFILES", help="a file with profiles and measured pairs")
    given = parser.parse_args(arguments)
    rows = rows_of(load_profiles(given.profiles))
    return {"pairs": len(rows), "fits": of_all_fits(rows)}


if __name__ == "__main__":
    sys.exit(answer(program))
