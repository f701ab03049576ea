"""The simulator as the backend of trainings: it makes environments from the training setup and the user's options.

Registered in the entry-point group `headway.grounds`; `policies.learned.training.systems` defines its interface.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from policies.api import Policy, load_policy, parse_policy
from policies.documents import parse_toml
from policies.errors import TrainingError, UnfinishedError
from policies.learned.training.agents import Agent, AgentInEnvironment, Scheduler
from policies.learned.training.systems import (
    FIGURE,
    Comparison,
    EpisodeResult,
    OnProgress,
    SetupOverrides,
    TrainingSetup,
)
from policies.model import ClusterState
from simulator.agents.demonstrations import demonstrations_of
from simulator.agents.episodes import make, play
from simulator.agents.named import agent_of
from simulator.agents.policy_agent import PolicyAgent
from simulator.cluster.cluster import Cluster, cluster_of, parse_cluster
from simulator.engine.settings import Estimates, Settings
from simulator.engine.simulation import Simulation
from simulator.envs import OWN_SPEEDS
from simulator.errors import SimulatorError, TraceError
from simulator.results import metrics
from simulator.results.result import Result
from simulator.runs.process_pool import in_parallel, total_of
from simulator.runs.progress import drive
from simulator.runs.warm_starts import RULE, WarmStart, warm_starts
from simulator.slowdown.api import SlowdownModel
from simulator.slowdown.profiles.files import load_profiles
from simulator.slowdown.profiles.model_profiles import ModelProfiles, key_of
from simulator.slowdown.profiles.papers import INTERFERENCE, SPEED_SENSITIVITY, paper_profiles
from simulator.slowdown.registry import build, with_node_speed
from simulator.traces.trace import NS_PER_S, Trace
from simulator.training.data_sets import NOTHING_LATER, NOTHING_PLACED, DataSets, TracePart, of_files, of_setup
from simulator.training.trained_range import range_of

FIGURES: dict[str, Callable[[Result], float | None]] = {
    FIGURE: metrics.average_jct_s,
    "p90_jct_s": lambda result: metrics.percentile_jct_s(result, 90),
    "avg_service_s": metrics.average_service_s,
    "makespan_s": metrics.makespan_s,
    "utilization": metrics.utilization,
    "effectiveness": metrics.effectiveness,
}
"""Figures of a validation; all are defined when every job has finished."""
_FORMER_BETA = (4.038714724804022, 0.0)
"""The papers' coefficients of PCIe in the digests of training data: a mean in which one model counted twice."""
_RUN = "run "
TestRun: TypeAlias = Callable[[Scheduler, str], Result]
"""Runs a scheduler, under that name, on one test trace or a part of one."""


