"""Promotion of new weights: they replace those in service only if they are better on a replay of the cluster's own history.

A folder of weights in service is that of a policy training: `best/` has the weights and their card. The weights before the last
promotion are in `previous/`, so that a promotion can be undone. Weights come into `best/` by a rename, from `.coming/`, which has
complete weights whenever it is there; they are copied in `.part/`. The time at which the folder `best/` was changed is that of the
promotion. One process at a time changes the folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from policies.api import parse_policy
from policies.errors import TrainingError, WeightsError
from policies.learned.evaluation.evaluation import Evaluation, EvaluationRequest, evaluate
from policies.learned.training.run.folder_lock import alone
from policies.learned.training.systems import TRAINED, OnProgress, find_system

BEST, PREVIOUS, COMING = "best", "previous", ".coming"
WAIT_S = 10.0
"""Maximum time for another process to change the folder, seconds."""
_PART, _GONE = ".part", ".gone"


@dataclass(frozen=True, slots=True)
class Promotion:
    """Result of a comparison of two sets of weights."""

    evaluation: Evaluation
    candidate: str
    """The candidate, as the evaluation names it."""
    promoted: bool
    why_not: str
    """Why the candidate was not promoted; empty if it was."""


def promote(
    system: str,
    candidate: Path,
    service: Path,
    request: EvaluationRequest,
    on_progress: OnProgress,
    *,
    policy: str | None = None,
) -> Promotion:
    """Compare the candidate with the weights in service, and replace these if it is better.

    Better means that the 95 % interval (Student's t) of the change of the average JCT, trace by trace, is below zero. Everything of
    `request` but its policies counts. `policy` names the policy that serves the weights; None: the first of the system. Raises
    PolicyError, and OSError.
    """
    recover(service)
    _check_folders(system, candidate, service)
    compared = _content(system, candidate), _content(system, service)
    found = compare(system, candidate, service, request, on_progress, policy=policy)
    if found.promoted:
        if (_content(system, candidate), _content(system, service)) != compared:
            raise TrainingError(
                f"{candidate} or {service} has other weights than those that were compared; compare again"
            )
        put_in_service(candidate, service)
    return found


def compare(
    system: str,
    candidate: Path,
    service: Path,
    request: EvaluationRequest,
    on_progress: OnProgress,
    *,
    policy: str | None = None,
) -> Promotion:
    """Return what `promote` would do, and change nothing. Raises PolicyError, and OSError."""
    _check_folders(system, candidate, service)
    present, coming = (_policy(system, folder, policy) for folder in (service, candidate))
    request = replace(
        request, system=request.system or system, parsed={one.label: one.made for one in (present, coming)}
    )
    return compare_policies(present.label, coming.label, request, on_progress)


def compare_policies(present: str, coming: str, request: EvaluationRequest, on_progress: OnProgress) -> Promotion:
    """Return whether `coming` is better than `present`, both named as for an evaluation. Raises PolicyError."""
    found = evaluate(replace(request, policies=(present, coming)), on_progress)
    why_not = _why_not(found, present, coming)
    return Promotion(found, coming, not why_not, why_not)


def recover(service: Path) -> None:
    """Complete a replacement that a kill has interrupted between two renames. Raises TrainingError, OSError."""
    if _is_interrupted(service):
        with _alone(service):  # another process may be between these renames
            _complete(service)


def return_to_shipped(service: Path) -> None:
    """Take the weights out of service, so that a policy serves those that it begins with; `undo` puts them back.

    Raises TrainingError, OSError.
    """
    best, previous = service / BEST, service / PREVIOUS
    with _alone(service):
        _complete(service)
        if not best.is_dir():
            raise TrainingError(f"{service} has no weights in {BEST}/: those that the policy began with are in service")
        _remove(service / COMING)
        _remove(previous)
        best.rename(previous)


def undo(service: Path) -> None:
    """Return to the weights before the last promotion; a second call returns to the newer ones. Raises TrainingError, OSError."""
    best, previous, coming = (service / name for name in (BEST, PREVIOUS, COMING))
    with _alone(service):
        _complete(service)
        if not previous.is_dir():
            raise TrainingError(f"{service} has no weights from before a promotion ({PREVIOUS}/): nothing to return to")
        _remove(coming)
        if best.exists():
            best.rename(coming)
        _into_service(previous, best)
        if coming.exists():
            coming.rename(previous)


def _check_folders(system: str, candidate: Path, service: Path) -> None:
    """Raise TrainingError for folders that are not those of two trainings of that system."""
    for folder in (candidate, service):
        if not (folder / BEST / f"{system}.json").is_file():
            raise TrainingError(f"{folder} has no weights of {system} in {BEST}/; give the folder of a policy training")
    if candidate.resolve() == service.resolve():
        raise TrainingError(f"{candidate} is in service already; give the folder of another training")


@dataclass(frozen=True, slots=True)
class _Weights:
    """The weights in a folder, as an evaluation compares them."""

    name: str
    options: dict[str, object]

    @property
    def label(self) -> str:
        """How results name them. It is not read again: a text may be read as something else than the folder's name."""
        return f"{self.name}:" + ",".join(f"{key}={value}" for key, value in self.options.items())

    @property
    def made(self) -> tuple[str, dict[str, object]]:
        """Name and options of the policy, or of the agent."""
        return self.name, self.options


def _policy(system: str, folder: Path, policy: str | None) -> _Weights:
    """Return how an evaluation makes what acts by the weights in that folder: that policy, as NAME[:key=value,...]; None: the
    system's first policy, or its agent if it has none."""
    found = find_system(system)
    if any(mark in str(folder) for mark in ",="):
        raise WeightsError(f"{folder} has a comma or an equals sign in its name; rename it")
    if policy is not None:
        name, options = parse_policy(policy)
        if name not in found.policies or "weights" in options:
            there = ", ".join(found.policies) or "none"
            raise TrainingError(
                f"--policy is {policy!r}; give a policy that serves weights of {system} ({there}), without weights"
            )
        return _Weights(name, {**options, "weights": str(folder)})
    if found.policies:  # what serves them: an agent's environment may have other rules, such as no minimum of GPUs
        return _Weights(found.policies[0], {"weights": str(folder)})
    if found.agent is None:
        raise TrainingError(f"{system} has neither a policy nor an agent that could be compared")
    return _Weights(TRAINED, {"system": system, "weights": str(folder)})


def _why_not(found: Evaluation, present: str, coming: str) -> str:
    if found.unfinished[coming]:
        return f"it never started {found.unfinished[coming]} jobs"
    if found.unfinished[present]:
        return ""  # the weights in service leave jobs waiting for ever
    change = found.changes[coming]
    if change is None or change.ci95 is None:
        return "there is only one window or seed, so there is no interval; give more history"
    if change.mean + change.ci95 >= 0:
        return f"the change of the average JCT is {change.mean:+.1%} ± {change.ci95:.1%}, which is not below zero"
    return ""


def put_in_service(candidate: Path, service: Path) -> None:
    """Replace the weights in service. A kill in between leaves complete weights, and `recover` puts them into service.

    Raises TrainingError, OSError.
    """
    best, previous, coming, part = (service / name for name in (BEST, PREVIOUS, COMING, _PART))
    with _alone(service):
        _remove(part)
        shutil.copytree(candidate / BEST, part)
        _remove(coming)
        part.rename(coming)
        _remove(previous)
        if best.exists():
            best.rename(previous)
        _into_service(coming, best)


@contextmanager
def _alone(service: Path) -> Iterator[None]:
    """Keep other processes from changing the folder. Raises TrainingError, OSError."""
    if not service.is_dir():
        raise TrainingError(f"{service} is no folder of weights in service; give the folder of a policy training")
    with alone(service, WAIT_S):
        yield


def _is_interrupted(service: Path) -> bool:
    return not (service / BEST).exists() and (service / COMING).is_dir()


def _complete(service: Path) -> None:
    if _is_interrupted(service):
        _into_service(service / COMING, service / BEST)


def _into_service(folder: Path, best: Path) -> None:
    """Rename the folder, with the present time."""
    with suppress(PermissionError):  # it is of another user
        os.utime(folder)
    folder.rename(best)


def _remove(folder: Path) -> None:
    """Remove the folder at once: a kill leaves no part of it under its name. Raises OSError."""
    gone = folder.with_name(_GONE)
    shutil.rmtree(gone, ignore_errors=True)
    if folder.exists():
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _content(system: str, folder: Path) -> bytes:
    """Return the card of the weights in the folder, which has their digest. Raises OSError."""
    return (folder / BEST / f"{system}.json").read_bytes()
