"""Hyper-parameters of RL-TAPS."""

from __future__ import annotations

from dataclasses import dataclass

from policies.errors import TrainingError
from policies.learned.rl_taps.image_columns import PAPER

ONE_HOT, SCALED = "one-hot", "scaled"
STATIC, STREAMING = "static", "streaming"
THROUGHPUT, SLOWDOWN = "throughput", "slowdown"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyper-parameters. The paper gives the network, Adam with 0.001, 20 episodes of a sequence, 400 jobs, Tmax = 1000, 200 static
    sequences or 60 that are replaced every 10 epochs, and 50 epochs. It gives neither gamma nor the batch. It has no imitation,
    and charges nothing for moves; its own training is the preset `paper`."""

    jobs: int = 400
    """Jobs of a sequence, one a step."""
    max_steps: int = 1000
    """Tmax."""
    restart_s: float = 10.0
    """Seconds that a job loses when it is moved or resumed (the paper: 0)."""
    start: str = ""
    """Folder of a training, with whose weights the network begins in place of imitation; empty: none."""
    imitation_rounds: int = 40
    """Rounds that imitate the rule of blocks before reinforcement learning (`imitating`); 0: none, as in the paper."""
    imitation_updates: int = 150
    """Gradient steps of such a round, which is about two passes over its states."""
    imitation_batch: int = 256
    """States of such a gradient step."""
    imitation_learning_rate: float = 0.003
    """Adam's learning rate in the first of these rounds; it falls linearly."""
    data: str = STATIC
    """static: the same sequences in every epoch; streaming: new ones every `fresh_every` epochs."""
    sequences: int = 200
    """J: sequences of an epoch (the paper's streaming training: 60)."""
    fresh_every: int = 10
    """Epochs between new sequences, with data=streaming."""
    episodes: int = 20
    """E: episodes of each sequence, which share their baselines."""
    batch: int = 1
    """B: sequences of a gradient step."""
    rounds: int = 200
    """Gradient steps of reinforcement learning (the paper: 50 epochs of 200 / B); 0: imitation alone."""
    validate_every: int = 10
    """Rounds between two validations, in both phases."""
    widest: int = PAPER.widest
    """Most GPUs of a job; larger jobs of the user's traces are left out of the episodes."""
    hidden: int = 528
    """Units of the hidden layer."""
    colours: str = ONE_HOT
    """How the network sees the job of a GPU: one-hot, or scaled (the image's cells; see `network`)."""
    learning_rate: float = 0.0003
    """Adam's learning rate in reinforcement learning (the paper: 0.001)."""
    gamma: float = 0.95
    """Discount of a reward for each step before it."""
    entropy_weight: float = 0.0
    """Weight of the policy's entropy."""
    normalize: bool = False
    """Divide the advantages by their deviation."""
    reward: str = SLOWDOWN
    """slowdown (minus the slowdown that the step adds), or throughput (the paper's, equation 4)."""
    idle_weight: float = 1.0
    """Weight of the penalty for jobs without GPUs (equation 5), with reward=throughput."""
    fewer_weight: float = 1.0
    """Weight of the penalty for GPUs that a job lacks (equation 6), with reward=throughput."""

    def __post_init__(self) -> None:
        """Raises TrainingError for values that are out of range."""
        for name in (
            "jobs", "max_steps", "sequences", "fresh_every", "batch", "validate_every", "widest", "hidden", "learning_rate",
            "imitation_updates", "imitation_batch", "imitation_learning_rate",
        ):  # fmt: skip
            if not getattr(self, name) > 0:
                raise TrainingError(f"{name} is {getattr(self, name)}; give more than 0")
        for name in ("restart_s", "rounds", "imitation_rounds", "entropy_weight", "idle_weight", "fewer_weight"):
            if not getattr(self, name) >= 0:
                raise TrainingError(f"{name} is {getattr(self, name)}; give 0 or more")
        if not (self.rounds or (self.imitation_rounds and not self.start)):
            raise TrainingError("there are no rounds of imitation or of reinforcement learning; give one of them")
        if not 0 <= self.gamma <= 1:
            raise TrainingError(f"gamma is {self.gamma}; give a number from 0 to 1")
        if self.episodes < 2:
            raise TrainingError(f"episodes is {self.episodes}; give at least 2: the baseline is their mean")
        for name, known in (
            ("data", (STATIC, STREAMING)),
            ("reward", (THROUGHPUT, SLOWDOWN)),
            ("colours", (ONE_HOT, SCALED)),
        ):
            if (value := getattr(self, name)) not in known:
                raise TrainingError(f"{name} is {value!r}; give {' or '.join(known)}")
        if self.batch > self.sequences:
            raise TrainingError(f"batch is {self.batch}; give at most the {self.sequences} sequences of an epoch")
