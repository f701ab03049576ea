"""Rows from the store of profiles, to which the simulator's slowdown models are fitted.

Pairs (pair_table.fit), locality by shape (locality.fit), steps by ring rate (step_fit.fit) and throughput by size (scaling.fit).
A model's name is its script and the beginning of its signature, so that the same model has one name for all users.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import nan
from statistics import median

from controller.profiles.alone_speeds import TimeAndSpeed, speed_around
from controller.profiles.ideal import step_profile
from controller.profiles.reader import ProfileReader
from controller.profiles.sensitivity import StepProfile, sent_bytes
from controller.profiles.sightings import ProfileRow
from controller.profiles.windows import Neighbour, RunShape, Throughput, Trained
from simulator.slowdown.links.step_fit import StepRow
from simulator.slowdown.neighbours.pair_table import PairRow
from simulator.slowdown.placement.locality import LocalityRow
from simulator.slowdown.placement.scaling import ScalingRow
from simulator.slowdown.profiles.model_profiles import key_of

GB = 1e9
_SIGNATURE_CHARS = 8

Racks = Callable[[str], str | int]
"""Returns the rack of a node."""
_NEAR = 50
"""Number of windows alone of other jobs, before and after a window with a neighbour, that it is compared with."""
_Alone = dict[tuple[str, RunShape], list[TimeAndSpeed]]
"""Times and speeds of windows without neighbours, oldest first, by model and shape."""
_OwnAlone = dict[tuple[str, RunShape, int], list[TimeAndSpeed]]
"""The same of each job, by its number too."""


def model_name(trained: Trained) -> str:
    """Return the model's name in rows. It has no commas, which separate GPUs and nodes there."""
    script = _clean(trained.script.removesuffix(".py")) or "unknown"
    return f"{script}-{trained.signature[:_SIGNATURE_CHARS]}" if trained.signature else script


class Names:
    """Names of models in rows. A name includes batch size and GPU model where several were seen."""

    def __init__(self, seen: Iterable[tuple[Trained, RunShape | None]] = ()) -> None:
        self._batches: dict[str, set[int]] = defaultdict(set)
        """Bound: `seen`."""
        self._gpus: dict[str, set[str]] = defaultdict(set)
        """Bound: `seen`."""
        for trained, shape in seen:
            if trained.batch_size is not None:
                self._batches[model_name(trained)].add(trained.batch_size)
            if shape is not None and shape.gpu_model:
                self._gpus[model_name(trained)].add(shape.gpu_model)

    def of(self, trained: Trained, shape: RunShape | None) -> str:
        """Return the name of that model on GPUs of that shape."""
        name = model_name(trained)
        if trained.batch_size is not None and len(self._batches.get(name, ())) > 1:
            name = f"{name}-b{trained.batch_size}"
        if shape is not None and shape.gpu_model and len(self._gpus.get(model_name(trained), ())) > 1:
            name = f"{name}-{_clean(shape.gpu_model)}"
        return name


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text)


@dataclass(frozen=True, slots=True)
class FitRows:
    """Rows, grouped by the fit that reads them."""

    pairs: tuple[PairRow, ...]
    locality: tuple[LocalityRow, ...]
    steps: tuple[StepRow, ...]
    scaling: tuple[ScalingRow, ...]
    models: tuple[ModelRow, ...] = ()
    names: Names = field(default_factory=Names, compare=False)
    """Names in these rows. They depend on everything that was read, so names of other readings may differ."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model's values that need no fit: medians over its profiles."""

    model: str
    compute_s: float
    """Time of a step without waiting for communication, in seconds."""
    bytes: float
    """Bytes of a ring all-reduce that would load the links equally; NaN: no profile shows communication."""
    overlap: float
    """Share of the shorter of computation and communication that is hidden behind the other; NaN: as for `bytes`."""


def rows(store: ProfileReader, racks: Racks = lambda _: 0, since_s: float = 0.0) -> FitRows:
    """Return all rows measured since then. Jobs of unknown models are left out."""
    seen = [item for item in store.throughputs(since_s) if item.trained.signature]
    profiles = [row for row in store.profiles(since_s) if row.trained.signature]
    names = Names([(item.trained, item.shape) for item in seen] + [(row.trained, row.shape) for row in profiles])
    alone = _alone(seen, names)
    return FitRows(
        pairs=tuple(_pairs(seen, alone, names)),
        locality=tuple(_locality(seen, racks, names)),
        steps=tuple(_steps(profiles, names)),
        scaling=tuple(_scaling(alone)),
        models=tuple(_models(profiles, names)),
        names=names,
    )


def _alone(seen: list[Throughput], names: Names) -> _Alone:
    """Return the windows without neighbours."""
    found: _Alone = defaultdict(list)
    for item in seen:
        if item.alone:
            found[names.of(item.trained, item.shape), item.shape].append((item.start_s, item.steps_per_s))
    return dict(found)


def _own_alone(seen: list[Throughput], names: Names) -> _OwnAlone:
    """Return the windows without neighbours of each job."""
    found: _OwnAlone = defaultdict(list)
    for item in seen:
        if item.alone:
            key = names.of(item.trained, item.shape), item.shape, item.run.job_id
            found[key].append((item.start_s, item.steps_per_s))
    return dict(found)


