"""The process of one attempt: train on replays of the history from the weights in service, and compare on its newest part.

With `--rounds 0` it does not train: the candidate is there, learned from the cluster's own rewards (`feedback`).

    python -P -m policies.learned.dl2.learning.attempt --parent PID --memory-mib M ... (the fields of `Arguments`)

runs in the attempt's folder, where the server has put `parent/` (the weights in service), `cluster.toml` and, without rounds, the
candidate in `training/`. It leaves there `history.csv` and `training.csv` (the replays of the comparison and of the training),
`training/` (a policy training; the candidate is in its `best/`) and, last, `result.json`.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policies.learned.dl2.learning.replay_trace import Replay
    from policies.learned.dl2.learning.result import AttemptResult
    from policies.learned.evaluation.promotion import Promotion
    from policies.learned.weights.card import ModelCard

PARENT, TRAINING, RESULT, CLUSTER = "parent", "training", "result.json", "cluster.toml"
MOST_FILE_MIB = 256
"""Maximum size of a file that the process writes."""
NICENESS = 19
"""The process comes after all others that want a core."""
_PR_SET_PDEATHSIG = 1
_REPLAY, _TRAINED_ON = "history.csv", "training.csv"
_SLOWDOWN = ("locality", "scaling")
"""Slowdown models of the comparison: jobs that are spread are slower, and more GPUs are not as many times faster."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The command line."""

    parent: int
    """Process that ends this one when it ends."""
    memory_mib: int
    seed: int
    compared: int
    """Comparisons of earlier attempts."""
    rounds: int
    """Rounds of reinforcement learning on replays; 0: the candidate is in `training/`."""
    history: Path
    oldest: float
    """Jobs that ended before this Unix time are not used."""


def main() -> None:
    """Make the attempt. Exit code 0: `result.json` has the result, also that of a failure."""
    asked = _parsed()
    _limit(asked)
    begin_s = time.monotonic()
    try:
        found = _attempt(asked)
    except Exception as error:  # noqa: BLE001 - whatever failed is the result, which the server reports
        import traceback

        traceback.print_exc()
        found = _failed(f"{type(error).__name__}: {error}")
    from policies.learned.weights.files import write_whole

    found = replace(found, ended_s=time.time(), took_s=time.monotonic() - begin_s)
    write_whole(Path(RESULT), found.to_json())


def _parsed() -> Arguments:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--parent", "--memory-mib", "--seed", "--compared", "--rounds"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--oldest", type=float, required=True)
    return Arguments(**vars(parser.parse_args()))