@dataclass
class SimulatorBackend:
    """A `policies.learned.training.systems.SimulationBackend`. Invariant: no file is read twice, so the data stay the same."""

    data_of: DataSets
    cluster: Cluster
    slowdown: tuple[str, ...]
    profiles: ModelProfiles
    data: str
    data_sha256: str
    warm_up: str = RULE
    """Policy that runs the jobs before a part of a user's trace; empty: each part begins on an empty cluster."""
    settings: Settings = field(default_factory=Settings)
    """The same for every run of a policy."""
    _envs: list[gymnasium.vector.VectorEnv[Any, Any, Any]] = field(default_factory=list)

    @property
    def gpus(self) -> tuple[int, ...]:
        """GPUs of every node."""
        return self.cluster.gpus

    def trained_range(self) -> dict[str, tuple[float, float]]:
        """Return the range of jobs, queues and clusters in training traces; empty if no trace is for training.

        Raises TrainingError where a training was wanted and no job is left for it.
        """
        with _as_training_errors():
            return range_of(self.data_of.of_training().training, self.cluster)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the user about the data."""
        return self.data_of.notes + self.data_of.notes_on_episodes

    def envs(self, env: str, count: int, **options: Any) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """Make that environment on training traces, in several processes. Raises TrainingError for unknown options."""
        import simulator.envs  # noqa: F401 - registers the environments

        with _as_training_errors():
            made = gymnasium.make_vec(
                env,
                num_envs=count,
                vectorization_mode="vector_entry_point",
                autoreset=AutoresetMode.SAME_STEP,
                traces=self.data_of.of_training().training,
                cluster=self.cluster,
                slowdown=self.slowdown,
                profiles=self.profiles,
                **options,
            )
        self._envs.append(made)
        return made

    def example(self, number: int = 0) -> ClusterState:
        """Return the state when the first jobs of that training trace have arrived."""
        training = self._of_training().training
        simulation = Simulation(
            training[number % len(training)], self.cluster, None, self.settings, self.models(), self.profiles
        )
        simulation.advance()
        return simulation.state()

    def play(
        self, policies: Sequence[Policy], numbers: Sequence[int], keep: Callable[[Policy], Any] | None = None
    ) -> list[EpisodeResult]:
        """Run policies on training traces, each in a process of its own. Raises TrainingError."""
        training = self._of_training().training
        runs = [(policy, training, number % len(training)) for policy, number in zip(policies, numbers, strict=True)]
        return self._runs(runs, keep)

    def validate(self, policy: Scheduler) -> dict[str, float]:
        """Return means over the validation traces. Raises UnfinishedError for one that leaves jobs unfinished."""
        validation = self._of_training().validation
        played = self._runs([(policy, validation, number) for number in range(len(validation))], None)
        return {name: float(np.mean([each.figures[name] for each in played])) for name in FIGURES}

    def agent(self, text: str) -> Agent:
        """Return the agent of that text. Raises TrainingError, and PolicyError for a policy that cannot be loaded."""
        with _as_training_errors():
            found = agent_of(text)
        return found.agent if isinstance(found, AgentInEnvironment) else found

    def demonstrate(self, agent: AgentInEnvironment, seeds: Sequence[int]) -> dict[str, npt.NDArray[Any]]:
        """Return what the agent sees and does in an episode for each of these seeds. Raises TrainingError."""
        with _as_training_errors(), self._env_on(agent, self.data_of.of_training().training) as env:
            return demonstrations_of(env, agent.agent, seeds).rows()

    def outcomes(self, agent: AgentInEnvironment) -> dict[str, float]:
        """Return means of the environment's own figures over the validation traces. Raises TrainingError."""
        traces = self._of_training().validation

        def work(name: str, _on_progress: object) -> Mapping[str, float]:
            with self._env_on(agent, (traces[int(name.removeprefix(_RUN))],)) as env:
                return play(env, agent.agent, 0).outcome

        with _as_training_errors():
            names = [f"{_RUN}{place}" for place in range(len(traces))]
            played = in_parallel(names, work, lambda _name, _share: None, outlast_sigterm=True)
        means = {name: float(np.mean([each[name] for each in played])) for name in played[0]}
        return {name: mean for name, mean in means.items() if isfinite(mean)}

    def compare(self, policies: Mapping[str, Scheduler], seeds: int | None, on_progress: OnProgress) -> Comparison:
        """Run policies, and agents in their environments, on the same test traces. Raises TrainingError.

        Beside an agent whose environment has speeds of its own, the policies act in that environment too.
        """
        with _as_training_errors():
            runs, says = self._test_runs(policies, seeds)
            work = {
                f"{name} on {number}. {trace}": partial(run, policy, name)
                for name, policy in _at_equal_speeds(policies).items()
                for number, (trace, run) in enumerate(runs, 1)
            }
            found = in_parallel(
                list(work), lambda label, _on_progress: metrics.summary(work[label]()), total_of(work, on_progress)
            )
        each = iter(found)
        figures = {name: [next(each) for _ in runs] for name in policies}
        notes = self.notes if self._begin_empty(policies) else self.data_of.notes
        return Comparison(tuple(trace for trace, _ in runs), figures, self.data_of.each or 1, says, notes)

    def _test_runs(self, policies: Mapping[str, Scheduler], seeds: int | None) -> tuple[list[tuple[str, TestRun]], str]:
        """Return the runs of a comparison, by name, and how they begin and end."""
        agents = _with_agents(policies)
        if self.data_of.each is None and not self.data_of.parts and self.warm_up and not agents:
            raise TraceError(
                NOTHING_LATER, mend="give a trace that goes on after them, or use --whole-trace on another one"
            )
        if self._begin_empty(policies):
            if not (traces := self.data_of.some_tests(seeds)):
                raise TraceError(NOTHING_PLACED, mend="give a trace with more jobs that it can place")
            why = (
                " (agents in environments begin so, and the policies beside them)"
                if agents and self.data_of.parts
                else ""
            )
            says = f"each run begins on an empty cluster{why}, and ends when every job has finished"
            return [(trace.name, partial(self._cold, trace)) for trace in traces], says
        chosen = self.data_of.parts[:seeds]
        says = f"each run begins as full as {self.warm_up} has left the cluster by then, and ends when every job has finished"
        return [
            (each.name, partial(self._warm, start)) for each, start in zip(chosen, self._starts(chosen), strict=True)
        ], says

    def _begin_empty(self, policies: Mapping[str, Scheduler]) -> bool:
        """Return whether the runs of a comparison begin on an empty cluster, as episodes do and with the same jobs."""
        return _with_agents(policies) or not self.data_of.parts or not self.warm_up

    def _of_training(self) -> DataSets:
        with _as_training_errors():
            return self.data_of.of_training()

    def _starts(self, chosen: Sequence[TracePart]) -> Iterator[WarmStart]:
        """Yield the start of each part; the rule runs each trace once."""
        for trace, parts in groupby(chosen, key=lambda each: each.trace):
            rule = load_policy(*parse_policy(self.warm_up))
            simulation = Simulation(trace, self.cluster, rule, self.settings, self.models(), self.profiles)
            yield from warm_starts(simulation, [each.part for each in parts])

    def _cold(self, trace: Trace, policy: Scheduler, name: str) -> Result:
        return self._result(policy, trace, name)

    def _warm(self, start: WarmStart, policy: Scheduler, name: str) -> Result:
        begin = time.perf_counter()
        assert not isinstance(policy, AgentInEnvironment)
        simulation = start.simulation(policy)
        drive(simulation)
        return start.result(simulation, name, time.perf_counter() - begin)

    def models(self) -> list[SlowdownModel]:
        """Return new slowdown models."""
        return build(self.slowdown, topology=self.cluster.topology, profiles=self.profiles)

    def errors(self) -> AbstractContextManager[None]:
        """Turn the simulator's errors in the `with` block, such as those of its environments, into TrainingError."""
        return _as_training_errors()

    def close(self) -> None:
        """Close all environments."""
        while self._envs:
            self._envs.pop().close()

    def _runs(
        self, runs: Sequence[tuple[Scheduler, Sequence[Trace], int]], keep: Callable[[Any], Any] | None
    ) -> list[EpisodeResult]:
        def work(name: str, _on_progress: object) -> EpisodeResult:
            policy, traces, number = runs[int(name.removeprefix(_RUN))]
            return self._run(policy, traces[number], keep)

        with _as_training_errors():
            names = [f"{_RUN}{place}" for place in range(len(runs))]
            # After a SIGTERM, a training continues to its next checkpoint and needs these runs until then.
            played = in_parallel(names, work, lambda _name, _share: None, outlast_sigterm=True)
        if says := next((each.unfinished for each in played if each.unfinished), ""):
            raise UnfinishedError(says)
        return played

    def _run(self, policy: Scheduler, trace: Trace, keep: Callable[[Any], Any] | None) -> EpisodeResult:
        name = f"the agent in {policy.env}" if isinstance(policy, AgentInEnvironment) else policy.spec.name
        result = self._result(policy, trace, name)
        if not result.done.all():
            left = [job_id for job_id, done in zip(result.job_ids, result.done.tolist(), strict=True) if not done]
            says = (
                f"{name} left {len(left)} of {len(trace)} jobs of {trace.name} unfinished, {left[0]} first; "
                "a policy must start a job that fits whenever no job runs"
            )
            return EpisodeResult({}, result.jct_ns / NS_PER_S, unfinished=says)
        figures = {name: float(figure) for name, of in FIGURES.items() if (figure := of(result)) is not None}
        return EpisodeResult(figures, result.jct_ns / NS_PER_S, keep(policy) if keep else None)

    def _result(self, policy: Scheduler, trace: Trace, name: str) -> Result:
        begin = time.perf_counter()
        if isinstance(policy, AgentInEnvironment):
            return Result.of(self._acted(policy, trace), name, time.perf_counter() - begin)
        simulation = Simulation(trace, self.cluster, policy, self.settings, self.models(), self.profiles)
        drive(simulation)
        return Result.of(simulation, name, time.perf_counter() - begin)

    def _acted(self, agent: AgentInEnvironment, trace: Trace) -> Simulation:
        """Return the simulation in which that agent scheduled the trace, which may have been cut off. Raises TrainingError."""
        with self._env_on(agent, (trace,)) as env:
            play(env, agent.agent, 0)
            simulation: Simulation | None = getattr(env.unwrapped, "simulation", None)
            if simulation is None:
                raise TrainingError(
                    f"{agent.env} has no simulation whose jobs could be compared with a policy's; compare agents in it with "
                    "headway-sim act"
                )
            return simulation

    @contextmanager
    def _env_on(self, agent: AgentInEnvironment, traces: Sequence[Trace]) -> Iterator[gymnasium.Env[Any, Any]]:
        """Make the agent's environment on these traces, and close it in the end."""
        world = {"traces": traces, "cluster": self.cluster, "slowdown": self.slowdown, "profiles": self.profiles}
        env = make(agent.env, **{**agent.options, **world})
        try:
            yield env
        finally:
            env.close()


