"""Systems that can be trained, and the simulation backend that they are trained on.

A system describes in one object what `headway-policy train NAME` does:

    SYSTEM = TrainableSystem(
        name="mine", summary="what it learns, and the paper", recipe=Recipe,
        setup=lambda recipe: TrainingSetup(workloads=(WorkloadSpec("contention-rl", {"mix": recipe.mix}),)),
        card=lambda recipe, backend: CardDetails(encoder="mine/1", shapes=(f"{len(backend.gpus)} nodes",)),
        train=train, policies=("mine",),
    )

    def train(run: TrainingRun, backend: SimulationBackend, recipe: Recipe) -> None:
        envs = backend.envs("headway/Contention-v0", 32)
        run.keep(network=network, optimizer=optimizer)
        for _ in run.rounds(recipe.rounds):
            ...                                                   # see `policies.learned.training.run.training_run`
            figures = backend.validate(MyPolicy(network))         # the first figure decides which weights are best
            run.evaluate(figures["avg_jct_s"], network.state_dict(), **figures)

Systems are found through the entry-point group `headway.systems`: name -> the object. A package that offers a backend registers in
the group `headway.grounds` a function of a `TrainingSetup` and a `SetupOverrides` that returns a
`SimulationBackend`. The simulator does so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from policies.api import Policy
from policies.errors import TrainingError
from policies.learned.training.agents import Agent, AgentInEnvironment, Scheduler
from policies.learned.training.run.early_stop import Better
from policies.model import ClusterState, FloatColumn

if TYPE_CHECKING:
    import gymnasium
    from torch import nn

    from policies.learned.training.run.training_run import TrainingRun
    from policies.learned.weights.card import Setting
    from policies.learned.weights.trained_range import TrainedRange

TRAINED = "agent"
"""Name of trained agents where policies are named."""
SYSTEMS, BACKENDS = "headway.systems", "headway.grounds"
FIGURE = "avg_jct_s"
"""The validation figure: mean of finish - submit, queueing and pauses included; lower is better."""
TRAINING_SEEDS = range(1 << 20, 1 << 30)
VALIDATION_SEEDS = range(500, 505)
TEST_SEEDS = range(1000, 2000)
"""Seeds of the workloads that results are reported on. Training, tuning and early stopping never use them."""
_MEND = "pip install 'headway-scheduler[train,sim]'"


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload: one of the generators of `headway-sim trace generate`, and its parameters by name."""

    generator: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    """Numbers and words; several numbers as a tuple."""


Places = Callable[[Sequence[int], int], bool]
"""Returns whether a job of so many GPUs (second) can be placed on an empty cluster whose nodes have so many GPUs each (first)."""


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """The workloads, cluster and seeds that a system is trained on unless the user gives others.

    Invariant: seeds of training, validation and tests are disjoint.
    """

    workloads: tuple[WorkloadSpec, ...]
    """Training uses them in turn; figures are means over all of them. Empty where the user gives all traces."""
    cluster: str | Mapping[str, Any] = "4x8"
    """NxG, or the table of a TOML file (`simulator/cluster/cluster.py` lists its keys)."""
    slowdown: tuple[str, ...] = ("locality",)
    """Names of slowdown models, as in `--slowdown`."""
    estimates: str = "true"
    """Durations that policies see in every run, as in `--estimates`: true, limit, noisy:SIGMA or history."""
    papers: tuple[str, ...] = ()
    """Papers whose model profiles are used; empty: those of all papers."""
    window: int = 256
    """Jobs of an episode, where the user gives traces."""
    places: Places | None = None
    """Jobs of the user's traces that the system's environment cannot place are left out of its episodes; None: it places all."""
    one_by_one: bool = False
    """True: the environment gives one GPU after the other, so in episodes, jobs of the user's traces run from one GPU on."""
    training_seeds: Sequence[int] = TRAINING_SEEDS
    validation_seeds: Sequence[int] = VALIDATION_SEEDS

    def __post_init__(self) -> None:
        """Raises ValueError if seeds are missing or used twice."""
        if not (self.training_seeds and self.validation_seeds):
            raise ValueError("a training setup needs seeds to train with, and others to validate with")
        # The validation seeds are few; the others may be a range of a billion.
        shared = any(seed in self.training_seeds or seed in TEST_SEEDS for seed in self.validation_seeds)
        if shared or any(seed in self.training_seeds for seed in TEST_SEEDS):
            raise ValueError("seeds of training, validation and tests overlap")


