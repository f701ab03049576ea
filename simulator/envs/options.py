"""What environments run on: which traces, on which cluster, how jobs slow each other down, and when there is a decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from simulator.cluster.cluster import Cluster, parse_cluster
from simulator.engine.settings import Settings
from simulator.errors import SettingError
from simulator.slowdown.api import SlowdownModel
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators import GENERATORS, generate, parameters_of
from simulator.traces.generators.contention_rl import ContentionRL
from simulator.traces.generators.workload import Workload
from simulator.traces.trace import Trace

Options = TypeVar("Options", bound="EnvOptions")
ROUNDS, EVENTS = "rounds", "events"
_LARGEST_SEED = 1 << 31


@dataclass(frozen=True, kw_only=True)
class EnvOptions:
    """The options that every environment has."""

    traces: Workload | Sequence[Trace] = field(default_factory=ContentionRL)
    """A workload: every episode draws another set of jobs from it. Traces: every episode draws one of them."""
    cluster: Cluster | str = "4x8"
    """As `--cluster` has it."""
    slowdown: Sequence[str | SlowdownModel] = ()
    """As `--slowdown` has them, or models that nobody has entered; none at all: every job has its ideal speed."""
    profiles: ModelProfiles = field(default_factory=lambda: paper_profiles("contention-rl"))
    """Of the models that jobs train."""
    settings: Settings = field(default_factory=Settings)
    """What else a run assumes."""
    decide: str = ROUNDS
    """When there is a decision: at `rounds` (multiples of `round_s`), or at `events` (arrivals, finishes, changes of nodes)."""
    round_s: float = 300.0
    """Seconds of a round; rewards are per round either way."""
    max_steps: int | None = None
    """Steps, skipped ones included, after which an episode is cut off; None: 100 for each of its jobs."""
    skip_forced: bool = False
    """Do not ask where nothing can be done but wait: the reward is the sum of what these rounds bring."""

    def __post_init__(self) -> None:
        """Raises SettingError for what cannot be."""
        check("decide", self.decide, (ROUNDS, EVENTS))
        if not 0 < self.round_s < 1e9:
            raise SettingError(f"round_s is {self.round_s!r}; give seconds, more than 0")
        if self.max_steps is not None and self.max_steps < 1:
            raise SettingError(f"max_steps is {self.max_steps!r}; give at least 1, or None")
        if not isinstance(self.traces, Workload) and not self.traces:
            raise SettingError("traces is empty; give at least one trace, or a workload")


def check(name: str, value: object, known: Iterable[str]) -> None:
    """Raises SettingError for an option that is none of those."""
    if value not in (names := list(known)):
        raise SettingError(f"{name} is {value!r}; give one of {', '.join(names)}")


def options_of(kind: type[Options], options: Mapping[str, Any]) -> Options:
    """The options of an environment from keywords. Raises SettingError, with the names there are, for unknown ones."""
    known = [each.name for each in fields(kind)]
    for name in options:
        if name not in known:
            raise SettingError(f"there is no option {name!r}; the options are {', '.join(known)}")
    return kind(**options)


class TraceSource:
    """Gives every episode its trace. Invariant: equal generators give equal traces."""

    def __init__(self, traces: Workload | Sequence[Trace], cluster: Cluster) -> None:
        self._traces = traces
        self._cluster = cluster
        self._like = ""
        if isinstance(traces, Workload):
            self._like = next(like for like in GENERATORS if parameters_of(like) is type(traces))
            self._traces = replace(traces, cluster_gpus=cluster.num_gpus)

    def draw(self, rng: np.random.Generator) -> Trace:
        """The next episode's trace."""
        if isinstance(self._traces, Workload):
            return self.of_seed(int(rng.integers(_LARGEST_SEED)))
        return self._traces[int(rng.integers(len(self._traces)))] if len(self._traces) > 1 else self._traces[0]

    def of_seed(self, seed: int) -> Trace:
        """The workload's set of jobs of that seed. Raises SettingError where there is no workload."""
        if not isinstance(self._traces, Workload):
            raise SettingError(f"trace_seed {seed} means nothing for given traces; give trace, the number of one")
        return generate(self._like, replace(self._traces, seed=seed))

    def at(self, number: int) -> Trace:
        """One of the traces given. Raises SettingError where it is none."""
        if isinstance(self._traces, Workload) or not 0 <= number < len(self._traces):
            there = "a workload" if isinstance(self._traces, Workload) else f"traces 0 to {len(self._traces) - 1}"
            raise SettingError(f"trace {number} is not there: the environment has {there}; give a Trace")
        return self._traces[number]


class Slowdowns:
    """Gives every episode fresh models: copies of pristine ones."""

    def __init__(self, asked: Sequence[str | SlowdownModel], cluster: Cluster, profiles: ModelProfiles) -> None:
        texts = [each for each in asked if isinstance(each, str)]
        given = [each for each in asked if not isinstance(each, str)]
        self._models = [*build(texts, topology=cluster.topology, profiles=profiles), *given]

    def fresh(self) -> list[SlowdownModel]:
        """Models that nobody has entered."""
        return [model.fork() for model in self._models]


def cluster_of(cluster: Cluster | str) -> Cluster:
    """The cluster of that option."""
    return parse_cluster(cluster) if isinstance(cluster, str) else cluster
