"""The systems whose results `headway-sim reproduce NAME` reproduces: the published ones, and Headway's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import SettingError

if TYPE_CHECKING:
    from simulator.reproducing.experiment import Experiment, ExperimentResults
    from simulator.reproducing.pictures import Picture
    from simulator.runs.progress import OnProgress
    from simulator.slowdown.profiles.model_profiles import ModelProfiles

FIRST_TEST_SEED = 1000
"""No policy is trained or tuned on this seed or on larger ones."""
QUICK_SEEDS, DEFAULT_SEEDS = 3, 5
PAGE, JSON = "reproduced.html", "reproduced.json"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """One system."""

    says: str
    """The system, and the paper that describes it if there is one."""
    module: str
    """The module with `experiment(profiles, quick=)` and `pictures(results)`; imported on first use."""
    quick_seeds: int = QUICK_SEEDS
    default_seeds: int = DEFAULT_SEEDS

    def experiment(self, profiles: ModelProfiles | None, *, quick: bool) -> Experiment:
        """Return the experiment to run. `profiles` replace those that follow from the paper."""
        made: Experiment = import_module(self.module).experiment(profiles, quick=quick)
        return made

    @property
    def pictures(self) -> Callable[[ExperimentResults], Sequence[Picture]]:
        """Return the function that draws the results in the forms of the paper's figures."""
        found: Callable[[ExperimentResults], Sequence[Picture]] = import_module(self.module).pictures
        return found


REPRODUCTIONS: dict[str, Reproduction] = {
    "contention-rl": Reproduction(
        "contention-aware scheduling by reinforcement learning (Ryu and Eo), and headway-rl beside it",
        "simulator.papers.contention_rl.experiment",
    ),
    "dl2": Reproduction(
        "DL2 (Peng et al., TPDS 2021); stored runs with --quick",
        "simulator.papers.dl2.reproduction.experiment",
        quick_seeds=30,
        default_seeds=30,
    ),
    "headway-rl": Reproduction(
        "Headway's own, where jobs share links", "simulator.papers.headway_rl.experiment", default_seeds=10
    ),
    "marl": Reproduction(
        "MARL (Zhao and Wu, TNSM 2021); with --quick two settings run anew, and the others are stored runs",
        "simulator.papers.marl.reproduction.experiment",
        quick_seeds=10,
        default_seeds=10,
    ),
    "rl-taps": Reproduction(
        "RL-TAPS (Ryu et al., CASCON 2020)",
        "simulator.papers.rl_taps.reproduction.experiment",
        quick_seeds=5,
        default_seeds=30,
    ),
    "sched2": Reproduction(
        "SCHED2 (Luan et al., GLOBECOM 2019); stored runs with --quick",
        "simulator.papers.sched2.reproduction.experiment",
        quick_seeds=30,
        default_seeds=30,
    ),
}


def default_seeds() -> str:
    """Return how many seeds each system has without `--seeds`, in words, for the help of the command."""
    usual = _by_count({name: each.default_seeds for name, each in REPRODUCTIONS.items()})
    quick = _by_count({name: each.quick_seeds for name, each in REPRODUCTIONS.items()})
    return f"{usual}; with --quick {quick}"


def _by_count(seeds: Mapping[str, int]) -> str:
    counts = sorted(set(seeds.values()))
    return ", ".join(f"{count} of {' and '.join(name for name in seeds if seeds[name] == count)}" for count in counts)


def reproduction_of(name: str) -> Reproduction:
    """Return the system of that name. Raises SettingError, which lists the names."""
    if name not in REPRODUCTIONS:
        raise SettingError(f"there is no system {name!r} to reproduce; take one of {', '.join(sorted(REPRODUCTIONS))}")
    return REPRODUCTIONS[name]


def reproduce(
    system: Reproduction,
    *,
    quick: bool,
    seeds: int | None,
    profiles: Path | None,
    on_progress: OnProgress,
    only: str = "",
    first_seed: int = FIRST_TEST_SEED,
) -> ExperimentResults:
    """Run the experiment, or its settings with `only` in their names, on seeds from `first_seed` on: test seeds by default.

    Raises SimulatorError, PolicyError.
    """
    from simulator.reproducing.experiment import perform
    from simulator.slowdown.profiles.files import load_profiles

    count = seeds or (system.quick_seeds if quick else system.default_seeds)
    experiment = system.experiment(load_profiles(profiles) if profiles else None, quick=quick).only(only)
    return perform(experiment, range(first_seed, first_seed + count), on_progress)


def write(folder: Path, system: Reproduction, results: ExperimentResults, command: str) -> Path:
    """Write the page, and the JSON beside it; return the path of the page. Raises SettingError."""
    from simulator.reproducing.report import as_json, write_page
    from simulator.results.files import prepare_folder

    prepare_folder(folder)
    write_page(folder / PAGE, results, system.pictures(results), command)
    (folder / JSON).write_text(as_json(results) + "\n", encoding="utf-8")
    return folder / PAGE
