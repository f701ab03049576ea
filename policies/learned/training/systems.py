"""Systems that can be trained, and the ground that they are trained on.

A system says in one object what `headway-policy train NAME` does:

    SYSTEM = System(
        name="mine", says="what it learns, and the paper", recipe=Recipe,
        scene=lambda recipe: Scene(workloads=(Jobs("contention-rl", {"mix": recipe.mix}),)),
        facts=lambda recipe, ground: Facts(encoder="mine/1", shapes=(f"{len(ground.gpus)} nodes",)),
        train=train, policies=("mine",),
    )

    def train(run: TrainingRun, ground: Ground, recipe: Recipe) -> None:
        envs = ground.envs("headway/Contention-v0", 32)
        run.keep(network=network, optimizer=optimizer)
        for _ in run.rounds(recipe.rounds):
            ...                                                   # see `policies.learned.training.run_folder`
            figures = ground.validate(MyPolicy(network))          # reports: the first figure decides which weights are best
            run.evaluate(figures["avg_jct_s"], network.state_dict(), **figures)

and is found through the entry-point group `headway.systems`: name -> the object. Whoever offers a ground registers a function in
`headway.grounds` that takes a `Scene` and what users said (`Given`), and returns a `Ground`. The simulator does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from policies.api import Policy
from policies.errors import TrainingError
from policies.learned.training.early_stop import Better
from policies.model import ClusterState, FloatColumn

if TYPE_CHECKING:
    import gymnasium
    from torch import nn

    from policies.learned.training.run_folder import TrainingRun
    from policies.learned.weights.card import Setting

SYSTEMS, GROUNDS = "headway.systems", "headway.grounds"
FIGURE = "avg_jct_s"
"""The usual validation figure: mean of finish - submit, queueing and pauses included; lower is better."""
TRAINING_SEEDS = range(1 << 20, 1 << 30)
VALIDATION_SEEDS = range(500, 505)
TEST_SEEDS = range(1000, 2000)
"""Of workloads that results are told of: nobody trains, tunes or stops early by them."""
_MEND = "pip install 'headway-scheduler[train,sim]'"


@dataclass(frozen=True)
class Jobs:
    """A workload: one of the generators of `headway-sim trace generate`, and its parameters by name."""

    like: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    """Numbers and words; several numbers as a tuple."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What a system is trained on unless users say otherwise.

    Invariant: seeds of training, validation and tests have none in common.
    """

    workloads: tuple[Jobs, ...]
    """Training goes through them in turn; figures are means over all of them. None where all traces are given."""
    cluster: str | Mapping[str, Any] = "4x8"
    """NxG, or the table of a TOML file (`simulator/cluster/cluster.py` lists its keys)."""
    slowdown: tuple[str, ...] = ("locality",)
    """As `--slowdown` has them."""
    papers: tuple[str, ...] = ()
    """Whose profiles of models; those of all without one."""
    window: int = 256
    """Jobs of an episode, where users give traces of their own."""
    training_seeds: Sequence[int] = TRAINING_SEEDS
    validation_seeds: Sequence[int] = VALIDATION_SEEDS

    def __post_init__(self) -> None:
        """Raises ValueError for seeds that are used twice, and where there are none."""
        if not (self.training_seeds and self.validation_seeds):
            raise ValueError("a scene needs seeds to train with, and others to validate with")
        # The validation seeds are few; the others may be a range of a billion.
        shared = any(seed in self.training_seeds or seed in TEST_SEEDS for seed in self.validation_seeds)
        if shared or any(seed in self.training_seeds for seed in TEST_SEEDS):
            raise ValueError("seeds of training, validation and tests overlap")


@dataclass(frozen=True, kw_only=True)
class Given:
    """What users said of the ground; None or nothing: as the scene has it."""

    traces: tuple[str, ...] = ()
    """Files, as `headway-sim` reads them, or FORMAT:FILE for logs that it converts."""
    cluster: str | None = None
    slowdown: tuple[str, ...] | None = None
    profiles: str | None = None
    """A file of profiles, such as `headway profile export` writes."""
    whole: bool = False
    """Traces are not cut: all of each is for tests, and nothing to learn from."""


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one policy on one trace."""

    figures: Mapping[str, float]
    jct_s: FloatColumn
    """Of every job, in order of submission; queueing included."""
    kept: Any = None
    """What the caller wanted of the policy when its run was over."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Policies side by side."""

    traces: tuple[str, ...]
    """Names of the test traces."""
    figures: Mapping[str, Sequence[Mapping[str, int | float | None]]]
    """Of every policy, as it was named: for each trace the figures of `headway-sim run --json`.

    A policy that leaves jobs waiting for ever has `finished` below `jobs` there, and figures of the others alone.
    """
    per_seed: int = 1
    """So many traces, one behind the other, are of one seed: only seeds are independent of each other."""


Tell = Callable[[float], None]
"""Told which share of the work is done."""