@dataclass(frozen=True, kw_only=True)
class SetupOverrides:
    """Parts of the setup that the user replaces; None or empty: the part stays."""

    traces: tuple[str, ...] = ()
    """Files, as `headway-sim` reads them, or FORMAT:FILE for logs that it converts."""
    cluster: str | None = None
    slowdown: tuple[str, ...] | None = None
    profiles: str | None = None
    """A file of profiles, such as `headway profile export` writes."""
    whole: bool = False
    """Traces are not cut: all of each is for tests, and nothing is left for training."""
    windows: bool = True
    """Policies are compared on windows of about as many jobs as an episode has, and not in one run of each trace."""
    warm_up: str = "srtf"
    """Policy that runs the jobs before the part of a trace on which others are compared, as NAME[:key=value,...]; empty: that
    part begins on an empty cluster."""


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """Results of one policy on one trace."""

    figures: Mapping[str, float]
    jct_s: FloatColumn
    """JCT of every job, in order of submission; queueing included."""
    kept: Any = None
    """Result of the caller's `keep` for the policy after its run."""
    unfinished: str = ""
    """The jobs that the policy left unfinished, in a sentence; empty: none."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Results of several policies on the same test traces."""

    traces: tuple[str, ...]
    """Names of the test traces."""
    figures: Mapping[str, Sequence[Mapping[str, int | float | None]]]
    """For every policy, by its name, and for each trace the figures of `headway-sim run --json`.

    Where a policy never starts some jobs, `finished` is below `jobs`, and the figures are those of the finished jobs.
    """
    per_seed: int = 1
    """Number of consecutive traces that belong to one seed: only seeds are independent of each other."""
    says: str = ""
    """How the runs begin and end, in a sentence."""
    notes: tuple[str, ...] = ()
    """One line for each part of the user's data that is left out of these runs."""


OnProgress = Callable[[float], None]
"""Called with the share of the work that is done."""


class SimulationBackend(Protocol):
    """Environments, traces and validation for a recipe. Invariant: results follow from setup, overrides and arguments alone."""

    @property
    def gpus(self) -> tuple[int, ...]:
        """GPUs of every node of the cluster."""

    @property
    def data(self) -> str:
        """A phrase for the card that names the training data."""

    @property
    def data_sha256(self) -> str:
        """Digest of the training data: traces or workloads and seeds, cluster, slowdown, profiles."""

    def trained_range(self) -> TrainedRange:
        """Return the range of jobs, queues and clusters in training traces, for the card."""

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for each part of the user's data that is left out."""

    def envs(self, env: str, count: int, **options: Any) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """Return `count` copies of that gymnasium environment on training traces: in processes, with masks, SAME_STEP.

        `options` are those of the environment except traces, cluster, slowdown and profiles, which the backend gives.
        """

    def example(self, number: int = 0) -> ClusterState:
        """Return the empty cluster with the first jobs of that training trace waiting: it shows nodes, links and models."""

    def play(
        self, policies: Sequence[Policy], numbers: Sequence[int], keep: Callable[[Policy], Any] | None = None
    ) -> list[EpisodeResult]:
        """Run policy i on training trace `numbers[i]`, each in a process of its own that begins as a copy of this one.

        Any number from 0 on is a trace; equal numbers are equal traces. What a policy changes in itself stays in its process:
        `keep` is called there after the run, and its result is returned.
        """

    def validate(self, policy: Scheduler) -> Mapping[str, float]:
        """Return means over the validation traces, which are used neither for training nor for tests: FIGURE first, all finite.

        An agent acts in its environment on these traces, with the backend's cluster. Networks must be on the CPU. Raises
        UnfinishedError for a policy or an agent that leaves jobs unfinished, and TrainingError.
        """

    def agent(self, text: str) -> Agent:
        """Return the agent of a policy's text, of a baseline of an environment, or of trained weights, as `headway-sim act` does.

        A policy acts by its decisions, of which each action carries out a part; what an environment's actions cannot express is
        replaced by the nearest action. Raises TrainingError, and PolicyError for a policy that cannot be loaded.
        """

    def demonstrate(self, agent: AgentInEnvironment, seeds: Sequence[int]) -> Mapping[str, npt.NDArray[Any]]:
        """Let the agent play an episode on a training trace for each of these seeds. Return what it saw and did: `seen`,
        `actions` and `masks`, a row for each step. Raises TrainingError.
        """

    def outcomes(self, agent: AgentInEnvironment) -> Mapping[str, float]:
        """Return means of the figures that the agent's environment itself gives of an episode (`outcome` in its last info), over
        the validation traces; those that are not finite on all of them are left out. An episode may leave jobs unfinished.
        """

    def compare(self, policies: Mapping[str, Scheduler], seeds: int | None, on_progress: OnProgress) -> Comparison:
        """Run every policy, and every agent in its environment, on the same test traces, in processes.

        Workloads give one trace for each of `seeds` test seeds; users' traces give at most `seeds` parts or windows, none of them
        used in training. None: five seeds, or all of them. Runs of users' traces begin on the cluster as the policy `warm_up` of
        the overrides left it; beside an agent, which cannot begin there, all begin on an empty cluster. Raises TrainingError.
        """

    def errors(self) -> AbstractContextManager[None]:
        """Turn the backend's own errors in the `with` block, such as those of its environments, into TrainingError."""

    def close(self) -> None:
        """Close the environments that were made."""


