"""Hyper-parameters of MARL."""

from __future__ import annotations

from dataclasses import dataclass

from policies.errors import TrainingError

PAPER, SCORES = "paper", "scores"
PROGRESS, SPEED = "progress", "speed"
POWER8, DGX1, TWO_SIZES, MIXED = "power8", "dgx1", "two-sizes", "mixed"
ARCHITECTURES = (POWER8, DGX1, TWO_SIZES, MIXED)
_ABOVE_ZERO = (
    "k", "jobs", "intervals", "inner_layers", "inter_layers", "width", "encoded", "hidden", "learning_rate", "batch",
    "max_grad_norm", "episodes", "validate_every", "imitation_updates", "imitation_batch", "imitation_learning_rate",
    "temperature",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyper-parameters. The paper gives the numbers of layers, 128 hidden units, Adam with 1e-5, and gamma; others are ours. The
    paper has no imitation, and networks for one data center; its own form is the preset `paper`."""

    k: int = 4
    """Ports of the switches of the fat-tree on which it is trained: k^3 / 4 servers, k schedulers (the paper: 20)."""
    jobs: tuple[float, ...] = (15.0, 30.0)
    """Jobs that arrive in an interval at each 100 servers, one workload for each number (the paper: 15)."""
    architecture: str = POWER8
    """Servers of the fat-tree: power8, dgx1, two-sizes or mixed, as the environment's option."""
    intervals: int = 10
    """Intervals of an episode in which jobs arrive."""
    arrivals: str = "daily"
    """Kind of arrivals: daily, uniform or poisson."""
    single: bool = False
    """True: one scheduler manages all servers (section VI-E), of the same jobs."""
    workers: int = 0
    """Processes that step the environments; 0: none beside the training itself."""
    network: str = SCORES
    """paper (an output for each GPU group), or scores (one score for each group, for data centers of any size)."""
    shared: bool = True
    """True: all schedulers have the same weights; False: each has its own (the paper)."""
    inner_layers: int = 4
    """Convolutions on the inner graph."""
    inter_layers: int = 2
    """Convolutions on the inter graph."""
    width: int = 32
    """Width of a node's embedding in the inner graph; our choice."""
    encoded: int = 64
    """Width of the vectors that schedulers exchange; our choice."""
    hidden: int = 128
    """Hidden units of the actor and of the critic."""
    imitation_rounds: int = 30
    """Rounds that imitate a greedy control before reinforcement learning (`imitating`); 0: none, as in the paper."""
    teacher: str = "lookahead-greedy"
    """Rule that is imitated; one of the environment's option `others`."""
    temperature: float = 0.05
    """Difference of the rule's scores by which an action is e times less likely in what is imitated."""
    imitation_updates: int = 200
    """Gradient steps of such a round."""
    imitation_batch: int = 128
    """Decisions of such a gradient step."""
    imitation_learning_rate: float = 0.002
    """Adam's learning rate in the first of these rounds; it falls linearly."""
    rounds: int = 60
    """Rounds of actor-critic learning; 0: imitation alone."""
    episodes: int = 16
    """Episodes of a round, which are played side by side."""
    learning_rate: float = 1e-5
    """Adam's learning rate."""
    gamma: float = 0.9
    """Discount from one decision of a scheduler to its next one."""
    reward: str = SPEED
    """Reward of a decision: progress (the paper's: the share of its steps that the job trained in the interval), or speed (the
    job's speed relative to computing alone)."""
    entropy_weight: float = 0.0
    """Weight of the policy's entropy; the paper has none."""
    batch: int = 256
    """Decisions of a gradient step; our choice."""
    max_grad_norm: float = 0.5
    """Norm at which gradients are clipped; our choice."""
    validate_every: int = 10
    """Rounds between two validations, in both phases."""

    def __post_init__(self) -> None:
        """Raises TrainingError for values that are out of range."""
        for name in _ABOVE_ZERO:
            value = getattr(self, name)
            if not (value and min(value) > 0 if isinstance(value, tuple) else value > 0):
                raise TrainingError(f"{name} is {value}; give more than 0")
        for name in ("rounds", "imitation_rounds", "entropy_weight", "workers"):
            if not getattr(self, name) >= 0:
                raise TrainingError(f"{name} is {getattr(self, name)}; give 0 or more")
        if not self.rounds + self.imitation_rounds:
            raise TrainingError("there are no rounds of imitation or of reinforcement learning; give one of them")
        if not 0 <= self.gamma <= 1:
            raise TrainingError(f"gamma is {self.gamma}; give a number from 0 to 1")
        if self.network not in (PAPER, SCORES):
            raise TrainingError(f"network is {self.network!r}; give {PAPER} or {SCORES}")
        if self.reward not in (PROGRESS, SPEED):
            raise TrainingError(f"reward is {self.reward!r}; give {PROGRESS} or {SPEED}")
        if self.architecture not in ARCHITECTURES:
            raise TrainingError(f"architecture is {self.architecture!r}; give one of {', '.join(ARCHITECTURES)}")
        if self.k % 2:
            raise TrainingError(f"k is {self.k}; a fat-tree needs an even number of ports")
