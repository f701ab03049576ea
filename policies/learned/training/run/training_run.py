"""A training in its folder, which continues after it was stopped or killed.

    with TrainingRun(folder, card, resume=False, better="lower", patience=10) as run:
        run.keep(network=network, optimizer=optimizer)
        for number in run.rounds(recipe.rounds):
            collector.restart(run.seeds("environments", envs.num_envs))
            ...                                   # rollouts and updates
            run.log(loss=loss)
            run.evaluate(jct_s, network.state_dict(), jct_s=jct_s)

    settings.json   the card without results: the settings of the training
    state/point     the checkpoint
    events/         figures, for TensorBoard; of each round also its CPU time (`cpu_s`), with that of processes that ended in it
    best/           weights and card of the best validation figure so far; the card has the round of the weights, and the last round
    lock            held by the process that trains

**Rounds.** Between two rounds a training can be stopped without loss: all that goes on from one round to the next is what was kept
(`keep`), the global sources of random numbers, and this object's own counters. The recipe must restart all environments at the
beginning of each round, whether or not a checkpoint is written there. Then a training that was killed at any moment and continues
from its last checkpoint computes, to the bit, the same as one that was never killed: the clock decides about checkpoints alone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from policies.errors import TrainingError, TrainingStoppedError
from policies.learned.training.run import seeding
from policies.learned.training.run.checkpoint import POINT_EVERY_S, Checkpoint, Parts, Stateful
from policies.learned.training.run.early_stop import Better, EarlyStop
from policies.learned.training.run.figures import Figures
from policies.learned.training.run.folder_lock import locked
from policies.learned.training.run.interrupts import Interrupts
from policies.learned.training.run.progress import TrainingProgress
from policies.learned.training.run.settings import check_same, read_settings, write_settings
from policies.learned.weights import weights
from policies.learned.weights.card import ModelCard
from policies.learned.weights.files import write_whole

if TYPE_CHECKING:
    import torch

_TRAINING = "training"
"""The phase whose rounds the card has."""
_ROUND, _LAST_ROUND = "round", "last_round"
"""Results of the card: the rounds after which the weights were validated, and after which the training ended or was stopped."""


class TrainingRun:
    """One training, as a context manager. Inside the `with` block the folder belongs to this process alone, torch computes
    deterministically, and SIGINT and SIGTERM end the training after the present round, with TrainingStoppedError.

    Invariants: `best/` is never older than the checkpoint; a phase that has ended is not begun again.

    Bound: the phases of its recipe.
    """

    def __init__(
        self,
        folder: Path,
        card: ModelCard,
        *,
        resume: bool,
        better: Better,
        patience: int | None = None,
        point_every_s: float = POINT_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
        progress: TrainingProgress | None = None,
        device: str = "cpu",
    ) -> None:
        """`card` is as `card.draft` makes it; its system names the weights. `better` and `patience` apply to the validation figure,
        see EarlyStop. Checkpoints are at most `point_every_s` apart where rounds are shorter than that.
        """
        self.folder = folder
        self.card = card
        self.device = device
        """Device on which the recipe's networks learn, as torch names it. Only "cpu" gives the same weights from the same seed."""
        self.early = EarlyStop(better, patience)
        self._resume = resume
        self._clock = clock
        self._progress = progress or TrainingProgress()
        self._checkpoint = Checkpoint(folder, point_every_s, clock)
        self._figures = Figures(folder / "events")
        self._interrupts = Interrupts()
        self._stack = ExitStack()
        self._parts = Parts(folder)
        self._done: dict[str, int] = {}
        """Number of rounds done in each phase."""
        self._ended: set[str] = set()
        self._now: tuple[str, int] | None = None
        """Phase and number of the present round."""
        self._enough = False
        self._point: dict[str, Any] | None = None
        """The checkpoint from which the training continues, until the recipe has reached its phase."""

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Return whether a training has begun in that folder."""
        return (folder / "settings.json").exists()

    @property
    def best_folder(self) -> Path:
        """Folder of the best weights, which are named by the system; empty before the first evaluation."""
        return self.folder / "best"

    def __enter__(self) -> TrainingRun:
        """Lock the folder, and read the checkpoint. Raises TrainingError if the training cannot begin or continue."""
        with ExitStack() as stack:
            stack.enter_context(locked(self.folder))
            stack.callback(self._figures.close)
            self._open()
            stack.enter_context(seeding.deterministic(self.card.seed))
            stack.enter_context(self._interrupts)
            stack.enter_context(self._progress)
            self._stack = stack.pop_all()
        self._checkpoint.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # What a recipe calls

    def keep(self, **parts: Stateful) -> None:
        """Carry these from round to round. If a training continues, `rounds` restores their states when it begins."""
        self._parts.keep(parts)

    def rounds(self, total: int, phase: str = _TRAINING) -> Iterator[int]:
        """Yield the numbers of the rounds that are left, from 0 on; after the last one, or `enough`, the phase has ended.

        Phases, such as a warm-up and the training after it, follow each other in the same order every time. Raises TrainingError
        for another recipe than that of the checkpoint, and TrainingStoppedError after a signal.
        """
        self._come_to(phase)
        while phase not in self._ended:
            done = self._done.get(phase, 0)
            if done < total:
                self._progress.round(phase, done, total)
                began, cpu_began_s = self._clock(), _cpu_s()
                self._now = (phase, done)
                yield done
                self.log(cpu_s=_cpu_s() - cpu_began_s)
                self._now = None
                if warning := self._checkpoint.note_round(self._clock() - began):
                    self._progress.say(warning)
                done = self._done[phase] = done + 1
                self._progress.round(phase, done, total)
            if done >= total or self._enough:
                self._ended.add(phase)
                self._enough = False
            self._between_rounds(phase)

    def seeds(self, what: str, count: int) -> list[int]:
        """Return seeds for this round, such as one for each environment."""
        return seeding.seeds(count, self.card.seed, what, *self._round("seeds"))

    def rng(self, what: str) -> np.random.Generator:
        """Return a source of random numbers for this round."""
        return seeding.generator(self.card.seed, what, *self._round("rng"))

    def log(self, **figures: float) -> None:
        """Write figures of this round for TensorBoard."""
        phase, _ = self._round("log")
        for name, figure in figures.items():
            self._figures.add(f"{phase}/{name}", figure, sum(self._done.values()))

    def evaluate(
        self,
        figure: float,
        state: Mapping[str, weights.Array | torch.Tensor],
        *,
        min_gain: float = 0.0,
        **results: float,
    ) -> bool:
        """Record the validation figure of these weights. If it is better than the best so far by more than `min_gain` of that
        (0.05 = 5 %), keep them in `best/` and return True.

        The card gets the figure, the results, and the round. When patience is at its end, the phase ends after this round. Raises
        TrainingError for a figure that is not a finite number, and WeightsError for such weights.
        """
        phase, done = self._round("evaluate")
        is_better = self.early.offer(figure, min_gain)
        if is_better:
            of_round = done + 1 if phase == _TRAINING else 0
            card = replace(self.card, results={"validation": figure, **results, _ROUND: of_round})
            weights.save(self.best_folder, card.system, state, card)
        assert self.early.best is not None
        self.log(validation=figure, **results)
        self._progress.evaluated(figure, self.early.best)
        if self.early.is_over:
            self.enough()
        return is_better

    def evaluated_badly(self, why: str) -> None:
        """Record that the weights could not be validated, which counts as the worst figure, and say why."""
        self._round("evaluate")
        self.early.miss()
        self._progress.say(f"these weights do not count: {why}")
        if self.early.is_over:
            self.enough()

    def enough(self) -> None:
        """End the phase after this round."""
        self._round("enough")
        self._enough = True

    # Beginning and going on

    def _open(self) -> None:
        settings = {
            "better": self.early.better,
            "patience": self.early.patience,
            # The range follows from the data, and trainings of earlier versions do not have it.
            "card": json.loads(replace(self.card, trained_range={}).to_json()),
        }
        path = self.folder / "settings.json"
        if not self._resume:
            self._check_empty()
            write_settings(path, settings)
            return
        if not self.is_in(self.folder):
            raise TrainingError(f"{path}: no such file, so there is no training to continue; begin without --resume")
        for line in check_same(path, read_settings(path), settings):
            self._progress.say(line)
        self._point = self._checkpoint.read()
        if self._point is not None:
            self._done, self._ended = dict(self._point["done"]), set(self._point["ended"])

    def _check_empty(self) -> None:
        ours = {"lock", ".settings.json.new"}
        if strangers := [each.name for each in self.folder.iterdir() if each.name not in ours]:
            mend = (
                "continue that training (--resume)"
                if self.is_in(self.folder)
                else "it has no settings.json, so leave it"
            )
            raise TrainingError(f"{self.folder}: the folder contains {strangers[0]}; {mend}, or give another folder")

    def _come_to(self, phase: str) -> None:
        if self._point is None:
            return
        if self._point["phase"] == phase:
            self._go_on(self._point)
            self._point = None
        elif phase not in self._ended:
            raise TrainingError(
                f"{self.folder}: was in phase {self._point['phase']}, which this recipe does not have before {phase}; "
                "use the version of Headway that began it, or begin again in another folder"
            )

    def _go_on(self, point: Mapping[str, Any]) -> None:
        self._parts.load_state_dict(point["parts"])
        self.early.load_state_dict(point["early"])
        # Last: what came until here may have drawn from them, as it did when the training began.
        seeding.set_global_sources(point["sources"])
        self._progress.say(f"{self.folder}: continues after round {self._done[point['phase']]} of {point['phase']}")

    # Between two rounds

    def _between_rounds(self, phase: str) -> None:
        is_due = self._checkpoint.is_due
        is_last = phase in self._ended or self._interrupts.asked
        if is_due or is_last:
            if phase == _TRAINING:
                self._note_last_round()
            self._checkpoint.write(
                {
                    "phase": phase,
                    "done": self._done,
                    "ended": sorted(self._ended),
                    "parts": self._parts.state_dict(),
                    "early": self.early.state_dict(),
                    "sources": seeding.global_sources(),
                }
            )
            self._figures.flush()
        if self._interrupts.asked:
            raise TrainingStoppedError(
                f"{self.folder}: stopped by {self._interrupts.asked} after round {self._done.get(phase, 0)} of {phase}; "
                "continue with --resume"
            )

    def _note_last_round(self) -> None:
        """Enter in the card of the best weights how many rounds the training had; the weights stay."""
        path = self.best_folder / f"{self.card.system}.json"
        if path.is_file():
            card = ModelCard.from_json(path.read_text(encoding="utf-8"), str(path))
            results = {**card.results, _LAST_ROUND: self._done.get(_TRAINING, 0)}
            write_whole(path, replace(card, results=results).to_json().encode())

    def _round(self, what: str) -> tuple[str, int]:
        if self._now is None:
            # Between rounds, a training that continues would do it twice.
            raise RuntimeError(f"{what} was called outside of a round; call it in the loop over `rounds`")
        return self._now


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of the processes that it has waited for."""
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system