def _limit(asked: Arguments) -> None:
    """End with the server, come after all other processes, and use one core and so much memory."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != asked.parent:  # it has ended before the call
        sys.exit(f"process {asked.parent} has ended")
    os.nice(NICENESS)
    with suppress(OSError):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    data = asked.memory_mib << 20
    for kind, most in (
        (resource.RLIMIT_DATA, data),
        (resource.RLIMIT_FSIZE, MOST_FILE_MIB << 20),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _attempt(asked: Arguments) -> AttemptResult:
    """Return the result. Raises PolicyError, OSError, MemoryError and what torch raises."""
    from policies.learned.dl2.learning.history import read_history
    from policies.learned.dl2.learning.replay_trace import replay_of, why_too_few
    from policies.learned.dl2.learning.result import NOT_BETTER, PROMOTED, AttemptResult
    from policies.learned.weights import weights

    found_jobs, refused = read_history(asked.history)
    records = [record for record in found_jobs if record.finish_time_s >= asked.oldest]
    replay = replay_of(records)
    left_out = f"{len(found_jobs) - len(records)} ended more than learn_days ago, {replay.left_out} are too long"
    said = f"{replay.jobs} jobs in windows of {replay.window}; {left_out}; {refused} lines were refused"
    print(said, flush=True)  # noqa: T201 - standard output is the log of the attempt
    if why_not := why_too_few(replay, left_out):
        return _failed(why_not)
    Path(_REPLAY).write_text(replay.csv, encoding="utf-8")
    Path(_TRAINED_ON).write_text(replay.training_csv, encoding="utf-8")
    parent = _card(Path(PARENT))
    if asked.rounds:
        _train(asked, parent, replay)
    compared = _compare(replay)
    change = compared.evaluation.changes[compared.candidate]
    found = AttemptResult(
        result=PROMOTED if compared.promoted else NOT_BETTER,
        reason=compared.why_not,
        parent=parent.weights_sha256,
        jobs=replay.jobs,
        newest_s=max(record.finish_time_s for record in records),
        windows=len(compared.evaluation.traces),
        change=None if change is None else change.mean,
        ci95=None if change is None else change.ci95,
    )
    found = _checked(found, asked.compared)
    if found.result != PROMOTED:
        return found if asked.rounds else replace(found, reason=f"learned from the cluster's rewards: {found.reason}")
    card = _with_origin(_card(Path(TRAINING)), parent, replay, found, asked)
    arrays, _ = weights.load(Path(TRAINING, "best"), card.system, system=card.system, encoder=card.encoder)
    return replace(found, candidate=weights.save(Path(TRAINING, "best"), card.system, arrays, card).weights_sha256)


def _checked(found: AttemptResult, compared: int) -> AttemptResult:
    """Return the result, which is no promotion without an interval below zero over enough windows, at the level of the comparison
    that follows so many others."""
    from policies.learned.dl2.learning.replay_trace import FEWEST_WINDOWS
    from policies.learned.dl2.learning.result import NOT_BETTER, PROMOTED
    from policies.learned.evaluation.statistics import spent_level

    if found.result != PROMOTED:
        return found
    if found.windows < FEWEST_WINDOWS:
        return replace(
            found, result=NOT_BETTER, reason=f"{found.windows} windows were compared; {FEWEST_WINDOWS} are needed"
        )
    half = found.half_interval(compared)
    if found.change is None or half is None:
        return replace(
            found, result=NOT_BETTER, reason="the weights in service left jobs unfinished, so there is no interval"
        )
    if not found.is_better(compared):
        level = spent_level(compared + 1)
        reason = (
            f"the change of the average JCT is {found.change:+.1%} ± {half:.1%} at the level {level:.2g} of comparison "
            f"{compared + 1}, which is not below zero"
        )
        return replace(found, result=NOT_BETTER, reason=reason)
    return found


def _train(asked: Arguments, parent: ModelCard, replay: Replay) -> None:
    """Train from the parent's weights, with the sizes of its network, in episodes of the windows' length."""
    from policies.learned.training.run.progress import TrainingProgress
    from policies.learned.training.systems import SetupOverrides
    from policies.learned.training.train import TrainingRequest, train

    sizes = ("concurrent", "neurons", "layers", "network")
    same = {name: parent.recipe[name] for name in sizes if name in parent.recipe}
    settings = {**same, "start": PARENT, "jobs": replay.window, "envs": 4, "rounds": asked.rounds}
    train(
        TrainingRequest(
            system=parent.system,
            folder=Path(TRAINING),
            overrides=SetupOverrides(traces=(_TRAINED_ON,), cluster=CLUSTER),
            settings=tuple(f"{name}={value}" for name, value in settings.items()),
            seed=asked.seed,
        ),
        TrainingProgress(),
    )


def _compare(replay: Replay) -> Promotion:
    """Compare the policies, on windows of the history that the training has not used: as they are served, but without a guard.

    A guard acts where an agent leaves jobs waiting, and so it would hide that one agent does it and the other does not.
    """
    from policies.learned.evaluation.evaluation import EvaluationRequest
    from policies.learned.evaluation.promotion import compare_policies
    from policies.learned.training.systems import SetupOverrides

    # Windows of a few jobs begin empty: what a rule without elastic jobs has left there would weigh more than the jobs compared.
    overrides = SetupOverrides(traces=(_REPLAY,), cluster=CLUSTER, slowdown=_SLOWDOWN, warm_up="")
    request = EvaluationRequest(policies=(), overrides=overrides, system="dl2", settings=(f"jobs={replay.window}",))
    present, coming = (f"dl2:weights={folder},guard=false" for folder in (PARENT, TRAINING))
    return compare_policies(present, coming, request, lambda _: None)


def _card(folder: Path) -> ModelCard:
    from policies.learned.weights.card import ModelCard

    path = folder / "best" / "dl2.json"
    return ModelCard.from_json(path.read_text(encoding="utf-8"), str(path))


def _with_origin(
    card: ModelCard, parent: ModelCard, replay: Replay, found: AttemptResult, asked: Arguments
) -> ModelCard:
    """Return the card with the weights' parent, the range of the data, and the result of the comparison."""
    first, last = (
        datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") for at in (replay.first_s, replay.last_s)
    )
    assert found.change is not None and found.ci95 is not None
    data = f"this cluster's history, submitted from {first} to {last}: {card.data}"
    if not asked.rounds:
        data = (
            f"rewards of this cluster, compared on its history, submitted from {first} to {last}; before: {card.data}"
        )
    return replace(
        card,
        recipe={**card.recipe, "parent": parent.weights_sha256},
        data=data,
        results={
            **card.results,
            "change": found.change,
            "change_ci95": found.ci95,
            "windows": found.windows,
            "comparison": asked.compared + 1,
        },
    )


def _failed(reason: str) -> AttemptResult:
    from policies.learned.dl2.learning.result import FAILED, AttemptResult

    return AttemptResult(result=FAILED, reason=reason)


if __name__ == "__main__":
    main()
