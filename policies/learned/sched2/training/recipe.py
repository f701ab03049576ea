"""Hyper-parameters of SCHED2's Q-learning."""

from __future__ import annotations

from dataclasses import dataclass

from policies.errors import TrainingError
from policies.learned.sched2.state.kinds import EFFECTIVENESS, NETWORKS, PAPER, REWARDS
from policies.learned.sched2.state.window import FIRST, WINDOWS
from policies.learned.sched2.training.checks import above_zero, known_words, shares
from policies.learned.sched2.training.demonstrations import RULES


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyper-parameters. The paper gives J = 10, its network's form, its reward, DQN with prioritized replay and epsilon-greedy
    exploration, and 2,400 episodes; all other numbers are chosen here."""

    gaps_s: tuple[float, ...] = (129.0,)
    """Mean seconds between two submits in the training workloads, which are used in turn."""
    window: str = FIRST
    """The J jobs of the queue that can be chosen: first (the paper's) or widest."""
    candidates: int = 10
    """J."""
    network: str = PAPER
    """paper (equations 3 to 5) or features."""
    hidden: int = 64
    """Width of the network's layers for jobs and for the cluster."""
    server: int = 16
    """Width of the network's layers for a server."""
    reward: str = EFFECTIVENESS
    """effectiveness (the paper's) or completions (JCT)."""
    reward_scale: float = 0.02
    """Factor on rewards, so that Q is about 1."""
    gamma: float = 0.99
    """Discount of a reward for each action before it."""
    horizon_h: float = 0.0
    """Hours in which the value of a future reward falls to 1/e; 0: `gamma` for each action instead."""
    envs: int = 16
    """Number of environments that are stepped together."""
    rounds: int = 150
    """Rounds of Q-learning; in each, every environment plays an episode: 2,400 of 16."""
    validate_every: int = 10
    """Rounds between two validations."""
    min_gain: float = 0.0
    """Minimum relative improvement of the validation figure for new weights to be kept (0.05 = 5 %)."""
    demonstrations: int = 0
    """Number of initial rounds that imitate `rule`."""
    rule: str = "local-sif"
    """The rule that is imitated: local-sif or local-spf."""
    margin: float = 0.003
    """Margin by which the Q of the demonstrated action should exceed that of all others."""
    margin_weight: float = 0.0
    """Weight of the large-margin loss of demonstrations."""
    pretrain_batches: int = 1000
    """Batches after each round of demonstrations."""
    double: bool = True
    """Choose the next action by the network, and value it by the target network."""
    replay_capacity: int = 200_000
    """Transitions in the replay memory."""
    n_steps: int = 1
    """Number of steps in a return."""
    train_every: int = 2
    """Steps of all environments between two batches."""
    batch: int = 128
    """Transitions in a batch."""
    learning_rate: float = 5e-4
    """Learning rate at the beginning; it falls linearly to a tenth."""
    epsilon: float = 0.5
    """Share of random actions at the beginning."""
    epsilon_end: float = 0.01
    """Share of random actions from `exploring` on."""
    exploring: float = 0.4
    """Share of the rounds in which the share of random actions falls. Validations before its end take no patience."""
    tau: float = 0.005
    """Share by which the target network moves towards the network with every batch."""
    alpha: float = 0.6
    """Exponent of the priorities in the replay memory."""
    beta: float = 0.4
    """Exponent of the importance weights at the beginning; it rises to 1."""
    max_grad_norm: float = 10.0
    """Norm at which gradients are clipped."""

    def explores_in(self, number: int) -> bool:
        """Return whether the share of random actions still falls in the round of that number, counted from 0."""
        return number < self.exploring * self.rounds

    def __post_init__(self) -> None:
        """Raises TrainingError for values that are out of range."""
        above_zero(
            self, "hidden", "server", "envs", "rounds", "validate_every", "replay_capacity", "n_steps", "train_every", "batch",
            "learning_rate", "max_grad_norm", "candidates", "reward_scale",
        )  # fmt: skip
        shares(self, "epsilon", "epsilon_end", "exploring", "tau", "alpha", "beta", "gamma", "min_gain")
        for name in ("margin", "margin_weight", "demonstrations", "pretrain_batches", "horizon_h"):
            if not getattr(self, name) >= 0:
                raise TrainingError(f"{name} is {getattr(self, name)}; give 0 or more")
        known_words(self, {"window": WINDOWS, "reward": REWARDS, "rule": RULES, "network": NETWORKS})
        if not self.gaps_s or min(self.gaps_s) <= 0:
            raise TrainingError(f"gaps_s is {self.gaps_s}; give seconds, more than 0")
