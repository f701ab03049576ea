"""Search for the weights of `linear_rule`, as a program.

`python -m simulator.papers.dl2.reproduction.rule_search [--rounds N] [--traces N]`

CMA-ES over whole episodes of the frozen setting, on training seeds. It prints the weights, and what they reach on the seeds of
validation; test seeds are not used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from policies.learned.algorithms.evolution import Evolution
from policies.learned.training.run.seeding import generator
from policies.learned.training.systems import TRAINING_SEEDS, VALIDATION_SEEDS
from policies.model import FloatColumn
from simulator.papers.dl2.reproduction.settings import MAIN, run_agent
from simulator.papers.dl2.rules.linear_rule import NUM_WEIGHTS, START, LinearRule

_DEVIATION = (*(1.0,) * (NUM_WEIGHTS - 2), 0.5, 1.0)


def costs(weights: FloatColumn, seeds: Sequence[int]) -> list[float]:
    """Return the average JCT (s) of the rule with these weights on the trace of each seed."""
    rule = LinearRule(weights.tolist())
    return [run_agent(rule, {}, MAIN, seed).figures["avg_jct_s"] for seed in seeds]


def main(arguments: Sequence[str] | None = None) -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.dl2.reproduction.rule_search", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=20, help="rounds of the search")
    parser.add_argument("--rules", type=int, default=10, help="rules of a round")
    parser.add_argument("--traces", type=int, default=6, help="traces of a round, other ones each time")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    search = Evolution(
        np.array(START), np.array(_DEVIATION), given.rules, lambda number: generator(given.seed, "rules", number)
    )
    for number in range(given.rounds):
        begin = TRAINING_SEEDS[0] + number * given.traces
        found = [costs(row, range(begin, begin + given.traces)) for row in search.draw()]
        search.learn(np.array(found))
        sys.stdout.write(f"round {number + 1}: best {min(map(np.mean, found)) / 3600:.3f} h\n")
        sys.stdout.flush()
    best = search.mean
    sys.stdout.write(f"weights {best.round(3).tolist()}\n")
    sys.stdout.write(f"validation {np.mean(costs(best, list(VALIDATION_SEEDS))) / 3600:.3f} h\n")


if __name__ == "__main__":
    main()
