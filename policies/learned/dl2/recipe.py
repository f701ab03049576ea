"""Hyper-parameters of DL2's two phases."""

from __future__ import annotations

from dataclasses import dataclass

from policies.errors import TrainingError
from policies.learned.algorithms.imitation import CROSS_ENTROPY, LOSSES
from policies.learned.dl2.network import FLAT, NETWORKS, SHARED
from policies.learned.dl2.teachers import DRF, FIFO, TEACHERS

ENGINE, ANALYTICAL = "engine", "analytical"
SLOT, JOB = "slot", "job"
REPLAY, PPO = "replay", "ppo"
_WITH_REPLAY_ALONE = ("reward", "slots", "clusters", "replay", "value_baseline")
"""Fields that have no effect with `ppo`, and whose other values are refused there."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyper-parameters. The paper gives the networks, both learning rates, the batch, gamma and the ratio of exploration; its
    code an entropy weight of 0.1, J = 40 and a memory of 8,192 samples. All other numbers are chosen here, also against the
    paper (`uses`, `critic_rounds`, `entropy_weight`, `entropy_decay`, `max_grad_norm`); `PAPER_RECIPE` is without these."""

    nodes: int = 36
    """Nodes of the cluster, each with two GPUs like those of the paper's testbed."""
    measured: bool = True
    """Speeds by the published measurements (`dl2-measured`); False: by sizes and computing times (`dl2`)."""
    mean_gap_s: float = 1800.0
    """Mean seconds between two submits in the workload of training."""
    jobs: int = 30
    """Jobs of an episode."""
    models: int = 8
    """Models that the jobs of training and validation train, the first of table 1."""
    speeds: str = ENGINE
    """engine (speeds depend on placement and neighbours) or analytical (Optimus' fit), in training and validation."""
    reward: str = SLOT
    """Reward of each sample: that of the slot, or of the action's own job in it (job)."""
    bundle: bool = True
    """Allow the action that gives one worker and one server; False: its ablation."""
    concurrent: int = 20
    """J: jobs in a state. More are shown in batches by arrival."""
    neurons: int = 256
    """Neurons of a hidden layer."""
    layers: int = 2
    """Hidden layers of each network."""
    network: str = FLAT
    """Policy network: flat (the paper's) or shared, with the same weights for each job and two layers; not in the paper."""
    start: str = ""
    """Folder of a training, with whose weights the policy network begins in place of the supervised phase; empty: none."""
    teacher: str = DRF
    """Teacher of the supervised phase: the rule drf (the paper's), fifo or srtf, on the state alone; or any policy, by its text
    (`tetris:elastic=true`), or a baseline of the environment (`dl2-optimus`), by what it does in the environment."""
    teacher_workers: int = 2
    """Workers to which the teachers fifo and srtf let a job grow; of 1 to 4, the best on the seeds of validation."""
    loss: str = CROSS_ENTROPY
    """Loss of the supervised phase: cross-entropy, mean-square or absolute."""
    smoothing: float = 0.0
    """Share of the teacher's actions in place of which the supervised phase shows a random pair or void, so that the policy is not
    certain when reinforcement learning begins; not in the paper."""
    supervised_rounds: int = 12
    """Maximum number of rounds of the supervised phase; 0: reinforcement learning alone."""
    supervised_samples: int = 0
    """Actions of the teacher in a supervised round; 0: an episode in each environment."""
    supervised_updates: int = 400
    """Gradient steps in a supervised round, after these actions."""
    supervised_learning_rate: float = 0.005
    """Adam's learning rate in the supervised phase."""
    supervised_tolerance: float = 0.02
    """The supervised phase ends when the average JCT exceeds the teacher's by no more than this share."""
    batch: int = 256
    """Samples of a gradient step, in both phases."""
    envs: int = 8
    """Number of environments that are stepped together; each begins an episode with a round."""
    slots: int = 0
    """Slots of a round of reinforcement learning, over all environments, after each of which follows a gradient step; 0: those of
    an episode in each environment."""
    algorithm: str = REPLAY
    """Reinforcement learning: replay (the paper's actor-critic) or ppo, which is not in the paper: on the present policy's samples
    alone, with a value for each job (`on_policy`, `credit`). With ppo, job-aware exploration and all fields of the memory
    have no effect."""
    rounds: int = 60
    """Rounds of reinforcement learning; 0: the supervised phase alone."""
    critic_rounds: int = 2
    """First rounds of reinforcement learning, in which only the value network learns; none without a value baseline."""
    validate_every: int = 2
    """Rounds of reinforcement learning between two validations."""
    learning_rate: float = 1e-4
    """Adam's learning rate in reinforcement learning."""
    gamma: float = 0.9
    """Discount of a reward for each slot before it."""
    entropy_weight: float = 0.0005
    """Weight of the policy's entropy in the first rounds (the paper's code: 0.1, with rewards that are not scaled). The best policy
    with a weight of b chooses actions with probabilities in proportion to exp(value / b). One more task changes a slot's scaled
    reward by 0.001 to 0.005, so a weight of 0.01 leaves the policy nearly random."""
    entropy_decay: float = 0.1
    """Factor on that weight in the last round; the weight falls geometrically from the middle of the rounds on."""
    reward_scale: float = 0.1
    """Factor on rewards, so that values are about 1."""
    epsilon: float = 0.4
    """Probability of job-aware exploration in a poor state; 0: none."""
    ratio: float = 10.0
    """Ratio of workers to servers, or servers to workers, above which a state is poor."""
    replay: bool = True
    """Take the samples of a gradient step from the replay memory; False: all samples of the slot that has ended."""
    replay_capacity: int = 8192
    """Samples in the replay memory."""
    uses: float = 2.0
    """Maximum number of gradient steps that use a sample of the memory, on average; with as many as a batch has samples, or
    more, each slot has a step, as in the paper. A slot of few actions adds few samples, and many steps on the same ones would
    learn their noise."""
    value_baseline: bool = True
    """Subtract the value of the state from the return; False: an exponential moving average of rewards."""
    clusters: int = 1
    """Number of clusters of federated training (A3C), among which the environments are divided: `envs` is for all of them. Each
    has a memory and a copy of the networks of its own (`reinforcement.clusters`)."""
    critic_learning_rate: float = 1e-3
    """With ppo: Adam's learning rate of the value network."""
    passes: int = 4
    """With ppo: passes over the samples of a round."""
    clip_range: float = 0.2
    """With ppo: the ratio of the new to the old probability of an action is clipped to 1 - and 1 + clip_range."""
    step_lambda: float = 0.5
    """With ppo: lambda of the advantages over the actions of a slot."""
    slot_lambda: float = 0.5
    """With ppo: lambda of the returns over slots."""
    max_grad_norm: float = 0.5
    """Norm at which gradients of reinforcement learning are clipped."""

    def entropy_weight_in(self, number: int) -> float:
        """Return the weight of the policy's entropy in a round of reinforcement learning, counted from 0."""
        middle = self.rounds // 2
        part = max(number - middle + 1, 0) / max(self.rounds - middle, 1)
        return float(self.entropy_weight * self.entropy_decay**part)

    def __post_init__(self) -> None:
        """Raises TrainingError for values that are out of range."""
        for name in (
            "nodes", "mean_gap_s", "jobs", "models", "clusters", "concurrent", "neurons", "layers", "teacher_workers",
            "supervised_updates", "supervised_learning_rate", "batch", "envs", "validate_every", "learning_rate",
            "reward_scale", "ratio", "replay_capacity", "uses", "max_grad_norm", "critic_learning_rate", "passes", "clip_range",
        ):  # fmt: skip
            if not getattr(self, name) > 0:
                raise TrainingError(f"{name} is {getattr(self, name)}; give more than 0")
        for name in (
            "rounds", "slots", "supervised_samples", "supervised_rounds", "supervised_tolerance", "critic_rounds",
            "entropy_weight",
        ):  # fmt: skip
            if not getattr(self, name) >= 0:
                raise TrainingError(f"{name} is {getattr(self, name)}; give 0 or more")
        for name in ("gamma", "epsilon", "entropy_decay", "smoothing", "step_lambda", "slot_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise TrainingError(f"{name} is {getattr(self, name)}; give a number from 0 to 1")
        if not (self.rounds or self.supervised_rounds):
            raise TrainingError("rounds and supervised_rounds are 0, so nothing is learned; give one of them")
        if self.supervised_samples and self.teacher not in TEACHERS:
            raise TrainingError(
                f"supervised_samples is {self.supervised_samples}, and the teacher {self.teacher} plays whole episodes; "
                f"leave it out, or give one of {', '.join(TEACHERS)}"
            )
        if self.clusters > self.envs:
            raise TrainingError(f"clusters is {self.clusters}; give no more than the {self.envs} environments")
        self._check_names()

    def _check_names(self) -> None:
        for name, known in (
            ("loss", tuple(LOSSES)),
            ("speeds", (ENGINE, ANALYTICAL)),
            ("reward", (SLOT, JOB)),
            ("network", NETWORKS),
            ("algorithm", (REPLAY, PPO)),
        ):
            if (value := getattr(self, name)) not in known:
                raise TrainingError(f"{name} is {value!r}; give {' or '.join(known)}")
        if self.algorithm == PPO:
            for name in _WITH_REPLAY_ALONE:
                if getattr(self, name) != getattr(Recipe, name):
                    raise TrainingError(
                        f"{name} is {getattr(self, name)!r}, which has no effect with algorithm=ppo; leave it out"
                    )


PAPER_RECIPE = Recipe(
    uses=256.0, critic_rounds=0, entropy_weight=0.1, entropy_decay=1.0, reward_scale=1.0, max_grad_norm=1e9
)
"""Preset `paper`: a gradient step after each slot, of both networks from the first one on, with the entropy weight and the rewards
of the paper's code, and gradients that are not clipped (a card has no infinite numbers)."""


@dataclass(frozen=True, kw_only=True)
class PPORecipe(Recipe):
    """Hyper-parameters of `dl2-ppo`, which is not in the paper: those of `Recipe` with other defaults."""

    algorithm: str = PPO
    teacher: str = FIFO
    network: str = SHARED
    neurons: int = 64
    smoothing: float = 0.3
    gamma: float = 0.0
    envs: int = 10
    batch: int = 512
    rounds: int = 100
    critic_rounds: int = 8
    validate_every: int = 6
    learning_rate: float = 5e-4
    entropy_weight: float = 0.003
