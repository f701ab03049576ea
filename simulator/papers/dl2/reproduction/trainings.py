"""Trainings of DL2's agent whose runs are stored: each name, and what it changes in the recipe."""

from __future__ import annotations

from dataclasses import dataclass

PAPER, PPO = "dl2", "dl2-ppo"
"""The trainings as in the paper, and as Headway does it; both are systems of `headway-policy train`, whose weights come with
Headway."""
OFFLINE, OFFLINE_PPO = "offline-rl", "offline-rl-ppo"


@dataclass(frozen=True, slots=True)
class Training:
    """A training of `headway-policy train`."""

    settings: tuple[str, ...]
    """Fields of the recipe that differ from their defaults, as for `--set`."""
    says: str
    """The purpose of the training, and the place in the paper."""
    system: str = PAPER

    def command(self, name: str) -> str:
        """Return the command that makes its weights."""
        changes = "".join(f" --set {each}" for each in self.settings)
        return f"headway-policy train {self.system} --seed 0 --out trained/{name}{changes}"


SUPERVISED, REINFORCED = "supervised-alone", "reinforcement-alone"
UNEXPLORED, UNBUNDLED, WITHOUT_CRITIC, WITHOUT_REPLAY = (
    "without-exploration",
    "without-bundle-action",
    "without-actor-critic",
    "without-replay",
)
JOB_REWARD = "reward-of-the-job"
DRF_TAUGHT, DRF_ALONE, SRTF_TAUGHT, SRTF_ALONE = "teacher-drf", "drf-alone", "teacher-srtf", "srtf-alone"
SQUARE, ABSOLUTE = "loss-mean-square", "loss-absolute"
FOUR_TYPES, SIX_TYPES, EIGHT_TYPES = "four-types", "six-types", "eight-types"
JOBS = {number: f"j-{number}" for number in (5, 10)}
"""Trainings by J; that of the default is `dl2`."""
NEURONS = {number: f"one-layer-{number}" for number in (64, 128, 256, 512)}
LAYERS = {2: "two-layers-128", 3: "three-layers-128"}
"""Trainings with 128 neurons by the number of layers; that of one layer is in `NEURONS`."""
CLUSTERS = {number: f"clusters-{number}" for number in (2, 4)}

TRAININGS = {
    PAPER: Training((), "the supervised phase, then actor-critic with replay, as in the paper"),
    OFFLINE: Training(("speeds=analytical",), "OfflineRL: the same, trained at the speeds of Optimus' fit (6.2)"),
    PPO: Training((), "PPO with a value for each job, not in the paper", PPO),
    OFFLINE_PPO: Training(("speeds=analytical",), "the same, trained at the speeds of Optimus' fit", PPO),
    SUPERVISED: Training(("rounds=0",), "the supervised phase alone (figure 10)"),
    REINFORCED: Training(("supervised_rounds=0",), "reinforcement learning alone (figure 10)"),
    UNEXPLORED: Training(("epsilon=0",), "no job-aware exploration (table 2)"),
    UNBUNDLED: Training(("bundle=false",), "no bundle action (table 2)"),
    WITHOUT_CRITIC: Training(("value_baseline=false",), "the moving average of rewards as the baseline (table 2)"),
    WITHOUT_REPLAY: Training(("replay=false",), "no replay memory (table 2)"),
    JOB_REWARD: Training(("reward=job",), "each action has the reward of its own job (6.5.2)"),
    DRF_TAUGHT: Training(("teacher=drf",), "DRF as the teacher, as in the paper (figure 18)"),
    DRF_ALONE: Training(
        ("teacher=drf", "rounds=0"), "DRF as the teacher, the supervised phase alone (figures 10 and 18)"
    ),
    SRTF_TAUGHT: Training(("teacher=srtf",), "SRTF as the teacher (figure 18)"),
    SRTF_ALONE: Training(("teacher=srtf", "rounds=0"), "SRTF as the teacher, the supervised phase alone (figure 18)"),
    SQUARE: Training(("loss=mean-square",), "the supervised phase by the mean square (6.5.2)"),
    ABSOLUTE: Training(("loss=absolute",), "the supervised phase by the absolute difference (6.5.2)"),
    FOUR_TYPES: Training(("models=4",), "jobs of the first four models only (figure 17)"),
    SIX_TYPES: Training(
        ("models=6", f"start=trained/{FOUR_TYPES}"), "it continues with jobs of two more models (figure 17)"
    ),
    EIGHT_TYPES: Training((f"start=trained/{SIX_TYPES}",), "it continues with jobs of all models (figure 17)"),
    **{name: Training((f"concurrent={number}",), f"J = {number} (figure 19a)") for number, name in JOBS.items()},
    **{
        name: Training(("layers=1", f"neurons={number}"), f"one hidden layer of {number} neurons (figure 19b)")
        for number, name in NEURONS.items()
    },
    **{
        name: Training((f"layers={number}", "neurons=128"), f"{number} hidden layers of 128 neurons (figure 19c)")
        for number, name in LAYERS.items()
    },
    **{name: Training((f"clusters={number}",), f"{number} clusters (A3C, 6.5.2)") for number, name in CLUSTERS.items()},
}
