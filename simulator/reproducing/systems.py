"""Published systems whose results `headway-sim reproduce NAME` makes again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import SettingError

if TYPE_CHECKING:
    from simulator.reproducing.experiment import Experiment, Look, Outcome
    from simulator.reproducing.pictures import Picture
    from simulator.slowdown.profiles.profile import Profiles

FIRST_TEST_SEED = 1000
"""From here on nobody trains or tunes."""
QUICK_SEEDS, USUAL_SEEDS = 3, 5
PAGE, JSON = "reproduced.html", "reproduced.json"


@dataclass(frozen=True, slots=True)
class System:
    """One published system."""

    says: str
    """What is made again, and the paper that it stands in."""
    module: str
    """With `experiment(profiles, quick=)` and `pictures(outcome)`; imported when it is asked for."""

    def experiment(self, profiles: Profiles | None, *, quick: bool) -> Experiment:
        """What is run. `profiles` in place of what the paper says of its models."""
        made: Experiment = import_module(self.module).experiment(profiles, quick=quick)
        return made

    @property
    def pictures(self) -> Callable[[Outcome], Sequence[Picture]]:
        """In the forms of the paper."""
        found: Callable[[Outcome], Sequence[Picture]] = import_module(self.module).pictures
        return found


SYSTEMS: dict[str, System] = {
    "contention-rl": System(
        "contention-aware scheduling by reinforcement learning (Ryu and Eo), and headway-rl beside it",
        "simulator.papers.contention_rl.experiment",
    ),
    "sched2": System("SCHED2 (Luan et al., GLOBECOM 2019)", "simulator.papers.sched2.experiment"),
}


def system_of(name: str) -> System:
    """The system of that name. Raises SettingError with the names there are."""
    if name not in SYSTEMS:
        raise SettingError(f"there is no system {name!r} to reproduce; take one of {', '.join(sorted(SYSTEMS))}")
    return SYSTEMS[name]


def reproduce(system: System, *, quick: bool, seeds: int | None, profiles: Path | None, look: Look) -> Outcome:
    """Everything, on test seeds. Raises SimulatorError, PolicyError."""
    from simulator.reproducing.experiment import perform
    from simulator.slowdown.profiles.files import load_profiles

    count = seeds or (QUICK_SEEDS if quick else USUAL_SEEDS)
    experiment = system.experiment(load_profiles(profiles) if profiles else None, quick=quick)
    return perform(experiment, range(FIRST_TEST_SEED, FIRST_TEST_SEED + count), look)


def write(folder: Path, system: System, outcome: Outcome, command: str) -> Path:
    """The page, and beside it what programs read. Where the page is. Raises SettingError."""
    from simulator.reproducing.told import as_json, write_page
    from simulator.results.files import prepare_folder

    prepare_folder(folder)
    write_page(folder / PAGE, outcome, system.pictures(outcome), command)
    (folder / JSON).write_text(as_json(outcome) + "\n", encoding="utf-8")
    return folder / PAGE