def _scaling(alone: _Alone) -> list[ScalingRow]:
    """Return one row for each size, at its fastest shape. With a fixed batch per GPU, examples/s follow GPUs x steps/s."""
    best: dict[tuple[str, int], float] = defaultdict(float)
    for (model, shape), windows in alone.items():
        best[model, shape.gpus] = max(best[model, shape.gpus], _speed(windows[-2 * _NEAR :]))
    return [ScalingRow(model, "", gpus, gpus * steps_per_s) for (model, gpus), steps_per_s in sorted(best.items())]


def _speed(windows: list[TimeAndSpeed]) -> float:
    return median(steps_per_s for _, steps_per_s in windows)


def _speed_then(windows: list[TimeAndSpeed], time_s: float) -> float:
    """Return the median speed around that time."""
    place = bisect_left(windows, (time_s,))
    return _speed(windows[max(place - _NEAR, 0) : place + _NEAR])


def _pairs(seen: list[Throughput], alone: _Alone, names: Names) -> list[PairRow]:
    """Return one row for each window with exactly two known jobs that share a node, when the first one's speed alone is known at
    that shape: from its own windows, or else from those of all jobs of its model.

    Jobs that share only links between nodes are no pair: the table has losses inside nodes.
    """
    found, own_alone = [], _own_alone(seen, names)
    for item in seen:
        windows = alone.get((names.of(item.trained, item.shape), item.shape))
        if windows is None or len(item.neighbours) != 1:
            continue
        other = item.neighbours[0]
        if other.trained is None or other.shape is None or not other.trained.signature or other.steps_per_s is None:
            continue
        if not _share_a_node(item, other):
            continue
        target = _key(names.of(item.trained, item.shape), item.shape)
        beside = _key(names.of(other.trained, other.shape), other.shape)
        own = own_alone.get((names.of(item.trained, item.shape), item.shape, item.run.job_id))
        speed = speed_around(own, item.start_s) if own else _speed_then(windows, item.start_s)
        found.append(PairRow(target, beside, item.steps_per_s / speed))
    return found


def _share_a_node(item: Throughput, other: Neighbour) -> bool:
    """Return whether they do, for sure. A job on one node uses no link between nodes, so its neighbours are on that node."""
    if other.shares_node is None:
        return len(item.nodes) == 1 or (other.shape is not None and other.shape.nodes == 1)
    return other.shares_node


def _key(name: str, shape: RunShape) -> str:
    """Return "model,GPUs,nodes", the key of the pair table."""
    return f"{key_of(name)},{shape.gpus},{shape.nodes}"


def _locality(seen: list[Throughput], racks: Racks, names: Names) -> list[LocalityRow]:
    """Return one row for each run without neighbours, by tier; rows of the same number of GPUs are compared."""
    found: dict[tuple[str, str, int, tuple[int, int]], list[float]] = defaultdict(list)
    for item in seen:
        tier = tier_of(item, racks)
        if item.alone and tier is not None:
            run = (item.run.job_id, item.run.restart)
            found[names.of(item.trained, item.shape), f"{item.shape.gpus} GPUs", tier, run].append(item.steps_per_s)
    return [
        LocalityRow(model, setting, tier, median(rates)) for (model, setting, tier, _), rates in sorted(found.items())
    ]


def tier_of(item: Throughput, racks: Racks) -> int | None:
    """Return the tier: 0 one socket, 1 one node, 2 one rack, 3 several racks; None when the sockets are not known."""
    if len(item.nodes) == 1:
        if item.shape.gpus == 1:
            return 0
        return None if item.sockets is None else int(item.sockets > 1)
    return 2 if len({racks(node) for node in item.nodes}) == 1 else 3


def _steps(rows: list[ProfileRow], names: Names) -> list[StepRow]:
    """Return one row for each profile of a whole job: its step time, and the rate of its bytes over a node's link."""
    found = []
    for row in rows:
        if row.shape is None:
            continue
        profile = step_profile(row)
        gbs = 1.0  # without effect on a single node
        if row.shape.nodes > 1:
            sent = sent_bytes(profile, row.shape.nodes)
            if sent <= 0 or profile.communicate_s <= 0:
                continue
            gbs = sent / profile.communicate_s / GB
        found.append(StepRow(names.of(row.trained, row.shape), row.shape.nodes, gbs, row.step_s))
    return found


def _models(rows: list[ProfileRow], names: Names) -> list[ModelRow]:
    """Return one row for each model."""
    found: dict[str, list[ProfileRow]] = defaultdict(list)
    for row in rows:
        if row.step_s > row.exposed_s:
            found[names.of(row.trained, row.shape)].append(row)
    return [_model(model, of_model) for model, of_model in sorted(found.items())]


def _model(model: str, rows: list[ProfileRow]) -> ModelRow:
    """Return the medians over the profiles that show communication: those between nodes, else those within a node.

    A step on one GPU sends nothing. It says nothing about the bytes of the same model on several GPUs, so it counts only for a
    model without other profiles.
    """
    profiles = [(row.shape is not None and row.shape.nodes > 1, step_profile(row)) for row in rows]
    sending = [(between, each) for between, each in profiles if each.communicate_s > 0 and each.ring_bytes > 0]
    used = [each for between, each in sending if between] or [each for _, each in sending]
    return ModelRow(
        model=model,
        compute_s=median(each.step_s - each.exposed_s for each in used or [each for _, each in profiles]),
        bytes=median(each.ring_bytes for each in used) if used else nan,
        overlap=median(_overlap(each) for each in used) if used else nan,
    )


def _overlap(profile: StepProfile) -> float:
    """Return the share that is hidden; the profile shows computing and communication."""
    return min(profile.hidden_s / min(profile.step_s - profile.exposed_s, profile.communicate_s), 1.0)