def simulator_backend(setup: TrainingSetup, overrides: SetupOverrides) -> SimulatorBackend:
    """Make the backend from the user's options, with the setup's values for the rest. Raises TrainingError."""
    with _as_training_errors():
        return _backend(setup, overrides)


def _backend(setup: TrainingSetup, overrides: SetupOverrides) -> SimulatorBackend:
    cluster, of_cluster = _cluster(setup, overrides)
    slowdown = with_node_speed(overrides.slowdown or setup.slowdown, cluster.topology)
    profiles = load_profiles(overrides.profiles) if overrides.profiles else paper_profiles(*setup.papers)
    build(slowdown, topology=cluster.topology, profiles=profiles)
    data = (
        of_files(
            overrides.traces,
            cluster,
            setup.window,
            whole=overrides.whole,
            windows_of_tests=overrides.windows,
            places=setup.places,
            one_by_one=setup.one_by_one,
        )
        if overrides.traces
        else of_setup(setup, cluster)
    )
    says = f"{data.says}; on {_says(setup, overrides, cluster)}; slowdown {', '.join(slowdown)}"
    if overrides.profiles:
        says += f" by the profiles of {overrides.profiles}"
    settings = Settings(estimates=Estimates.parse(setup.estimates))
    parts = [data.sha256, of_cluster, repr(slowdown), _of_profiles(profiles)]
    if settings != Settings():  # the first cards have no estimates
        says += f"; estimates {setup.estimates}"
        parts.append(setup.estimates)
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return SimulatorBackend(data, cluster, slowdown, profiles, says, digest, overrides.warm_up, settings)


