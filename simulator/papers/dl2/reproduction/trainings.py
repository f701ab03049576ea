"""Trainings of DL2's agent whose runs are stored: each name, and what it changes in the recipe."""

from __future__ import annotations

from dataclasses import dataclass

PAPER, PPO = "dl2", "dl2-ppo"
"""The trainings with the paper's teacher, networks and reinforcement learning, and as Headway does it; both are systems of
`headway-policy train`, whose weights come with Headway."""
OFFLINE, OFFLINE_DRF, OFFLINE_PPO = "offline-rl", "offline-rl-drf", "offline-rl-ppo"
OFFLINES = (OFFLINE, OFFLINE_DRF, OFFLINE_PPO)
"""OfflineRL (6.2), taught by FIFO and by DRF, and with the options that are not in the paper."""


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


REINFORCED, REINFORCED_UNEXPLORED = "reinforcement-alone", "reinforcement-unexplored"
UNEXPLORED, UNBUNDLED, WITHOUT_CRITIC, WITHOUT_REPLAY = (
    "without-exploration",
    "without-bundle-action",
    "without-actor-critic",
    "without-replay",
)
JOB_REWARD = "reward-of-the-job"
DRF_TAUGHT, FIFO_TAUGHT, SRTF_TAUGHT = "teacher-drf", "teacher-fifo", "teacher-srtf"
DRF_ALONE, FIFO_ALONE, SRTF_ALONE = "drf-alone", "fifo-alone", "srtf-alone"
SQUARE, ABSOLUTE = "loss-mean-square", "loss-absolute"
FOUR_TYPES, SIX_TYPES, EIGHT_TYPES = "four-types", "six-types", "eight-types"
JOBS = {number: f"j-{number}" for number in (5, 10)}
"""Trainings by J; that of the default is `teacher-drf`."""
NEURONS = {number: f"one-layer-{number}" for number in (64, 128, 256, 512)}
LAYERS = {2: "two-layers-128", 3: "three-layers-128"}
"""Trainings with 128 neurons by the number of layers; that of one layer is in `NEURONS`."""
CLUSTERS = {number: f"clusters-{number}" for number in (1, 2, 4)}
"""Trainings in so many clusters. A round has as many slots of each cluster, so K clusters make K times the gradient steps."""
_ENVS_OF_CLUSTER = 4
_SHORT = "rounds=8"
"""Rounds of reinforcement learning of trainings that are short; `dl2` has 60."""
_FIFO, _SRTF = ("teacher=fifo", _SHORT), ("teacher=srtf", _SHORT)


def _by_drf(says: str, *settings: str) -> Training:
    """Return a training that differs from `teacher-drf` in these settings."""
    return Training((_SHORT, *settings), f"{says}; taught by DRF")


TRAININGS = {
    PAPER: Training((), "taught by DRF, then actor-critic with replay, as in the paper"),
    PPO: Training((), "PPO with a value for each job, not in the paper", PPO),
    DRF_TAUGHT: Training((_SHORT,), "DRF as the teacher, with as many rounds as the trainings below (figure 18)"),
    DRF_ALONE: Training(("rounds=0",), "its supervised phase alone (figures 10 and 18)"),
    REINFORCED: Training(("supervised_rounds=0", _SHORT), "reinforcement learning alone (figure 10)"),
    REINFORCED_UNEXPLORED: Training(
        ("supervised_rounds=0", _SHORT, "epsilon=0"), "reinforcement learning alone, no job-aware exploration (table 2)"
    ),
    FIFO_TAUGHT: Training(_FIFO, "FIFO with two workers as the teacher, chosen on the validation seeds (figure 18)"),
    FIFO_ALONE: Training(("teacher=fifo", "rounds=0"), "its supervised phase alone (figure 18)"),
    SRTF_TAUGHT: Training(_SRTF, "SRTF as the teacher (figure 18)"),
    SRTF_ALONE: Training(("teacher=srtf", "rounds=0"), "its supervised phase alone (figure 18)"),
    OFFLINE: Training(
        (*_FIFO, "speeds=analytical"), "OfflineRL: trained at the speeds of Optimus' fit (6.2); taught by FIFO"
    ),
    OFFLINE_DRF: _by_drf("OfflineRL: trained at the speeds of Optimus' fit (6.2)", "speeds=analytical"),
    OFFLINE_PPO: Training(("speeds=analytical",), "OfflineRL with PPO, at the speeds of Optimus' fit", PPO),
    UNEXPLORED: _by_drf("no job-aware exploration (table 2)", "epsilon=0"),
    UNBUNDLED: _by_drf("no bundle action (table 2)", "bundle=false"),
    WITHOUT_CRITIC: _by_drf("the moving average of rewards as the baseline (table 2)", "value_baseline=false"),
    WITHOUT_REPLAY: _by_drf("no replay memory (table 2)", "replay=false"),
    JOB_REWARD: _by_drf("each action has the reward of its own job (6.5.2)", "reward=job"),
    SQUARE: _by_drf("the supervised phase by the mean square (6.5.2)", "loss=mean-square"),
    ABSOLUTE: _by_drf("the supervised phase by the absolute difference (6.5.2)", "loss=absolute"),
    FOUR_TYPES: _by_drf("jobs of the first four models only (figure 17)", "models=4"),
    SIX_TYPES: _by_drf(
        "it continues with jobs of two more models (figure 17)", "models=6", f"start=trained/{FOUR_TYPES}"
    ),
    EIGHT_TYPES: _by_drf("it continues with jobs of all models (figure 17)", f"start=trained/{SIX_TYPES}"),
    **{name: _by_drf(f"J = {number} (figure 19a)", f"concurrent={number}") for number, name in JOBS.items()},
    **{
        name: _by_drf(f"one hidden layer of {number} neurons (figure 19b)", "layers=1", f"neurons={number}")
        for number, name in NEURONS.items()
    },
    **{
        name: _by_drf(f"{number} hidden layers of 128 neurons (figure 19c)", f"layers={number}", "neurons=128")
        for number, name in LAYERS.items()
    },
    **{
        name: Training(
            (f"start=trained/{DRF_ALONE}", f"clusters={number}", f"envs={_ENVS_OF_CLUSTER * number}", "rounds=12"),
            f"{DRF_ALONE} continued by actor-critic in {number} clusters, by A3C (6.5.2)",
        )
        for number, name in CLUSTERS.items()
    },
}
