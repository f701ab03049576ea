"""Options of the environments: traces, cluster, slowdown models, and the times of decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from simulator.cluster.cluster import Cluster, parse_cluster
from simulator.engine.settings import Settings
from simulator.errors import SettingError
from simulator.slowdown.api import SlowdownModel
from simulator.slowdown.placement.node_speed import NodeSpeed
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build, with_node_speed
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
    """A workload, from which every episode draws new jobs; or traces, of which every episode draws one."""
    cluster: Cluster | str = "4x8"
    """The cluster, or a text as for `--cluster`."""
    slowdown: Sequence[str | SlowdownModel] = ()
    """Texts as for `--slowdown`, or models without jobs; empty: every job has its ideal speed. As there, `node-speed` is added
    where nodes differ in speed, unless a text is `none`."""
    profiles: ModelProfiles = field(default_factory=lambda: paper_profiles("contention-rl"))
    """Profiles of the trained models."""
    settings: Settings = field(default_factory=Settings)
    """Other settings of the simulation."""
    decide: str = ROUNDS
    """Times of decisions: `rounds` (multiples of `round_s`), or `events` (arrivals, finishes, changes of nodes)."""
    round_s: float = 300.0
    """Seconds of a round; rewards are per round in both cases."""
    max_steps: int | None = None
    """Maximum number of steps of an episode, skipped ones included; None: 100 for each of its jobs."""
    skip_forced: bool = False
    """Skip decisions at which waiting is the only action; their rewards are added up."""

    def __post_init__(self) -> None:
        """Raises SettingError for an impossible value."""
        check("decide", self.decide, (ROUNDS, EVENTS))
        if not 0 < self.round_s < 1e9:
            raise SettingError(f"round_s is {self.round_s!r}; give seconds, more than 0 and less than 1e9")
        if self.max_steps is not None and self.max_steps < 1:
            raise SettingError(f"max_steps is {self.max_steps!r}; give at least 1, or None")
        if not isinstance(self.traces, Workload) and not self.traces:
            raise SettingError("traces is empty; give at least one trace, or a workload")


def check(name: str, value: object, known: Iterable[str]) -> None:
    """Check that the value is one of the known ones. Raises SettingError."""
    if value not in (names := list(known)):
        raise SettingError(f"{name} is {value!r}; give one of {', '.join(names)}")


def options_of(kind: type[Options], options: Mapping[str, Any]) -> Options:
    """Make the options of an environment from keywords. Raises SettingError, which lists the names, for unknown ones."""
    known = [each.name for each in fields(kind)]
    for name in options:
        if name not in known:
            raise SettingError(f"there is no option {name!r}; the options are {', '.join(known)}")
    return kind(**options)


class TraceSource:
    """The traces of episodes. Invariant: equal random generators give equal traces."""

    def __init__(self, traces: Workload | Sequence[Trace], cluster: Cluster) -> None:
        self._traces = traces
        self._cluster = cluster
        self._like = ""
        if isinstance(traces, Workload):
            self._like = next(like for like in GENERATORS if parameters_of(like) is type(traces))
            self._traces = replace(traces, cluster_gpus=cluster.num_gpus)

    def draw(self, rng: np.random.Generator) -> Trace:
        """Return the trace of the next episode."""
        if isinstance(self._traces, Workload):
            return self.of_seed(int(rng.integers(_LARGEST_SEED)))
        return self._traces[int(rng.integers(len(self._traces)))] if len(self._traces) > 1 else self._traces[0]

    def of_seed(self, seed: int) -> Trace:
        """Return the workload's trace of that seed. Raises SettingError if there is no workload."""
        if not isinstance(self._traces, Workload):
            raise SettingError(
                f"trace_seed {seed} is for workloads, and this environment has given traces; give trace=NUMBER"
            )
        return generate(self._like, replace(self._traces, seed=seed))

    def at(self, number: int) -> Trace:
        """Return one of the given traces. Raises SettingError if there is no such trace."""
        if isinstance(self._traces, Workload) or not 0 <= number < len(self._traces):
            known = "a workload" if isinstance(self._traces, Workload) else f"traces 0 to {len(self._traces) - 1}"
            raise SettingError(f"there is no trace {number}: the environment has {known}; give a Trace")
        return self._traces[number]


class Slowdowns:
    """The slowdown models of episodes: copies of models without jobs."""

    def __init__(self, asked: Sequence[str | SlowdownModel], cluster: Cluster, profiles: ModelProfiles) -> None:
        texts = [each for each in asked if isinstance(each, str)]
        given = [each for each in asked if not isinstance(each, str)]
        if not any(isinstance(model, NodeSpeed) for model in given):
            texts = [*with_node_speed(texts, cluster.topology)]
        self._models = [*build(texts, topology=cluster.topology, profiles=profiles), *given]

    def fresh(self) -> list[SlowdownModel]:
        """Return models without jobs."""
        return [model.fork() for model in self._models]


def cluster_of(cluster: Cluster | str) -> Cluster:
    """Return the cluster of that option."""
    return parse_cluster(cluster) if isinstance(cluster, str) else cluster
