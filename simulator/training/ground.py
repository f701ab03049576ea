"""The simulator as a training ground: traces, a cluster and slowdown models, from a scene or from the user.

Registered in the entry-point group `headway.grounds`; `policies.learned.training.systems` defines its interface.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from policies.api import Policy
from policies.documents import parse_toml
from policies.errors import TrainingError
from policies.learned.training.agents import AgentInEnvironment, Scheduler
from policies.learned.training.systems import (
    FIGURE,
    Comparison,
    EpisodeResult,
    OnProgress,
    SetupOverrides,
    TrainingSetup,
)
from policies.model import ClusterState
from simulator.agents.episodes import make, play
from simulator.cluster.cluster import Cluster, cluster_of, parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.errors import SimulatorError
from simulator.results import metrics
from simulator.results.result import Result
from simulator.runs.process_pool import in_parallel
from simulator.runs.progress import drive
from simulator.slowdown.api import SlowdownModel
from simulator.slowdown.profiles.files import load_profiles
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import NONE, build
from simulator.traces.trace import NS_PER_S, Trace
from simulator.training.data_sets import DataSets, of_files, of_scene

FIGURES: dict[str, Callable[[Result], float | None]] = {
    FIGURE: metrics.average_jct_s,
    "p90_jct_s": lambda result: metrics.percentile_jct_s(result, 90),
    "avg_service_s": metrics.average_service_s,
    "makespan_s": metrics.makespan_s,
    "utilization": metrics.utilization,
    "effectiveness": metrics.effectiveness,
}
"""Figures of a validation; all are defined when every job has finished."""
_RUN = "run "


@dataclass
class SimulatorGround:
    """A `policies.learned.training.systems.Ground`. Invariant: no file is read twice, so the data stay the same."""

    data_of: DataSets
    cluster: Cluster
    slowdown: tuple[str, ...]
    profiles: ModelProfiles
    data: str
    data_sha256: str
    _envs: list[gymnasium.vector.VectorEnv[Any, Any, Any]] = field(default_factory=list)

    @property
    def gpus(self) -> tuple[int, ...]:
        """GPUs of every node."""
        return self.cluster.gpus

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the user about the data."""
        return self.data_of.notes

    def envs(self, env: str, count: int, **options: Any) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """Make that environment on training traces, in several processes. Raises TrainingError for unknown options."""
        import simulator.envs  # noqa: F401 - registers the environments

        with _as_training_errors():
            made = gymnasium.make_vec(
                env,
                num_envs=count,
                vectorization_mode="vector_entry_point",
                autoreset=AutoresetMode.SAME_STEP,
                traces=self.data_of.training,
                cluster=self.cluster,
                slowdown=self._texts,
                profiles=self.profiles,
                **options,
            )
        self._envs.append(made)
        return made

    def example(self, number: int = 0) -> ClusterState:
        """Return the state when the first jobs of that training trace have arrived."""
        training = self.data_of.training
        simulation = Simulation(
            training[number % len(training)], self.cluster, None, Settings(), self.models(), self.profiles
        )
        simulation.advance()
        return simulation.state()

    def play(
        self, policies: Sequence[Policy], numbers: Sequence[int], keep: Callable[[Policy], Any] | None = None
    ) -> list[EpisodeResult]:
        """Run policies on training traces, each in a process of its own. Raises TrainingError."""
        training = self.data_of.training
        runs = [(policy, training, number % len(training)) for policy, number in zip(policies, numbers, strict=True)]
        return self._runs(runs, keep)

    def validate(self, policy: Scheduler) -> dict[str, float]:
        """Return means over the validation traces. Raises TrainingError for one that leaves jobs unfinished."""
        validation = self.data_of.validation
        played = self._runs([(policy, validation, number) for number in range(len(validation))], None)
        return {name: float(np.mean([each.figures[name] for each in played])) for name in FIGURES}

    def compare(self, policies: Mapping[str, Scheduler], seeds: int | None, tell: OnProgress) -> Comparison:
        """Run policies, and agents in their environments, on the same test traces. Raises TrainingError."""
        traces = self.data_of.some_tests(seeds)
        work = {
            f"{name} on {number}. {trace.name}": partial(self._result, policy, trace, name)
            for name, policy in policies.items()
            for number, trace in enumerate(traces, 1)
        }
        shares = dict.fromkeys(work, 0.0)

        def add(label: str, share: float) -> None:
            shares[label] = share
            tell(sum(shares.values()) / len(shares))

        with _as_training_errors():
            found = in_parallel(list(work), lambda label, _tell: metrics.summary(work[label]()), add)
        each = iter(found)
        names = tuple(trace.name for trace in traces)
        return Comparison(names, {name: [next(each) for _ in traces] for name in policies}, self.data_of.each or 1)

    def models(self) -> list[SlowdownModel]:
        """Return new slowdown models."""
        return build(self._texts, topology=self.cluster.topology, profiles=self.profiles)

    def close(self) -> None:
        """Close all environments."""
        while self._envs:
            self._envs.pop().close()

    @property
    def _texts(self) -> tuple[str, ...]:
        return () if self.slowdown == (NONE,) else self.slowdown

    def _runs(
        self, runs: Sequence[tuple[Scheduler, Sequence[Trace], int]], keep: Callable[[Any], Any] | None
    ) -> list[EpisodeResult]:
        def work(name: str, _tell: object) -> EpisodeResult:
            policy, traces, number = runs[int(name.removeprefix(_RUN))]
            return self._run(policy, traces[number], keep)

        with _as_training_errors():
            names = [f"{_RUN}{place}" for place in range(len(runs))]
            # After a SIGTERM, a training continues to its next checkpoint and needs these runs until then.
            return in_parallel(names, work, lambda _name, _share: None, outlast_sigterm=True)

    def _run(self, policy: Scheduler, trace: Trace, keep: Callable[[Any], Any] | None) -> EpisodeResult:
        name = f"the agent in {policy.env}" if isinstance(policy, AgentInEnvironment) else policy.spec.name
        result = self._result(policy, trace, name)
        if not result.done.all():
            left = [job_id for job_id, done in zip(result.job_ids, result.done.tolist(), strict=True) if not done]
            raise TrainingError(
                f"{name} left {len(left)} of {len(trace)} jobs of {trace.name} waiting for ever, {left[0]} first; "
                "it must start a job that fits when nothing runs"
            )
        figures = {name: float(figure) for name, of in FIGURES.items() if (figure := of(result)) is not None}
        return EpisodeResult(figures, result.jct_ns / NS_PER_S, keep(policy) if keep else None)

    def _result(self, policy: Scheduler, trace: Trace, name: str) -> Result:
        begin = time.perf_counter()
        if isinstance(policy, AgentInEnvironment):
            return Result.of(self._acted(policy, trace), name, time.perf_counter() - begin)
        simulation = Simulation(trace, self.cluster, policy, Settings(), self.models(), self.profiles)
        drive(simulation)
        return Result.of(simulation, name, time.perf_counter() - begin)

    def _acted(self, agent: AgentInEnvironment, trace: Trace) -> Simulation:
        """Return the simulation in which that agent scheduled the trace, which may have been cut off."""
        world = {"traces": (trace,), "cluster": self.cluster, "slowdown": self._texts, "profiles": self.profiles}
        env = make(agent.env, **{**agent.options, **world})
        try:
            play(env, agent.agent, 0)
            simulation: Simulation = env.unwrapped.simulation  # type: ignore[attr-defined] # what takes traces has one
        finally:
            env.close()
        return simulation


