"""The folder of a training, and how a training goes on after it was stopped or killed.

    with TrainingRun(folder, card, resume=False, better="lower", patience=10) as run:
        run.keep(network=network, optimizer=optimizer)
        for number in run.rounds(recipe.rounds):
            collector.restart(run.seeds("environments", envs.num_envs))
            ...                                   # rollouts and updates
            run.log(loss=loss)
            run.evaluate(jct_s, network.state_dict(), jct_s=jct_s)

    settings.json   the card without results: what the training was told
    state/point     what to go on from
    events/         figures, for TensorBoard
    best/           weights and card of the best validation figure so far
    lock            held by the process that trains

**Rounds.** Between two rounds is a clean place: all that goes on from one round to the next is what was kept (`keep`), the global
sources of random numbers, and this object's own counters. A recipe sees to it: it restarts all environments at the beginning
of each round, whether or not a point is written there. Then a training that was killed at any moment and goes on from the last
point computes, to the bit, what one computes that was never killed: points come by the clock, results do not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from policies.errors import TrainingError, TrainingStoppedError
from policies.learned.training.run import seeding
from policies.learned.training.run.early_stop import Better, EarlyStop
from policies.learned.training.run.folder_lock import locked
from policies.learned.training.run.interrupts import Interrupts
from policies.learned.training.run.progress import Progress
from policies.learned.training.run.settings import check_same, read_settings, write_settings
from policies.learned.training.run.snapshot import from_bytes, to_bytes
from policies.learned.weights import weights
from policies.learned.weights.card import ModelCard
from policies.learned.weights.files import write_whole

if TYPE_CHECKING:
    import torch

POINT_EVERY_S = 30.0


class Stateful(Protocol):
    """What has a state: networks, optimizers, schedules, replay memories."""

    def state_dict(self) -> Any:
        """Nested dicts, lists and tuples of arrays, tensors, numbers and texts."""

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """Go on from there."""


class NamedArrays(dict[str, weights.Array]):
    """A part that is arrays by name, for recipes that learn without torch."""

    def state_dict(self) -> dict[str, weights.Array]:
        """Copies."""
        return {name: array.copy() for name, array in self.items()}

    def load_state_dict(self, state_dict: Mapping[str, weights.Array], /) -> None:
        """Go on from there."""
        self.clear()
        self.update(state_dict)


class TrainingRun:
    """A context manager: within, the folder is this process's alone, torch computes deterministically, and SIGINT and SIGTERM end
    the training at the next clean place, by TrainingStoppedError.

    Invariants: `state/point` is a whole point of this training, or not there; `best/` is never older than the point; a phase that
    has ended is not begun again.
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
        progress: Progress | None = None,
        device: str = "cpu",
    ) -> None:
        """`card`: as `card.draft` makes it; its system names the weights. `better`, `patience`: of the validation figure, see
        EarlyStop. Points are at most `point_every_s` apart where rounds are shorter than that.
        """
        self.folder = folder
        self.card = card
        self.device = device
        """Where the recipe's networks learn, as torch names it. Only "cpu" promises the same weights from the same seed."""
        self.early = EarlyStop(better, patience)
        self._resume = resume
        self._every_s = point_every_s
        self._clock = clock
        self._progress = progress or Progress()
        self._interrupts = Interrupts()
        self._stack = ExitStack()
        self._parts: dict[str, Stateful] = {}
        self._done: dict[str, int] = {}
        """Rounds of each phase."""
        self._ended: set[str] = set()
        self._now: tuple[str, int] | None = None
        """Phase and number of the round that is on."""
        self._enough = False
        self._point: dict[str, Any] | None = None
        """To go on from, until the recipe has come to its phase."""
        self._pointed_at = 0.0
        self._longest_s = 0.0
        self._writer: Any = None

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a training has begun in that folder."""
        return (folder / "settings.json").exists()

    @property
    def best_folder(self) -> Path:
        """Where the best weights are, named by the system, once something was evaluated."""
        return self.folder / "best"

    def __enter__(self) -> TrainingRun:
        """Raises TrainingError where the training cannot begin, or not go on from there."""
        with ExitStack() as stack:
            stack.enter_context(locked(self.folder))
            stack.callback(self._close_writer)
            self._open()
            stack.enter_context(seeding.deterministic(self.card.seed))
            stack.enter_context(self._interrupts)
            stack.enter_context(self._progress)
            self._stack = stack.pop_all()
        self._pointed_at = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # What a recipe calls

    def keep(self, **parts: Stateful) -> None:
        """These go on from round to round. Where a training goes on, they are as they were once `rounds` has begun."""
        for name, part in parts.items():
            if name in self._parts:
                raise ValueError(f"{name} is kept already; give the other part another name")
            self._parts[name] = part

    def rounds(self, total: int, phase: str = "training") -> Iterator[int]:
        """The numbers of the rounds that are still to do, from 0 on; after the last one, or `enough`, the phase has ended.

        Phases, such as a warm-up and what comes after it, follow each other in the same order every time. Raises TrainingError for
        a recipe that is not the one of the point, TrainingStoppedError after a signal.
        """
        self._come_to(phase)
        while phase not in self._ended:
            done = self._done.get(phase, 0)
            if done < total:
                self._progress.round(phase, done, total)
                began = self._clock()
                self._now = (phase, done)
                yield done
                self._now = None
                self._took(self._clock() - began)
                done = self._done[phase] = done + 1
                self._progress.round(phase, done, total)
            if done >= total or self._enough:
                self._ended.add(phase)
                self._enough = False
            self._at_clean_place(phase)

    def seeds(self, what: str, count: int) -> list[int]:
        """For this round's environments, or whatever else wants seeds."""
        return seeding.seeds(count, self.card.seed, what, *self._round("seeds"))

    def rng(self, what: str) -> np.random.Generator:
        """A source of random numbers for this round."""
        return seeding.generator(self.card.seed, what, *self._round("rng"))

    def log(self, **figures: float) -> None:
        """Figures of this round, for TensorBoard."""
        phase, _ = self._round("log")
        for name, figure in figures.items():
            self._events().add_scalar(f"{phase}/{name}", figure, self._rounds_done())

    def evaluate(self, figure: float, state: Mapping[str, weights.Array | torch.Tensor], **results: float) -> bool:
        """The validation figure of these weights; where it is better than all before, keep them in `best/`. Whether it is.

        The card gets the figure and the results. When patience is at its end, so is the phase after this round. Raises
        TrainingError for a figure that is no number, WeightsError for such weights.
        """
        self._round("evaluate")
        is_better = self.early.offer(figure)
        if is_better:
            card = replace(self.card, results={"validation": figure, **results})
            weights.save(self.best_folder, card.system, state, card)
        assert self.early.best is not None
        self.log(validation=figure, **results)
        self._progress.evaluated(figure, self.early.best)
        if self.early.is_over:
            self.enough()
        return is_better

    def enough(self) -> None:
        """The phase ends after this round."""
        self._round("enough")
        self._enough = True

    # Beginning and going on

    def _open(self) -> None:
        settings = {
            "better": self.early.better,
            "patience": self.early.patience,
            "card": json.loads(self.card.to_json()),
        }
        path, point = self.folder / "settings.json", self.folder / "state" / "point"
        if not self._resume:
            if strangers := [
                each.name for each in self.folder.iterdir() if each.name not in {"lock", ".settings.json.new"}
            ]:
                mend = "go on with it (--resume)" if self.is_in(self.folder) else "it has no settings.json, so leave it"
                raise TrainingError(f"{self.folder}: has {strangers[0]} in it; {mend}, or give another folder")
            write_settings(path, settings)
            return
        if not self.is_in(self.folder):
            raise TrainingError(f"{path}: no such file, so there is nothing to go on from; begin without --resume")
        for line in check_same(path, read_settings(path), settings):
            self._progress.say(line)
        if point.exists():
            self._point = from_bytes(point.read_bytes(), str(point))
            self._done, self._ended = dict(self._point["done"]), set(self._point["ended"])

    def _come_to(self, phase: str) -> None:
        if self._point is None:
            return
        if self._point["phase"] == phase:
            self._go_on(self._point)
            self._point = None
        elif phase not in self._ended:
            raise TrainingError(
                f"{self.folder}: was in phase {self._point['phase']}, which this recipe does not come to before {phase}; "
                "use the Headway that began it, or begin anew in another folder"
            )

    def _go_on(self, point: Mapping[str, Any]) -> None:
        if point["parts"].keys() != self._parts.keys():
            raise TrainingError(
                f"{self.folder}: kept {', '.join(point['parts'])}, this recipe keeps {', '.join(self._parts)}; "
                "use the Headway that began it, or begin anew in another folder"
            )
        for name, part in self._parts.items():
            part.load_state_dict(point["parts"][name])
        self.early.load_state_dict(point["early"])
        # Last: what came until here may have drawn from them, as it did when the training began.
        seeding.set_global_sources(point["sources"])
        self._progress.say(f"{self.folder}: goes on after round {self._done[point['phase']]} of {point['phase']}")

    # Clean places

    def _took(self, round_s: float) -> None:
        if round_s > self._every_s >= self._longest_s:
            self._progress.say(
                f"a round took {round_s:.0f} s: as much is lost when the training is killed; make rounds shorter"
            )
        self._longest_s = max(self._longest_s, round_s)

    def _at_clean_place(self, phase: str) -> None:
        now = self._clock()
        since = now - self._pointed_at
        if phase in self._ended or self._interrupts.asked or since + self._longest_s > self._every_s:
            self._write_point(phase)
            self._pointed_at = self._clock()
        if self._interrupts.asked:
            raise TrainingStoppedError(
                f"{self.folder}: stopped by {self._interrupts.asked} after round {self._done.get(phase, 0)} of {phase}; "
                "go on with --resume"
            )

    def _write_point(self, phase: str) -> None:
        point = {
            "phase": phase,
            "done": self._done,
            "ended": sorted(self._ended),
            "parts": {name: part.state_dict() for name, part in self._parts.items()},
            "early": self.early.state_dict(),
            "sources": seeding.global_sources(),
        }
        (self.folder / "state").mkdir(exist_ok=True)
        write_whole(self.folder / "state" / "point", to_bytes(point))
        if self._writer is not None:
            self._writer.flush()

    # Figures

    def _round(self, what: str) -> tuple[str, int]:
        if self._now is None:
            # Between rounds it would be done twice by a training that goes on.
            raise RuntimeError(f"{what} was called outside of a round; call it in the loop over `rounds`")
        return self._now

    def _rounds_done(self) -> int:
        return sum(self._done.values())

    def _events(self) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # What a killed training has logged of rounds that are done again is not shown.
            self._writer = SummaryWriter(str(self.folder / "events"), purge_step=self._rounds_done())
        return self._writer

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