@dataclass(frozen=True, slots=True)
class CardDetails:
    """The card's entries for a system, besides the recipe."""

    encoder: str
    """name/version."""
    shapes: tuple[str, ...]
    """Clusters that the system is trained for."""
    settings: Mapping[str, Setting] | None = None
    """The card's recipe, where a policy needs more than the recipe's fields to be made again."""
    trained_range: TrainedRange | None = None
    """The range of the training, where it uses more than one backend; None: that of the backend."""


@dataclass(frozen=True, slots=True)
class Gym:
    """Functions by which another engine trains and validates a network of its own, for systems that learn from environments."""

    envs: Callable[[Any, SimulationBackend], gymnasium.vector.VectorEnv[Any, Any, Any]]
    """Returns the environments that the system itself trains in, from recipe and backend."""
    policy: Callable[[Any, SimulationBackend, nn.Module], Policy]
    """Returns the policy to validate, from recipe, backend and a network (batch of observations -> logits of all actions,
    values)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainableSystem:
    """A learned system. Invariant: every field of `recipe` has a default."""

    name: str
    summary: str
    """A phrase with what it learns, and the paper."""
    recipe: type
    """A frozen dataclass of hyper-parameters: numbers, words, and tuples of them."""
    setup: Callable[[Any], TrainingSetup]
    """Returns the workloads, cluster and seeds that a recipe is trained on."""
    card: Callable[[Any, SimulationBackend], CardDetails]
    """Returns the card's entries, from a recipe and a backend. Raises EncoderError for a cluster that the system does not
    support."""
    train: Callable[[TrainingRun, SimulationBackend, Any], None]
    """Carries out the whole training. It calls the run's `evaluate` at least once a round, and `log`."""
    policies: tuple[str, ...] = ()
    """Names of the policies that serve the weights, as in `headway-policy list`."""
    rounds: str = "rounds"
    """Name of the recipe's field with the number of rounds."""
    better: Better = "lower"
    """The better validation figure: the lower or the higher one."""
    patience: int | None = None
    """Number of rounds without a better figure after which training ends; None: never early."""
    devices: tuple[str, ...] = ("cpu",)
    """Kinds of torch devices on which the system can train."""
    gym: Gym | None = None
    presets: Mapping[str, Any] = field(default_factory=dict)
    """Recipes by name, for `--set preset=NAME`; other settings change fields of that recipe."""
    agent: Callable[[str], AgentInEnvironment] | None = None
    """Returns the agent in the environment that it was trained in, from a folder of weights ('': those that come with Headway).
    Raises WeightsError."""


def system_names() -> list[str]:
    """Return the names of all installed systems."""
    return sorted(set(entry_points(group=SYSTEMS).names))


def find_system(name: str) -> TrainableSystem:
    """Return the system of that name. Raises TrainingError if there is none, or if a package that it needs is missing."""
    found = entry_points(group=SYSTEMS, name=name)
    if not found:
        there = ", ".join(system_names()) or "none"
        raise TrainingError(f"no system is named {name!r}; installed: {there}")
    entry = next(iter(found))
    system = _load(entry.load, f"system {name!r} ({entry.value})")
    if not isinstance(system, TrainableSystem):
        raise TrainingError(
            f"system {name!r} ({entry.value}) is not a policies.learned.training.systems.TrainableSystem; "
            "correct the package that registers it"
        )
    return system


def trained_agent(text: str, options: Mapping[str, object]) -> AgentInEnvironment:
    """Return the agent of `agent:system=NAME,weights=FOLDER`, read into its options. Raises TrainingError, WeightsError."""
    if "system" not in options or set(options) - {"system", "weights"}:
        raise TrainingError(f"{text!r} does not name an agent; give {TRAINED}:system=NAME,weights=FOLDER")
    system = find_system(str(options["system"]))
    if system.agent is None:
        raise TrainingError(f"{system.name} has no agent that acts in an environment; give its policy instead")
    return system.agent(str(options.get("weights", "")))


def find_backend(setup: TrainingSetup, overrides: SetupOverrides) -> SimulationBackend:
    """Return the backend of that setup with the overrides. Raises TrainingError if none is installed or it cannot be made."""
    found = entry_points(group=BACKENDS)
    if not found:
        raise TrainingError(f"no simulation backend is installed, so nothing can be trained; {_MEND}")
    entry = next(iter(found))
    make: Callable[[TrainingSetup, SetupOverrides], SimulationBackend] = _load(
        entry.load, f"simulation backend {entry.name!r} ({entry.value})"
    )
    return make(setup, overrides)


def _load(load: Callable[[], Any], what: str) -> Any:
    try:
        return load()
    except ModuleNotFoundError as error:
        raise TrainingError(f"{what} needs {error.name}, which is not installed; {_MEND}") from error
    except (ImportError, AttributeError) as error:
        raise TrainingError(f"{what} cannot be loaded: {error}; correct the package that registers it") from error
