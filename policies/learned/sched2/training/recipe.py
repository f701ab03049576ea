"""Hyper-parameters of SCHED2's training."""

from __future__ import annotations

from dataclasses import dataclass

from policies.errors import TrainingError
from policies.learned.sched2.state.window import FIRST, WINDOWS
from policies.learned.sched2.training.demonstrations import RULES

EFFECTIVENESS, COMPLETIONS = "effectiveness", "completions"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyper-parameters. The paper gives none but J = 10; all others are chosen here."""

    gaps_s: tuple[float, ...] = (129.0,)
    """Mean seconds between two submits in the training workloads, which are used in turn."""
    window: str = FIRST
    """The J jobs of the queue that can be chosen: first (the paper's) or widest."""
    candidates: int = 10
    """J."""
    reward: str = COMPLETIONS
    """effectiveness (the paper's) or completions (JCT)."""
    horizon_h: float = 8.0
    """Hours in which the value of a future reward falls to 1/e."""
    reward_scale: float = 0.005
    """Factor on rewards, so that Q is about 1."""
    hidden: int = 32
    """Width of the network's layers for a job and for the cluster."""
    server: int = 16
    """Width of the network's layers for a server."""
    envs: int = 16
    """Number of environments that are stepped together."""
    searches: int = 60
    """Rounds of search for a rule; 0: none."""
    rules: int = 32
    """Rules that are compared in a round of search."""
    traces: int = 16
    """Traces that they are compared on."""
    rule_scale: float = 0.001
    """Factor from the rule's weights to those of the network's linear part."""
    rounds: int = 4
    """Rounds of Q-learning; in each, every environment plays an episode."""
    demonstrations: int = 1
    """Number of initial rounds that imitate a rule: the one that was found, or `rule` if there was no search."""
    rule: str = "local-sif"
    """The rule that is imitated if there was no search: local-sif or local-spf."""
    min_gain: float = 0.05
    """Minimum relative improvement of a round of Q-learning over the best weights so far (0.05 = 5 %). Thirty validation traces
    cannot tell less from chance."""
    margin: float = 0.003
    """Margin by which the Q of the demonstrated action should exceed that of all others."""
    margin_weight: float = 1.0
    """Weight of the large-margin loss."""
    replay_capacity: int = 120_000
    """Transitions in the replay memory."""
    n_steps: int = 32
    """Number of steps in a return."""
    train_every: int = 3
    """Steps of all environments between two batches."""
    batch: int = 128
    """Transitions in a batch."""
    pretrain_batches: int = 1000
    """Batches after each round of demonstrations."""
    learning_rate: float = 2e-4
    """Learning rate at the beginning; it falls linearly to a tenth."""
    epsilon: float = 0.02
    """Share of random actions at the beginning; it falls linearly to a fifth."""
    tau: float = 0.005
    """Share by which the target network moves towards the network with every batch."""
    alpha: float = 0.6
    """Exponent of the priorities in the replay memory."""
    beta: float = 0.4
    """Exponent of the importance weights at the beginning; it rises to 1."""
    max_grad_norm: float = 10.0
    """Norm at which gradients are clipped."""

    def __post_init__(self) -> None:
        """Raises TrainingError for values that are out of range."""
        above = (
            "horizon_h",
            "hidden",
            "server",
            "envs",
            "traces",
            "rounds",
            "replay_capacity",
            "n_steps",
            "train_every",
        )
        for name in (*above, "batch", "learning_rate", "max_grad_norm", "candidates"):
            if not getattr(self, name) > 0:
                raise TrainingError(f"{name} is {getattr(self, name)}; give more than 0")
        for name in ("epsilon", "tau", "alpha", "beta", "min_gain"):
            if not 0 <= getattr(self, name) <= 1:
                raise TrainingError(f"{name} is {getattr(self, name)}; give a number from 0 to 1")
        for name in ("margin", "margin_weight", "demonstrations", "pretrain_batches", "searches"):
            if not getattr(self, name) >= 0:
                raise TrainingError(f"{name} is {getattr(self, name)}; give 0 or more")
        for name, known in {"window": WINDOWS, "reward": (EFFECTIVENESS, COMPLETIONS), "rule": RULES}.items():
            if (value := getattr(self, name)) not in known:
                raise TrainingError(f"{name} is {value!r}; give {' or '.join(known)}")
        if self.rules < 3:
            raise TrainingError(f"rules is {self.rules}; give at least 3, of which one can be better than the others")
        if not self.gaps_s or min(self.gaps_s) <= 0:
            raise TrainingError(f"gaps_s is {self.gaps_s}; give seconds, more than 0")
