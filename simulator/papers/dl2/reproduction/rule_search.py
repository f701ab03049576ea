"""Search for the weights of `linear_rule`, as a program.

`python -m simulator.papers.dl2.reproduction.rule_search [--pairs] [--rounds N] [--traces N]`

CMA-ES over whole episodes of the frozen setting, on training seeds; with `--pairs`, for the table of `FixedPairs`, one type after
the other by neighbouring numbers. It prints the weights or the table, and what they reach on the seeds of validation; test seeds
are not used.
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
from simulator.papers.dl2.rules.linear_rule import NUM_WEIGHTS, START, FixedPairs, LinearRule
from simulator.traces.generators.dl2 import MODELS

_DEVIATION = (*(1.0,) * (NUM_WEIGHTS - 2), 0.5, 1.0)
_MOST_PAIRS = 16
"""Largest number of pairs that the search for a table tries."""
_PAIRS = 2
"""Pairs with which the search for a table begins."""


def costs(rule: LinearRule, seeds: Sequence[int]) -> list[float]:
    """Return the average JCT (s) of the rule on the trace of each seed."""
    return [run_agent(rule, {}, MAIN, seed).figures["avg_jct_s"] for seed in seeds]


def neighbours(pairs: int) -> list[int]:
    """Return that number of pairs and those beside it, which include the double."""
    return sorted({each for each in (pairs - 1, pairs, pairs + 1, 2 * pairs) if 1 <= each <= _MOST_PAIRS})


def table(rounds: int, traces: int) -> list[int]:
    """Return the pairs of each type that a search has found: each round takes for one type after the other the best neighbour."""
    found = [_PAIRS] * len(MODELS)
    for number in range(rounds):
        begin = TRAINING_SEEDS[0] + number * traces
        seeds = range(begin, begin + traces)
        for place in range(len(MODELS)):
            tried = [[*found[:place], each, *found[place + 1 :]] for each in neighbours(found[place])]
            means = [float(np.mean(costs(FixedPairs(each), seeds))) for each in tried]
            found = tried[means.index(min(means))]
        _say(f"round {number + 1}: {found}, {min(means) / 3600:.3f} h")
    return found


def weights(rounds: int, rules: int, traces: int, seed: int) -> list[float]:
    """Return the weights that CMA-ES has found."""
    search = Evolution(np.array(START), np.array(_DEVIATION), rules, lambda number: generator(seed, "rules", number))
    for number in range(rounds):
        begin = TRAINING_SEEDS[0] + number * traces
        found = [costs(_rule(row), range(begin, begin + traces)) for row in search.draw()]
        search.learn(np.array(found))
        _say(f"round {number + 1}: best {min(map(np.mean, found)) / 3600:.3f} h")
    return [round(each, 3) for each in search.mean.tolist()]


def _rule(row: FloatColumn) -> LinearRule:
    return LinearRule(row.tolist())


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.dl2.reproduction.rule_search", description=__doc__
    )
    parser.add_argument("--pairs", action="store_true", help="search for a table of pairs, not for weights")
    parser.add_argument("--rounds", type=int, help="rounds of the search; 20, or 5 with --pairs")
    parser.add_argument("--rules", type=int, default=10, help="rules of a round")
    parser.add_argument("--traces", type=int, default=6, help="traces of a round, other ones each time")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    if given.pairs:
        pairs = table(given.rounds or 5, given.traces)
        rule: LinearRule = FixedPairs(pairs)
        _say(f"pairs {pairs}")
    else:
        found = weights(given.rounds or 20, given.rules, given.traces, given.seed)
        rule = LinearRule(found)
        _say(f"weights {found}")
    _say(f"validation {np.mean(costs(rule, list(VALIDATION_SEEDS))) / 3600:.3f} h")


if __name__ == "__main__":
    main()