def ground(scene: TrainingSetup, given: SetupOverrides) -> SimulatorGround:
    """Make the training ground from the user's options, with the scene's values for the rest. Raises TrainingError."""
    with _as_training_errors():
        return _ground(scene, given)


def _ground(scene: TrainingSetup, given: SetupOverrides) -> SimulatorGround:
    cluster, of_cluster = _cluster(scene, given)
    slowdown = given.slowdown or scene.slowdown
    profiles = load_profiles(given.profiles) if given.profiles else paper_profiles(*scene.papers)
    build(() if slowdown == (NONE,) else slowdown, topology=cluster.topology, profiles=profiles)
    data = (
        of_files(given.traces, cluster, scene.window, whole=given.whole) if given.traces else of_scene(scene, cluster)
    )
    says = f"{data.says}; on {_says(scene, given, cluster)}; slowdown {', '.join(slowdown)}"
    if given.profiles:
        says += f" by the profiles of {given.profiles}"
    parts = (data.sha256, of_cluster, repr(slowdown), _of_profiles(profiles))
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return SimulatorGround(data, cluster, slowdown, profiles, says, digest)


@contextmanager
def _as_training_errors() -> Iterator[None]:
    """Turn errors of the simulator into TrainingError: recipes and the commands of policies know only that."""
    try:
        yield
    except SimulatorError as error:
        raise TrainingError(str(error)) from error


def _cluster(scene: TrainingSetup, given: SetupOverrides) -> tuple[Cluster, str]:
    """Return the cluster, and a text that identifies it."""
    if given.cluster is not None:
        cluster = parse_cluster(given.cluster)
        path = Path(given.cluster)
        return cluster, json.dumps(parse_toml(path.read_text()), default=str) if path.is_file() else given.cluster
    if isinstance(scene.cluster, str):
        return parse_cluster(scene.cluster), scene.cluster
    return cluster_of(scene.cluster), json.dumps(scene.cluster, default=str)


def _says(scene: TrainingSetup, given: SetupOverrides, cluster: Cluster) -> str:
    text = given.cluster or (scene.cluster if isinstance(scene.cluster, str) else "")
    nodes = f"{cluster.num_nodes} nodes of {cluster.num_gpus} GPUs in {len(set(cluster.racks))} racks"
    return text if text and not Path(text).is_file() else f"{text} ({nodes})" if text else nodes


def _of_profiles(profiles: ModelProfiles) -> str:
    models: Mapping[str, object] = profiles.models
    text = repr((sorted(models.items()), sorted(profiles.pairs.items()), profiles.interference, profiles.ring))
    # The names of the classes when the first cards were written.
    return text.replace("ModelProfile(", "Profile(").replace("MeasuredInterference(", "Interference(")