class Ground(Protocol):
    """What a recipe is trained on. Invariant: all that it gives follows from scene, what was said, and the arguments."""

    @property
    def gpus(self) -> tuple[int, ...]:
        """Of every node of the cluster."""

    @property
    def data(self) -> str:
        """What is trained on, in a phrase, for the card."""

    @property
    def data_sha256(self) -> str:
        """Of all that is trained on: traces or workloads and seeds, cluster, slowdown, profiles."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What users should know of their data, a line each: what was left out."""

    def envs(self, env: str, count: int, **options: Any) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """So many of that gymnasium environment on training traces: in processes, with masks, SAME_STEP.

        `options` are those of the environment but for traces, cluster, slowdown and profiles, which the ground gives.
        """

    def example(self, number: int = 0) -> ClusterState:
        """The empty cluster when the first jobs of that training trace wait: which nodes, links and models there are."""

    def play(
        self, policies: Sequence[Policy], numbers: Sequence[int], keep: Callable[[Policy], Any] | None = None
    ) -> list[Played]:
        """Policy i on training trace number i, each in a process of its own that begins as a copy of this one.

        Numbers are 0 or more, as many as one likes; equal numbers are equal traces. What a policy changes in itself stays in
        that process: `keep` is called there when the run is over, and what it returns comes back.
        """

    def validate(self, policy: Policy) -> Mapping[str, float]:
        """Means over the validation traces, which are neither those of training nor of tests: FIGURE first, all finite.

        Networks must be on the CPU. Raises TrainingError for a policy that leaves jobs unfinished.
        """

    def judge(self, policies: Mapping[str, Policy], seeds: int | None, tell: Tell) -> Judged:
        """Every policy on the same test traces, in processes: workloads give one for each of so many test seeds, users' traces
        the windows that nobody learned from, so many at most. None: five seeds, or all windows. Raises TrainingError.
        """

    def close(self) -> None:
        """End the environments that were made."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a card is told of a system, beside the recipe."""

    encoder: str
    """name/version."""
    shapes: tuple[str, ...]
    """Clusters that it is trained for."""
    settings: Mapping[str, Setting] | None = None
    """What the card keeps as the recipe, where a policy needs more than its fields to be made again."""


@dataclass(frozen=True, slots=True)
class Gym:
    """For systems that learn from environments: what another engine needs to train and judge a network of its own."""

    envs: Callable[[Any, Ground], gymnasium.vector.VectorEnv[Any, Any, Any]]
    """Of recipe and ground: the environments that the system itself trains in."""
    policy: Callable[[Any, Ground, nn.Module], Policy]
    """Of recipe, ground and a network of a batch of observations -> (logits of all actions, values): the policy to validate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A learned system. Invariant: every field of `recipe` has a default."""

    name: str
    says: str
    """What it learns, and where that comes from."""
    recipe: type
    """A frozen dataclass of hyper-parameters: numbers, words, and tuples of them."""
    scene: Callable[[Any], Scene]
    """Of a recipe."""
    facts: Callable[[Any, Ground], Facts]
    """Of a recipe and a ground. Raises EncoderError for a cluster that it does not know."""
    train: Callable[[TrainingRun, Ground, Any], None]
    """The whole training. It reports through the run: `log` and `evaluate`, once a round at least the latter."""
    policies: tuple[str, ...] = ()
    """That are served by the weights, as `headway-policy list` names them."""
    rounds: str = "rounds"
    """The field of the recipe that says how many rounds there are."""
    better: Better = "lower"
    """Which way the validation figure is better."""
    patience: int | None = None
    """Training ends after so many rounds without a better one; None: never early."""
    devices: tuple[str, ...] = ("cpu",)
    """Kinds of torch devices that it trains on."""
    gym: Gym | None = None


def system_names() -> list[str]:
    """Names of all systems that are installed."""
    return sorted(set(entry_points(group=SYSTEMS).names))


def find_system(name: str) -> System:
    """The system of that name. Raises TrainingError, with the names there are, or with what is missing to train it."""
    found = entry_points(group=SYSTEMS, name=name)
    if not found:
        there = ", ".join(system_names()) or "none"
        raise TrainingError(f"no system is named {name!r}; installed: {there}")
    entry = next(iter(found))
    system = _load(entry.load, f"system {name!r} ({entry.value})")
    if not isinstance(system, System):
        raise TrainingError(
            f"system {name!r} ({entry.value}) is no policies.learned.training.systems.System; mend its package"
        )
    return system


def find_ground(scene: Scene, given: Given) -> Ground:
    """The ground of that scene, with what was said. Raises TrainingError where nobody offers one, and whatever it raises."""
    found = entry_points(group=GROUNDS)
    if not found:
        raise TrainingError(f"nobody offers a ground to train on; {_MEND}")
    entry = next(iter(found))
    make: Callable[[Scene, Given], Ground] = _load(entry.load, f"ground {entry.name!r} ({entry.value})")
    return make(scene, given)


def _load(load: Callable[[], Any], what: str) -> Any:
    try:
        return load()
    except ModuleNotFoundError as error:
        raise TrainingError(f"{what} needs {error.name}, which is not installed; {_MEND}") from error
    except (ImportError, AttributeError) as error:
        raise TrainingError(f"{what} cannot be loaded: {error}; mend its package") from error
