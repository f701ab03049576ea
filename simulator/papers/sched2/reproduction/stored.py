"""Stored runs of SCHED2's experiment: the figures of every seed, in `runs.json` beside this file.

All settings together take a quarter of an hour of one core, so their runs are stored; `headway-sim reproduce sched2 --quick` shows
them. As a program, it runs contenders and stores the result:

    python -m simulator.papers.sched2.reproduction.stored                      # all contenders in all settings on all seeds
    python -m simulator.papers.sched2.reproduction.stored --only sched2 --settings "on one GPU"
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from policies.learned.training.systems import TEST_SEEDS
from simulator.errors import SettingError
from simulator.papers.sched2.reproduction.contenders import contenders
from simulator.papers.sched2.reproduction.measures import BEHAVIOUR, PERFORMANCE, measures
from simulator.papers.sched2.reproduction.settings import CALIBRATED, settings
from simulator.reproducing.experiment import Contender, Setting
from simulator.reproducing.stored_runs import StoredRuns
from simulator.slowdown.profiles.papers import paper_profiles

SEEDS = TEST_SEEDS[:30]
STORE = "python -m simulator.papers.sched2.reproduction.stored"
_SHARES = 5
"""Decimal places of figures that are not seconds."""
RUNS = StoredRuns(
    Path(__file__).with_name("runs.json"),
    SEEDS,
    {metric: _SHARES for metric in {*PERFORMANCE, *BEHAVIOUR} if not metric.endswith("_s")},
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run contenders and store their figures."""
    parser = argparse.ArgumentParser(prog=STORE, description="Store runs of SCHED2's experiment.")
    parser.add_argument("--only", nargs="*", help="names of contenders; the runs of others stay as they are")
    parser.add_argument(
        "--settings", nargs="*", help="names of settings, or words in them; the runs of others stay as they are"
    )
    given = parser.parse_args(arguments)
    for line in RUNS.store(_work(given.only, given.settings), tuple(dict.fromkeys((*PERFORMANCE, *BEHAVIOUR)))):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def chosen(every: Sequence[Setting], words: Sequence[str] | None) -> list[Setting]:
    """Return, for each of these words, the setting of that name, or else those whose names contain it; all of them for None.

    Raises SettingError, which lists the names, for words that no name contains.
    """
    if words is None:
        return list(every)
    found: set[str] = set()
    for word in words:
        names = {each.name for each in every if each.name == word} or {each.name for each in every if word in each.name}
        if not names:
            raise SettingError(
                f"no setting has {word!r} in its name; the names: {'; '.join(each.name for each in every)}"
            )
        found |= names
    return [each for each in every if each.name in found]


def _work(only: Sequence[str] | None, words: Sequence[str] | None) -> Iterator[tuple[Setting, Contender]]:
    """Yield what is to be run. Figure 9 and table III are of the calibrated setting alone, and so are their figures."""
    profiles = paper_profiles("sched2")
    every = measures(profiles)
    performance = {metric: every[metric] for metric in PERFORMANCE}
    for setting in chosen(settings(profiles), words):
        shown = every if setting.name == CALIBRATED else performance
        for contender in contenders(shown, sample=False):
            if only is None or contender.name in only:
                yield setting, contender


if __name__ == "__main__":
    main()