def _with_agents(policies: Mapping[str, Scheduler]) -> bool:
    return any(isinstance(each, AgentInEnvironment) for each in policies.values())


def _at_equal_speeds(policies: Mapping[str, Scheduler]) -> Mapping[str, Scheduler]:
    """Return the same policies and agents, such that jobs have equal speeds under all of them."""
    agents = (each for each in policies.values() if isinstance(each, AgentInEnvironment) and each.env in OWN_SPEEDS)
    if (where := next(agents, None)) is None:
        return policies
    return {
        name: each
        if isinstance(each, AgentInEnvironment)
        else AgentInEnvironment(PolicyAgent(each), where.env, where.options)
        for name, each in policies.items()
    }


@contextmanager
def _as_training_errors() -> Iterator[None]:
    """Turn errors of the simulator into TrainingError: recipes and the commands of policies know only that."""
    try:
        yield
    except SimulatorError as error:
        raise TrainingError(str(error)) from error


def _cluster(setup: TrainingSetup, overrides: SetupOverrides) -> tuple[Cluster, str]:
    """Return the cluster, and a text that identifies it."""
    if overrides.cluster is not None:
        cluster = parse_cluster(overrides.cluster)
        path = Path(overrides.cluster)
        return cluster, json.dumps(parse_toml(path.read_text()), default=str) if path.is_file() else overrides.cluster
    if isinstance(setup.cluster, str):
        return parse_cluster(setup.cluster), setup.cluster
    return cluster_of(setup.cluster), json.dumps(setup.cluster, default=str)


def _says(setup: TrainingSetup, overrides: SetupOverrides, cluster: Cluster) -> str:
    text = overrides.cluster or (setup.cluster if isinstance(setup.cluster, str) else "")
    nodes = f"{cluster.num_nodes} nodes of {cluster.num_gpus} GPUs in {len(set(cluster.racks))} racks"
    return text if text and not Path(text).is_file() else f"{text} ({nodes})" if text else nodes


def _of_profiles(profiles: ModelProfiles) -> str:
    models: Mapping[str, object] = profiles.models
    # The papers' coefficient of PCIe was another when the first cards were written, and none of their trainings has interference.
    interference, bound = replace(profiles.interference, most_cores=None), profiles.interference.most_cores
    if interference == replace(INTERFERENCE, most_cores=None):
        interference = replace(interference, beta=_FORMER_BETA)
    text = repr((sorted(models.items()), sorted(profiles.pairs.items()), interference, profiles.ring))
    # The first cards have no bound of cores either.
    text = text.replace(
        ", most_cores=None)", f", most_cores={bound})" if bound not in (None, INTERFERENCE.most_cores) else ")"
    )
    sensitivity = {name: profile.speed_sensitivity for name, profile in sorted(profiles.models.items())}
    if any(share != SPEED_SENSITIVITY.get(key_of(name), 1.0) for name, share in sensitivity.items()):
        text += repr(sensitivity)
    # The names of the classes when the first cards were written.
    return text.replace("ModelProfile(", "Profile(").replace("MeasuredInterference(", "Interference(")
