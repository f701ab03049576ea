"""One training from beginning to end, for `headway-policy train`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from policies.errors import TrainingError
from policies.learned.training.recipes import recipe_of
from policies.learned.training.run.checkpoint import POINT_EVERY_S
from policies.learned.training.run.progress import TrainingProgress
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import (
    SetupOverrides,
    SimulationBackend,
    TrainableSystem,
    find_backend,
    find_system,
)
from policies.learned.weights.card import ModelCard, draft

HOUSE, SB3 = "house", "sb3"
_NEEDS = ("torch", "safetensors", "tensorboard")
_FOR_SB3 = ("stable_baselines3", "sb3_contrib")


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """A request to train a system."""

    system: str
    folder: Path
    overrides: SetupOverrides
    settings: tuple[str, ...] = ()
    """Fields of the recipe, each as name=value."""
    rounds: int | None = None
    seed: int = 0
    resume: bool = False
    point_every_s: float = POINT_EVERY_S
    device: str = "cpu"
    engine: str = HOUSE


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The best weights of a training."""

    card: ModelCard
    """The card of the weights."""
    name: str
    """Name of the weights' files in `folder`."""
    folder: Path
    system: TrainableSystem
    wall_s: float


def train(request: TrainingRequest, progress: TrainingProgress | None = None) -> TrainingResult:
    """Train, or continue a training. Raises PolicyError: TrainingStoppedError after a signal, TrainingError and others for
    invalid requests."""
    begin = time.monotonic()
    check_installed((*_NEEDS, *(_FOR_SB3 if request.engine == SB3 else ())))
    progress = progress or TrainingProgress()
    system = find_system(request.system)
    carry_out = _engine(request.engine, system)
    recipe = recipe_of(system, request.settings, request.rounds)
    _check_device(request.device, system)
    backend = find_backend(system.setup(recipe), request.overrides)
    try:
        for note in backend.notes:
            progress.say(note)
        progress.say(f"{request.folder}: {request.system} is trained on {backend.data}")
        with backend.errors():
            card = _card(request, system, recipe, backend)
            with TrainingRun(
                request.folder,
                card,
                resume=request.resume,
                better=system.better,
                patience=system.patience,
                point_every_s=request.point_every_s,
                progress=progress,
                device=request.device,
            ) as run:
                carry_out(run, backend, recipe)
        return TrainingResult(_best(run), card.system, run.best_folder, system, time.monotonic() - begin)
    finally:
        backend.close()


def _engine(name: str, system: TrainableSystem) -> Callable[[TrainingRun, SimulationBackend, Any], None]:
    match name:
        case "house":
            return system.train
        case "sb3" if system.gym is not None:
            from policies.learned.training.sb3 import trainer

            return trainer(system)
        case "sb3":
            raise TrainingError(f"{system.name} does not learn from environments alone; leave --engine out")
    raise TrainingError(f"there is no engine {name!r}; give {HOUSE} or {SB3}")


def _card(request: TrainingRequest, system: TrainableSystem, recipe: Any, backend: SimulationBackend) -> ModelCard:
    card_details = system.card(recipe, backend)
    card = draft(
        system=system.name,
        recipe=recipe if card_details.settings is None else card_details.settings,
        seed=request.seed,
        encoder=card_details.encoder,
        shapes=card_details.shapes,
        data=backend.data,
        data_sha256=backend.data_sha256,
        trained_range=card_details.trained_range or backend.trained_range(),
    )
    # It is another network, so it must not be served as the system's own.
    return card if request.engine == HOUSE else replace(card, system=f"{system.name}-{request.engine}")


def _best(run: TrainingRun) -> ModelCard:
    path = run.best_folder / f"{run.card.system}.json"
    if not path.exists():
        raise TrainingError(f"{run.folder}: no round was evaluated, so there are no weights; give more rounds")
    return ModelCard.from_json(path.read_text(encoding="utf-8"), str(path))


def check_installed(packages: tuple[str, ...]) -> None:
    """Raise TrainingError, with the extra to install, for packages that are not installed."""
    if missing := [name for name in packages if find_spec(name) is None]:
        extra = "dev" if missing[0] in _FOR_SB3 else "train,sim"
        raise TrainingError(
            f"training needs {', '.join(missing)}, which is not installed; pip install 'headway-scheduler[{extra}]'"
        )


def _check_device(name: str, system: TrainableSystem) -> None:
    if name.partition(":")[0] not in system.devices:
        raise TrainingError(
            f"{system.name} trains on {' or '.join(system.devices)}, not on {name!r}; give one of these with --device"
        )
    if name == "cpu":
        return
    import torch

    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise TrainingError(f"--device {name}: not available on this machine ({reason}); leave it out") from error
